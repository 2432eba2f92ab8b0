"""The Qwen renderers against Qwen's own chat templates, and against the renderer's contract."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rti import Message, PluginError, Renderer, RunError, Tool, ToolCall
from rti.registry import Registry
from rti.testing import check_renderer

pytest.importorskip("transformers", reason="needs the extra hf")
from qwen_tokenizer import ADDED, SPECIAL, make_qwen_tokenizer

from rti_hf.chatml import ChatMLRenderer
from rti_hf.qwen import Qwen3Renderer, Qwen35Renderer, Qwen36Renderer
from rti_hf.rendering.base import ChatRenderer

TEMPLATES = Path(__file__).parents[1] / "data" / "chat_templates"
SEARCH = Tool(
    "search",
    "Finds places («близко», 近く).",
    {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "zip": {"type": "string"},
            "limit": {"type": "integer"},
            "open": {"type": "boolean"},
            "within": {"type": ["number", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["q"],
    },
)
REBOOT = Tool("reboot_device", "Reboots the phone.", owner="user")
SYSTEM = Message("system", "You navigate. Be brief.")
ASK = Message("user", "Take me to 东涌广场 🙂")


def said(content: str, reasoning: str = "", *calls: ToolCall) -> Message:
    return Message("assistant", content, reasoning, calls)


def call(number: int = 0, **arguments: Any) -> ToolCall:
    return ToolCall("search", arguments, str(number))


def result(content: str, number: int = 0) -> Message:
    return Message("tool", content, tool_call_id=str(number))


PARALLEL = said(
    "Let me look.", "Two searches:\nname, then zip.", call(q="东涌"), call(1, q="a\nb", zip="0451")
)
CONVERSATIONS: dict[str, list[Message]] = {
    "user alone": [ASK],
    "system and user": [SYSTEM, ASK],
    "small talk": [SYSTEM, ASK, said("Which city?"), Message("user", "Hong Kong")],
    "parallel calls, results in a row": [
        SYSTEM, ASK, PARALLEL, result('{"hits": []}'), result("none\nat all", 1),
    ],
    "thinking in an earlier turn": [
        SYSTEM, ASK, PARALLEL, result("one"), result("two", 1), said("Found it.", "Done."),
        Message("user", "And now?"), said("", "Again.", call(q="x", limit=3)), result("three"),
    ],
    "calls without content": [ASK, said("", "", call(q="x")), result("nothing")],
    "several user turns": [
        ASK, said("A?", "First."), Message("user", "b"), said("C?", "Then."), Message("user", "d"),
    ],
}  # fmt: skip
TEMPLATE_OF = {
    "qwen3": ("qwen3.jinja", Qwen3Renderer),
    "qwen3.5": ("qwen3_5_think.jinja", Qwen35Renderer),
    "qwen3.6": ("qwen3_6.jinja", Qwen36Renderer),
}
FAMILIES = list(TEMPLATE_OF)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokenizer like Qwen's; RTI_QWEN_TOKENIZER names a folder with a real one."""
    if real := os.environ.get("RTI_QWEN_TOKENIZER"):
        return Path(real)
    return make_qwen_tokenizer(tmp_path_factory.mktemp("qwen") / "tokenizer")


@pytest.fixture(scope="session")
def bound(folder: Path) -> Any:
    made: dict[str, ChatRenderer] = {}

    def build(family: str, **options: Any) -> Any:
        kind = ChatMLRenderer if family == "chatml" else TEMPLATE_OF[family][1]
        key = repr((family, options))
        if key not in made:
            made[key] = kind(**options)
            made[key].bind(SimpleNamespace(model=SimpleNamespace(path=str(folder))))
        return made[key]

    return build


@pytest.fixture(scope="session")
def template(folder: Path) -> Any:
    """The ids (or text) that a model's own template makes of a conversation."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)

    def render(
        file: str, messages: Sequence[Message], tools: Sequence[Tool] = (), text: bool = False,
        prompt: bool = True, **options: Any,
    ) -> Any:  # fmt: skip
        out = tokenizer.apply_chat_template(
            [as_dict(m) for m in messages],
            tools=[json.loads(json.dumps(as_tool(t))) for t in tools] or None,
            chat_template=(TEMPLATES / file).read_text(encoding="utf-8"),
            add_generation_prompt=prompt,
            tokenize=not text,
            **options,
        )
        return out if text else tuple(out["input_ids"])

    return render


def as_tool(tool: Tool) -> dict[str, Any]:
    shape = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": shape}


def as_dict(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [
            {"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}}
            for c in message.tool_calls
        ]
    return made


# ------------------------------------------------------- equal to the model's own template


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("tools", [(), (SEARCH, Tool("noop"))], ids=["no-tools", "tools"])
@pytest.mark.parametrize("enable", [True, False], ids=["thinks", "thinks-not"])
@pytest.mark.parametrize("family", FAMILIES)
def test_strip_equals_the_models_own_template(
    bound: Any, template: Any, family: str, enable: bool, tools: tuple[Tool, ...], conversation: str
) -> None:
    messages = CONVERSATIONS[conversation]
    renderer = bound(family, thinking="strip", enable_thinking=enable)
    own = template(TEMPLATE_OF[family][0], messages, tools, enable_thinking=enable)
    assert renderer.prompt(messages, (*tools, REBOOT)) == own


def test_small_qwen35_differs_in_the_default_alone(bound: Any, template: Any) -> None:
    messages = CONVERSATIONS["thinking in an earlier turn"]
    own = template("qwen3_5_nothink.jinja", messages, [SEARCH])
    renderer = bound("qwen3.5", thinking="strip", enable_thinking=False)
    assert renderer.prompt(messages, [SEARCH]) == own


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_keep_is_the_templates_preserve_thinking(
    bound: Any, template: Any, conversation: str
) -> None:
    messages = CONVERSATIONS[conversation]
    own = template("qwen3_6.jinja", messages, [SEARCH], preserve_thinking=True)
    assert bound("qwen3.6", thinking="keep").prompt(messages, [SEARCH]) == own


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_chatml_is_the_template_of_the_instruct_models(
    bound: Any, template: Any, conversation: str
) -> None:
    messages = [evolve(m, reasoning="") for m in CONVERSATIONS[conversation]]
    own = template("qwen3_instruct_2507.jinja", messages, [SEARCH])
    assert bound("chatml").prompt(messages, [SEARCH]) == own


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_is_what_the_template_writes_last(
    bound: Any, template: Any, family: str, enable: bool
) -> None:
    renderer = bound(family, enable_thinking=enable)
    for message in (PARALLEL, said("Yes.", "Sure.\n\nOh."), said("Yes."), said("", "", call(q=""))):
        if message.reasoning and not enable:
            continue  # the prompt has closed the thinking already
        before = [SYSTEM, ASK]
        whole = template(TEMPLATE_OF[family][0], [*before, message], [SEARCH], True, False)
        turn = (*renderer.prompt(before, [SEARCH]), *renderer.turn(message))
        assert renderer.decode(turn) + "\n" == whole


@pytest.mark.parametrize("family", FAMILIES)
def test_strip_renders_sampled_turns_as_the_template_renders_their_text(
    bound: Any, template: Any, family: str
) -> None:
    renderer = bound(family, thinking="strip")
    messages = CONVERSATIONS["thinking in an earlier turn"]
    sampled = [
        evolve(m, token_ids=renderer.turn(m), content="", reasoning="", tool_calls=())
        if m.role == "assistant" else m
        for m in messages
    ]  # fmt: skip
    text = renderer.decode(renderer.prompt(sampled, [SEARCH]))
    assert text == template(TEMPLATE_OF[family][0], messages, [SEARCH], text=True)


@pytest.mark.parametrize(("family", "shown"), [("qwen3.5", "True"), ("qwen3.6", "true")])
def test_arguments_are_written_as_the_template_writes_them(
    bound: Any, template: Any, family: str, shown: str
) -> None:
    arguments = {"q": " 'x' \n", "open": True, "within": None, "limit": -3, "tags": ["é", "b"]}
    messages = [ASK, said("", "So.", call(**arguments), call(1, within=0.5)), result("ok")]
    own = template(TEMPLATE_OF[family][0], messages, [SEARCH])
    renderer = bound(family, thinking="strip")
    assert renderer.prompt(messages, [SEARCH]) == own
    assert f"<parameter=open>\n{shown}\n</parameter>" in renderer.decode(own)


# ------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("thinking", ["keep", "strip"])
@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_keeps_the_contract(bound: Any, family: str, enable: bool, thinking: str) -> None:
    renderer = bound(family, enable_thinking=enable, thinking=thinking)
    assert isinstance(renderer, Renderer)
    with_turns = [c for c in CONVERSATIONS.values() if any(m.role == "assistant" for m in c)]
    check_renderer(renderer, with_turns, tools=[SEARCH, REBOOT], prefix=thinking == "keep")


def test_are_found_by_name_and_say_what_is_missing(
    bound: Any, folder: Path, tmp_path: Path
) -> None:
    found = Registry.load().names("renderer")
    assert {"chatml", *FAMILIES} <= set(found)
    with pytest.raises(RunError, match="bind"):
        Qwen3Renderer().encode("x")
    with pytest.raises(PluginError, match=r"renderer\.tokenizer"):
        Qwen3Renderer().bind(SimpleNamespace(model=SimpleNamespace(path=str(tmp_path))))
    with pytest.raises(PluginError, match="no package 'nowhere'"):
        Qwen3Renderer().bind(SimpleNamespace(model=SimpleNamespace(path="nowhere:base")))
    with pytest.raises(PluginError, match=r"has no .*im_start.* choose another renderer"):
        Qwen3Renderer().bind(SimpleNamespace(model=SimpleNamespace(path="rti_pocket:base")))
    assert bound("qwen3").decode(bound("qwen3").stop_ids) == "<|im_end|>"


# ------------------------------------------------------------- sampled ids and the prefix

# Ids of the small vocabulary, added tokens among them.
sampled_ids = st.lists(st.integers(0, 620), max_size=14).map(tuple)
words = st.lists(
    st.sampled_from([*SPECIAL, *ADDED, "\n", " ", ".", "é", "东涌", "<|im_", "end|>", "<", "x"]),
    max_size=6,
).map("".join)
FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FEW
@given(st.lists(st.tuples(sampled_ids, st.booleans(), words, words), min_size=1, max_size=3))
@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_keep_always_extends(
    bound: Any, family: str, enable: bool, turns: list[tuple[tuple[int, ...], bool, str, str]]
) -> None:
    renderer = bound(family, enable_thinking=enable)
    messages = [SYSTEM, ASK]
    prompt = renderer.prompt(messages, [SEARCH])
    for ids, ended, seen, heard in turns:
        ids = (*ids, renderer.stop_ids[0]) if ended else ids
        messages += [renderer.parse(ids), result(seen), Message("user", heard)]
        after = renderer.prompt(messages, [SEARCH])
        assert renderer.extends((*prompt, *ids), after)
        prompt = after


@pytest.mark.parametrize("family", FAMILIES)
def test_strip_breaks_the_prefix_after_a_user_message_and_nowhere_else(
    bound: Any, family: str
) -> None:
    renderer = bound(family, thinking="strip")
    messages = [SYSTEM, ASK]
    first = renderer.prompt(messages)
    turn = renderer.turn(said("", "Let me look.", call(q="x")))
    messages += [renderer.parse(turn), result("none")]
    second = renderer.prompt(messages)
    assert renderer.extends((*first, *turn), second)
    answer = renderer.turn(said("Which city?", "None there."))
    messages += [renderer.parse(answer), Message("user", "Hong Kong")]
    third = renderer.prompt(messages)
    assert not renderer.extends((*second, *answer), third)
    assert "Let me look" in renderer.decode(second)
    assert "<think>\n" not in renderer.decode(third).split("assistant\n", 1)[1][:-20]
    # What is left of a stripped turn are its own sampled ids, not its text rendered again.
    kept = answer[renderer.thought(answer) :]
    assert renderer.decode(kept) == "Which city?<|im_end|>"
    assert any(third[i : i + len(kept)] == kept for i in range(len(third)))


@FEW
@given(words, words)
@pytest.mark.parametrize("family", ["chatml", *FAMILIES])
def test_text_forges_no_token(bound: Any, family: str, seen: str, heard: str) -> None:
    renderer = bound(family)
    added = {renderer._tokenizer.convert_tokens_to_ids(t) for t in (*SPECIAL, *ADDED)}

    def special(text: str) -> list[int]:
        messages = [Message("system", text), Message("user", text), result(text), ASK]
        return [i for i in renderer.prompt(messages) if i in added]

    assert special(heard) == special(seen) == special("x")
    assert not added & set(renderer.encode(seen))
    assert renderer.decode(renderer.encode(seen)) == seen
    # A message from elsewhere (a teacher's) says no more than its own block, thinking and calls.
    plain = [i for i in renderer.turn(said(heard, "x", call(q=heard))) if i in added]
    assert len(plain) <= 5


# --------------------------------------------------------------------- thinking and calls


@pytest.mark.parametrize("family", ["chatml", *FAMILIES])
def test_thought_counts_the_block_with_its_tag_and_newlines(bound: Any, family: str) -> None:
    renderer = bound(family)
    turn = renderer.turn(said("Yes.", "Two\n\nthings.", call(q="x")))
    n = renderer.thought(turn)
    assert renderer.decode(turn[:n]).endswith("Two\n\nthings.\n</think>\n\n")
    assert renderer.decode(turn[n:]).startswith("Yes.")
    unclosed = turn[: n - 3]
    assert renderer.thought(unclosed) == len(unclosed)
    assert renderer.parse(unclosed).content == ""
    assert renderer.thought(()) == 0
    inside = family in ("qwen3.5", "qwen3.6")  # their prompts open the block
    plain = renderer.encode("Yes. </think> no")
    assert renderer.thought(plain) == (len(renderer.encode("Yes. </think>")) if inside else 0)


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_without_its_thought_is_whole_behind_an_empty_one(
    bound: Any, family: str, enable: bool
) -> None:
    renderer = bound(family, enable_thinking=enable)
    message = said("Yes.", "Well.", call(q="x"))
    turn = renderer.turn(message)
    rest = (*renderer.empty_thought, *turn[renderer.thought(turn) :])
    back = renderer.parse(rest)
    assert (back.content, back.reasoning, back.tool_calls) == ("Yes.", "", message.tool_calls)
    assert bool(renderer.empty_thought) is enable
    assert rest == renderer.turn(evolve(message, reasoning=""))


VALUES: dict[str, Any] = {
    "q": "5", "zip": "00451", "limit": 7, "open": False, "within": None, "tags": ["a", "ü"],
    "where": "None such",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_come_back_in_the_types_of_the_schema(bound: Any, family: str) -> None:
    renderer = bound(family)
    renderer.prompt([ASK], [SEARCH])
    message = said("ok", "", call(**VALUES), call(1, q="two\nlines", within=0.25, where=None))
    back = renderer.parse(renderer.turn(message))
    assert back.tool_calls == message.tool_calls
    assert [type(v) for v in back.tool_calls[0].arguments.values()] == [
        type(v) for v in VALUES.values()
    ]


def test_without_a_schema_an_argument_is_what_it_reads_as(folder: Path) -> None:
    renderer = Qwen35Renderer()
    renderer.bind(SimpleNamespace(model=SimpleNamespace(path=str(folder))))
    values = {"n": 3, "s": "three", "b": True, "o": {"a": [None]}, "i": "1e999", "z": "-"}
    back = renderer.parse(renderer.turn(said("", "", ToolCall("unknown", values))))
    assert back.tool_calls == (ToolCall("unknown", values, "0"),)


@pytest.mark.parametrize(
    "block",
    [
        "",
        "<function=search>",
        "<function=search>\n<parameter=q>\nx\n</function>",
        "<function=search>\n<parameter=q>\nx\n</parameter>\nand more\n</function>",
        "<function=search>\n<parameter=q>\na</parameter>b\n</parameter>\n</function>",
        "<function=search>\n<parameter=q>\n1\n</parameter><parameter=q>\n2\n</parameter></function>",
        '{"name": "search", "arguments": {}}',
    ],
)
def test_what_is_no_call_in_tags_stays_content(bound: Any, block: str) -> None:
    renderer = bound("qwen3.5", enable_thinking=False)
    good = "<tool_call>\n<function=ok>\n</function>\n</tool_call>"
    message = renderer.parse(renderer.encode(f"<tool_call>{block}</tool_call>\n{good}"))
    assert message.content == f"<tool_call>{block}</tool_call>"
    assert message.tool_calls == (ToolCall("ok", {}, "0"),)


@FEW
@given(st.lists(st.integers(-3, 700), max_size=20))
@pytest.mark.parametrize("family", ["chatml", *FAMILIES])
def test_odd_ids_are_parsed_and_measured(bound: Any, family: str, ids: list[int]) -> None:
    renderer = bound(family)
    assert renderer.parse(ids).token_ids == tuple(ids)
    assert 0 <= renderer.thought(ids) <= len(ids)
