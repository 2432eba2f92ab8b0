"""What goes out to an endpoint, and what a reply says.

Servers read special tokens out of text: `<|im_end|>` in what a customer wrote would end the
message there. So in everything that goes out as chat a space breaks them up ("< |im_end|>").
Nothing that goes out is trained on: the student's own prompts stay as they are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from rti import Ids, Message, Renderer, Tool, ToolCall

_WORDS = (
    "s|bos|eos|pad|unk|mask|think|tool_call|tool_calls|tool_response|tools|start_of_turn|"
    "end_of_turn|endoftext|im_start|im_end|image|audio|function_call|seed:[a-z_]+"
)
SPECIAL = re.compile(
    # <|name|> of most families, DeepSeek's <｜name｜>, </s> and its like, [INST], <<SYS>>
    rf"<(?=[|｜])|<(?=/?(?:{_WORDS})\s*>)|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS|SYSTEM_PROMPT|ARGS|IMG)\])",
    re.IGNORECASE,
)
"""The first character of what a server may take for a special token."""
_TOKEN = re.compile(r"<[|｜][^<>]*>|</?[A-Za-z_]+>|\[/?[A-Z_]+\]")
"""A whole token that stands for itself."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL_LINE = re.compile(r"^call (\{.*\})\s*$", re.MULTILINE)


@frozen
class Reply:
    """A completion. `calls` are (name, arguments as JSON text); thinking is left out."""

    text: str
    finish: str
    calls: tuple[tuple[str, str], ...] = ()
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    raw: Mapping[str, Any] = field(factory=dict, repr=False)


def broken_up(text: str) -> str:
    """Text in which nothing is a special token any more."""
    return SPECIAL.sub(lambda m: m[0] + " ", text)


def chat_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """A role's conversation as an endpoint takes it."""
    return [{"role": m.role, "content": broken_up(m.content)} for m in messages]


def completion_prompt(renderer: Renderer, ids: Ids) -> str | None:
    """A student's prompt as text; None where text in it would forge a special token.

    In tokens the two are apart; as text they are not. So every special token that is seen in the
    text must be one in the ids.
    """
    text = renderer.decode(ids)
    seen = Counter(_TOKEN.findall(text))
    if seen:
        names = {i: renderer.decode([i]).strip() for i in set(ids)}
        seen.subtract(Counter(names[i] for i in ids if names[i] in seen))
    forged = [token for token, n in seen.items() if n > 0 and SPECIAL.match(token)]
    return None if forged else text


def conversation(
    messages: Sequence[Message], tools: Sequence[Tool], renderer: Renderer, native: bool = True
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The body of a chat request, and another one for an endpoint that refuses its tools.

    Tools are for the Corrector alone: with `native` they are offered as such, else the last
    message says how the student writes a call.
    """
    sent: list[dict[str, str]] = chat_messages(messages)
    if not any(t.owner == "agent" for t in tools):
        return {"messages": sent}, None
    last = {**sent[-1], "content": sent[-1]["content"] + call_format(renderer)}
    plain = {"messages": [*sent[:-1], last]}
    offers = offered(tools) if native else []
    return ({"messages": sent, "tools": offers}, plain) if offers else (plain, None)


def stop_words(renderer: Renderer) -> list[str]:
    """What ends a turn, as text. Endpoints take four at most."""
    return [w for w in (renderer.decode([i]).strip() for i in renderer.stop_ids) if w][:4]


def cut(renderer: Renderer, text: str) -> str:
    """Text up to the end of the turn, should a server leave that in."""
    for stop in stop_words(renderer):
        text = text.partition(stop)[0]
    return text


def offered(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The agent's tools as an endpoint takes them; none when a name would be refused."""
    own = [t for t in tools if t.owner == "agent"]
    if not all(_NAME.fullmatch(t.name) for t in own):
        return []
    return [
        {
            "type": "function",
            "function": {
                "name": t.name,
                "description": t.description,
                "parameters": dict(t.parameters) or {"type": "object", "properties": {}},
            },
        }
        for t in own
    ]


def call_format(renderer: Renderer) -> str:
    """How the student writes a tool call, for a teacher that must write it as text; or ""."""
    call = ToolCall("NAME", {"ARGUMENT": "VALUE"})
    ids = renderer.turn(Message("assistant", tool_calls=(call,)))
    written = renderer.decode([i for i in ids if i not in renderer.stop_ids]).strip()
    if "NAME" not in written or "ARGUMENT" not in written:
        return ""
    return f"\n\nThe format of a tool call, with everything in capitals replaced:\n{written}"


def read_chat(body: Any) -> Reply:
    """The answer of /chat/completions.

    Raises:
        ValueError: it is none; the words say why.
    """
    choice, usage = _choice(body)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise ValueError("no message in it")
    calls = []
    listed = message.get("tool_calls") or []
    if not isinstance(listed, list):
        raise ValueError("tool calls that are no list")
    for call in listed:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError("a tool call without a name")
        arguments = function.get("arguments") or "{}"
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append((function["name"], text))
    return Reply(_text(message.get("content")), _finish(choice), tuple(calls), *usage, raw=choice)


def read_completion(body: Any) -> Reply:
    """The answer of /completions. Raises as `read_chat`."""
    choice, usage = _choice(body)
    if not isinstance(choice.get("text"), str):
        raise ValueError("no text in it")
    return Reply(choice["text"], _finish(choice), (), *usage, raw=choice)


def read_call_lines(text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
    """Lines `call {"name": …, "arguments": …}`, as the transcripts in role prompts have them."""
    names = {t.name for t in tools if t.owner == "agent"}
    calls: list[ToolCall] = []

    def take(found: re.Match[str]) -> str:
        try:
            call = json.loads(found[1])
        except (ValueError, RecursionError):
            return found[0]
        arguments = call.get("arguments", {})
        if call.get("name") not in names or not isinstance(arguments, dict):
            return found[0]
        calls.append(ToolCall(call["name"], arguments, str(len(calls))))
        return ""

    return _CALL_LINE.sub(take, text).strip(), tuple(calls)


def _choice(body: Any) -> tuple[Mapping[str, Any], tuple[int | None, int | None]]:
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise ValueError("no choices in it")
    usage = body.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    return choices[0], (_count(counts, "prompt_tokens"), _count(counts, "completion_tokens"))


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else None


def _finish(choice: Mapping[str, Any]) -> str:
    reason = choice.get("finish_reason")
    return reason if reason in ("length", "content_filter") else "stop"


def _text(content: Any) -> str:
    if isinstance(content, list):  # some servers answer in parts
        parts = [p.get("text") for p in content if isinstance(p, Mapping)]
        return "".join(p for p in parts if isinstance(p, str))
    if content is None:
        return ""
    if not isinstance(content, str):
        raise ValueError("content is no text")
    return content
