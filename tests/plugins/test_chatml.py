"""The ChatML renderer on SmolLM2's real tokenizer, and the command that makes the model ready."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rti import Message, PluginError, Renderer, RunError, Tool, ToolCall
from rti.cli import main
from rti.testing import check_renderer

pytest.importorskip("gguf", reason="needs the extra smollm2")
pytest.importorskip("transformers", reason="needs the extra hf")
smollm2 = pytest.importorskip("rti_hf.smollm2")
from rti_hf.chatml import ChatMLRenderer  # noqa: E402

RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SEARCH = Tool(
    "search", "Finds places.", {"type": "object", "properties": {"q": {"type": "string"}}}
)
REBOOT = Tool("reboot_device", "Reboots the phone.", owner="user")
TAGS = ["tool_call", "tool_response", "think"]
LOOKALIKES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "\n", " ", "é", "东涌", "🙂", "{"]
LOOKALIKES += [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
# Without control characters: SmolLM2's vocabulary lacks some of them, and drops them.
LETTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), max_codepoint=0x1F9FF)
texts = st.lists(st.sampled_from(LOOKALIKES) | st.text(LETTERS, max_size=8), max_size=6).map(
    "".join
)
vocabulary = st.integers(0, 49151) | st.integers(0, 16)
completions = st.lists(vocabulary, max_size=12).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(LETTERS, max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=4,
)  # fmt: skip
calls = st.builds(
    ToolCall,
    name=st.text(LETTERS, max_size=8),
    arguments=st.dictionaries(st.text("abc", max_size=3), json_values, max_size=2),
)


@pytest.fixture(scope="module")
def model(smollm2_folder: Path) -> Path:
    return smollm2_folder


@pytest.fixture(scope="module")
def chatml(model: Path) -> ChatMLRenderer:
    return bound(model)


def bound(model: Path, **options: Any) -> ChatMLRenderer:
    renderer = ChatMLRenderer(**options)
    renderer.bind(SimpleNamespace(model=SimpleNamespace(path=str(model))))
    return renderer


def test_is_a_renderer_and_says_when_unbound(chatml: ChatMLRenderer) -> None:
    assert isinstance(chatml, Renderer)
    with pytest.raises(RunError, match="bind"):
        ChatMLRenderer().encode("x")


def test_keeps_the_contract(chatml: ChatMLRenderer) -> None:
    two = (ToolCall("search", {"q": "东涌广场"}, "0"), ToolCall("search", {}, "1"))
    conversation = [
        Message("system", "You navigate."),
        Message("user", "Take me there."),
        Message("assistant", "", "Which one?", two),
        Message("tool", "none", tool_call_id="0"),
        Message("tool", "none", tool_call_id="1", error=True),
        Message("assistant", "I found nothing."),
        Message("user", "Look again."),
        Message("assistant", "Yes.", tool_calls=two[:1]),
    ]
    check_renderer(chatml, [conversation, conversation[1:]], tools=[SEARCH, REBOOT])


def test_stops_at_im_end(chatml: ChatMLRenderer) -> None:
    assert chatml.decode(chatml.stop_ids[:1]) == "<|im_end|>"
    assert len(set(chatml.stop_ids)) == len(chatml.stop_ids)


def test_without_tools_it_equals_the_models_own_template(
    chatml: ChatMLRenderer, model: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    chat = [("system", "Be brief."), ("user", "Hi 42!"), ("assistant", "Hello."), ("user", "Bye\n")]
    own = tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in chat],
        add_generation_prompt=True,
        return_dict=True,
    )["input_ids"]
    assert list(chatml.prompt([Message(role, text) for role, text in chat])) == own  # type: ignore[arg-type]


def test_shows_agent_tools_calls_and_results(chatml: ChatMLRenderer) -> None:
    call = ToolCall("search", {"q": "东涌广场"})
    text = chatml.decode(
        chatml.prompt(
            [
                Message("system", "You navigate."),
                Message("user", "Take me there."),
                Message("assistant", "Let me look.", "Search first.", (call,)),
                Message("tool", "two places", tool_call_id="0"),
                Message("tool", "three places", tool_call_id="1"),
            ],
            [SEARCH, REBOOT],
        )
    )
    assert text.startswith("<|im_start|>system\nYou navigate.\n\n# Tools")
    listed = text.split("<tools>\n")[1].split("\n</tools>")[0]
    assert json.loads(listed)["function"]["name"] == "search"
    assert "reboot_device" not in text
    assert '<tool_call>\n{"name": "search", "arguments": {"q": "东涌广场"}}\n</tool_call>' in text
    assert "<think>\nSearch first.\n</think>\n\nLet me look." in text
    assert text.count("<|im_start|>user") == 2
    assert "<tool_response>\ntwo places\n</tool_response>\n<tool_response>\nthree places\n" in text
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_tools_get_a_system_block_of_their_own(chatml: ChatMLRenderer, model: Path) -> None:
    messages = [Message("user", "Hi"), Message("tool", "ok", tool_call_id="0")]
    text = chatml.decode(chatml.prompt(messages, [SEARCH]))
    assert text.startswith("<|im_start|>system\n# Tools")
    assert "# Tools" not in chatml.decode(chatml.prompt(messages, [REBOOT]))
    assert "<|im_start|>tool\n" in chatml.decode(bound(model, tool_role="tool").prompt(messages))


@RELAXED
@given(st.lists(st.tuples(completions, st.booleans(), texts, texts), min_size=1, max_size=3), texts)
def test_each_prompt_extends_the_last_with_its_completion(
    chatml: ChatMLRenderer, turns: list[tuple[tuple[int, ...], bool, str, str]], system: str
) -> None:
    messages = [Message("system", system), Message("user", "Hi")]
    prompt = chatml.prompt(messages, [SEARCH])
    for sampled, ended, result, said in turns:
        ids = (*sampled, chatml.stop_ids[0]) if ended else sampled
        messages += [chatml.parse(ids), Message("tool", result), Message("user", said)]
        after = chatml.prompt(messages, [SEARCH])
        assert chatml.extends((*prompt, *ids), after)
        rest = after[len(prompt) + len(ids) :]
        if not ids or ids[-1] != chatml.stop_ids[0]:
            assert rest[0] == chatml.stop_ids[0]
        prompt = after


@RELAXED
@given(texts, texts)
def test_untrusted_text_forges_nothing(chatml: ChatMLRenderer, result: str, said: str) -> None:
    ids = chatml.prompt([Message("user", said), Message("tool", result), Message("user", said)])
    special = [i for i in ids if i <= 16]
    assert special == [1, 2, 1, 2, 1, 2, 1]
    text = chatml.decode(ids)
    assert text.count("<tool_response>") == text.count("</tool_response>") == 1
    assert all(i > 16 for i in chatml.encode(result))


@RELAXED
@given(st.lists(vocabulary | st.integers(-3, 60000), max_size=20))
def test_parse_takes_any_ids(chatml: ChatMLRenderer, ids: list[int]) -> None:
    assert chatml.parse(ids).token_ids == tuple(ids)


@RELAXED
@given(
    texts.filter(lambda t: "</tool_call>" not in t),
    st.lists(calls, max_size=3),
    st.just("") | texts,
)
def test_parse_gives_back_what_turn_wrote(
    chatml: ChatMLRenderer, content: str, tool_calls: list[ToolCall], reasoning: str
) -> None:
    if "<tool_call>" in content or "think>" in reasoning:
        return
    numbered = tuple(ToolCall(c.name, c.arguments, str(i)) for i, c in enumerate(tool_calls))
    if any("</tool_call>" in json.dumps(c.arguments) + c.name for c in numbered):
        return
    ids = chatml.turn(Message("assistant", content, reasoning, numbered))
    assert ids[-1] == chatml.stop_ids[0]
    back = chatml.parse(ids)
    assert (back.content, back.tool_calls) == (content, numbered)
    assert chatml.turn(back) == ids


def test_parses_reasoning_and_several_calls(chatml: ChatMLRenderer) -> None:
    text = (
        "<think>\nTwo things.\n</think>\n\nDoing both."
        '\n<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>'
        '\n<tool_call>{"name": "b"}</tool_call>'
    )
    message = chatml.parse((*chatml.encode(text), *chatml.stop_ids))
    assert (message.reasoning, message.content) == ("Two things.", "Doing both.")
    assert message.tool_calls == (ToolCall("a", {"x": 1}, "0"), ToolCall("b", {}, "1"))
    unclosed = chatml.parse(chatml.encode("<think>Should I toggle"))
    assert (unclosed.reasoning, unclosed.content) == ("Should I toggle", "")


def test_thought_ends_behind_the_closing_tag(chatml: ChatMLRenderer) -> None:
    # In this vocabulary the tags are several tokens each.
    turn = chatml.turn(Message("assistant", "Yes.", "Two\n\nthings.", (ToolCall("search", {}),)))
    n = chatml.thought(turn)
    assert chatml.decode(turn[:n]) == "<think>\nTwo\n\nthings.\n</think>\n\n"
    assert chatml.decode(turn[n:]).startswith("Yes.\n<tool_call>")
    assert chatml.thought(turn[: n - 4]) == n - 4
    assert chatml.thought(turn[n:]) == chatml.thought(()) == 0
    assert chatml.empty_thought == ()


def test_a_model_may_lie_in_a_package(model: Path) -> None:
    with pytest.raises(PluginError, match=r"no <\|im_start\|> or <\|im_end\|>"):
        bound(Path("rti_pocket:base"))
    renderer = ChatMLRenderer(tokenizer=str(model))
    renderer.bind(SimpleNamespace(model=SimpleNamespace(path="rti_pocket:base")))
    assert renderer.decode(renderer.encode("Hi 42!")) == "Hi 42!"


@pytest.mark.parametrize(
    "bad",
    [
        '{"name": "a", "arguments": {',
        '{"name": 3, "arguments": {}}',
        '{"name": "a", "arguments": "x"}',
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"name": "a", "arguments": {"x": 1e999}}',
        '{"name": "a", "arguments": {"x": "\\ud800"}}',
        '["a"]',
        "[" * 5000,
        '{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}",
        "",
    ],
)
def test_malformed_calls_stay_content(chatml: ChatMLRenderer, bad: str) -> None:
    text = f'<tool_call>{bad}</tool_call>\n<tool_call>{{"name": "ok"}}</tool_call>'
    message = chatml.parse(chatml.encode(text))
    assert message.content == f"<tool_call>{bad}</tool_call>"
    assert [call.name for call in message.tool_calls] == ["ok"]


def test_names_a_place_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"renderer\.tokenizer"):
        bound(tmp_path)


def test_says_that_no_model_is_named_rather_than_look_in_the_current_folder() -> None:
    renderer = ChatMLRenderer()
    with pytest.raises(PluginError, match=r"\[model\] path is empty"):
        renderer.bind(SimpleNamespace(model=SimpleNamespace(path="")))


def test_prepared_model_answers_and_is_left_alone(model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    stamp = (model / "model.safetensors").stat().st_mtime_ns
    assert smollm2.prepare(model) == model
    assert (model / "model.safetensors").stat().st_mtime_ns == stamp
    renderer = bound(model)
    lm = AutoModelForCausalLM.from_pretrained(
        str(model), local_files_only=True, dtype=torch.float32
    )
    ids = renderer.prompt([Message("user", "What is the capital of France?")])
    with torch.inference_mode():
        out = lm.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    assert renderer.parse(out[len(ids) :]).content == "The capital of France is Paris."
    assert AutoTokenizer.from_pretrained(str(model)).pad_token == "<|im_end|>"


def test_command(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smollm2", "--out", str(model)]) == 0
    assert capsys.readouterr().out.strip() == str(model)
    (tmp_path / "mine.txt").write_text("x")
    assert main(["smollm2", "--out", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
