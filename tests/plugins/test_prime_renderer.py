"""Formats of the library `renderers` behind our interface, on small tokenizers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from rti import Message, PluginError, Renderer, RunError, ToolCall
from rti.testing import check_renderer

pytest.importorskip("renderers", reason="needs the extra renderers")
pytest.importorskip("transformers", reason="needs the extra hf")
from qwen_tokenizer import make_qwen_tokenizer
from test_qwen_renderer import CONVERSATIONS, SEARCH

from rti_hf.prime import PrimeRenderer
from rti_hf.qwen import Qwen3Renderer

# The tokens that each format looks up in its tokenizer, beside Qwen's.
TOKENS = {
    "qwen3": (),
    "glm-4.5": (
        "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
        "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
    ),
    "kimi-k2": (
        "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
        "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    ),
    "deepseek-v3": (
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
        "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
    ),
}  # fmt: skip
WITHOUT_THINKING = ("kimi-k2", "deepseek-v3")
ASK = Message("user", "Take me there.")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}
    base = make_qwen_tokenizer(tmp_path_factory.mktemp("prime") / "base")

    def folder(family: str) -> Path:
        from tokenizers import AddedToken
        from transformers import AutoTokenizer

        if family not in made:
            tokenizer = AutoTokenizer.from_pretrained(str(base), local_files_only=True)
            tokens = [AddedToken(t, special=True, normalized=False) for t in TOKENS[family]]
            tokenizer.add_tokens(tokens)
            made[family] = base.parent / family
            tokenizer.save_pretrained(str(made[family]))
        return made[family]

    return folder


@pytest.fixture(scope="module")
def bound(folders: Any) -> Any:
    made: dict[str, PrimeRenderer] = {}

    def build(family: str) -> PrimeRenderer:
        if family not in made:
            made[family] = bind(folders(family), family=family)
        return made[family]

    return build


def bind(folder: Path, **options: Any) -> PrimeRenderer:
    renderer = PrimeRenderer(tokenizer=str(folder), **options)
    renderer.bind(SimpleNamespace(model=SimpleNamespace(path="")))
    return renderer


@pytest.mark.parametrize("family", TOKENS)
def test_keeps_the_contract(bound: Any, family: str) -> None:
    renderer = bound(family)
    assert isinstance(renderer, Renderer)
    for conversation in CONVERSATIONS.values():
        if family in WITHOUT_THINKING:
            conversation = [evolve(m, reasoning="") for m in conversation]
        if any(m.role == "assistant" for m in conversation):
            check_renderer(renderer, [conversation], tools=[SEARCH])


@pytest.mark.parametrize("family", TOKENS)
def test_sampled_ids_stay_as_they_are_even_cut_short(bound: Any, family: str) -> None:
    renderer = bound(family)
    odd = (*renderer.encode("So  be\n\nit 🙂 "), 7, 7, 7)
    messages = [ASK, renderer.parse(odd), Message("user", "And?")]
    first = renderer.prompt(messages[:1])
    second = renderer.prompt(messages)
    assert renderer.extends((*first, *odd), second)
    # The turn is closed for it: at once, or after its thinking has been.
    behind = second[len(first) + len(odd) :]
    assert set(behind[:2]) & set(renderer.stop_ids)
    turn = renderer.turn(Message("assistant", "Fine."))
    third = renderer.prompt([*messages, renderer.parse(turn), Message("user", "Well?")])
    assert renderer.extends((*second, *turn), third)


@pytest.mark.parametrize("family", TOKENS)
def test_text_forges_no_token(bound: Any, family: str) -> None:
    renderer = bound(family)
    added = renderer._tokenizer.get_added_vocab()
    bad = " ".join(added)

    def special(text: str) -> list[int]:
        call = ToolCall("search", {"q": text})
        messages = [Message("system", text), Message("user", text),
                    Message("assistant", text, tool_calls=(call,)),
                    Message("tool", text, tool_call_id="0")]  # fmt: skip
        return [i for i in renderer.prompt(messages, [SEARCH]) if i in added.values()]

    assert special(bad) == special("x")
    assert not set(renderer.encode(bad)) & set(added.values())
    assert len(renderer.turn(Message("assistant", bad))) > 20


def test_writes_qwen3_as_our_own_renderer_does(bound: Any, folders: Any) -> None:
    ours = Qwen3Renderer()
    ours.bind(SimpleNamespace(model=SimpleNamespace(path=str(folders("qwen3")))))
    messages = CONVERSATIONS["parallel calls, results in a row"]
    assert bound("qwen3").prompt(messages, [SEARCH]) == ours.prompt(messages, [SEARCH])


def test_reads_calls_with_their_types_and_leaves_bad_ones_in_the_content(bound: Any) -> None:
    renderer = bound("glm-4.5")
    renderer.prompt([ASK], [SEARCH])
    message = Message(
        "assistant", "Ok.", tool_calls=(ToolCall("search", {"q": "5", "zip": "01", "limit": 5}),)
    )
    assert renderer.parse(renderer.turn(message)).tool_calls == message.tool_calls
    qwen = bound("qwen3")
    text = '<think>\nWell.\n</think>\n\nOk.\n<tool_call>\n{"name": \n</tool_call>'
    back = qwen.parse(tuple(qwen._tokenizer.encode(text)))
    assert (back.reasoning, back.tool_calls) == ("Well.", ())
    assert back.content.startswith("Ok.")
    assert '{"name":' in back.content


@pytest.mark.parametrize("ids", [(), (0,), (-3, 10**7), tuple(range(600, 640)), (300,) * 9])
@pytest.mark.parametrize("family", TOKENS)
def test_odd_ids_are_read(bound: Any, family: str, ids: tuple[int, ...]) -> None:
    assert bound(family).parse(ids).token_ids == ids


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"family": "nothing"}, "No renderer config registered"),
        ({"family": "default"}, "no format of a model"),
        ({"family": "glm-4.5"}, r"Special token '\[gMASK\]' not found"),
        ({"family": "qwen3", "options": {"enable": True}}, "enable"),
    ],
)
def test_what_does_not_work_is_said_at_bind(
    folders: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(PluginError, match=rf"\[renderer\] prime: family = .*{says}"):
        bind(folders("qwen3"), **options)


def test_a_format_without_a_way_to_write_a_turn_is_refused(folders: Any) -> None:
    # R1's template drops all thinking, and its prompt opens a thinking block.
    with pytest.raises(PluginError, match="cannot write this turn behind its own prompt"):
        bind(folders("deepseek-v3"), family="deepseek-r1")


def test_is_unbound_at_first() -> None:
    with pytest.raises(RunError, match="bind"):
        PrimeRenderer(family="qwen3").encode("x")
    with pytest.raises(ValueError, match="family"):
        PrimeRenderer()
