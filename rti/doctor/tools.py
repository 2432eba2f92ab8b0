"""Tools and their calls: are they in the prompt, and do calls come back through the renderer?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve

from rti.doctor.finding import Finding
from rti.doctor.parts import Parts
from rti.doctor.schemas import ODD, PLAIN, arguments
from rti.interfaces import Renderer
from rti.types import Message, Tool, ToolCall

ODD_TEXTS = (ODD, "  spaces\t\ttabs  ", "null\u200bwidth, é and e\u0301", "İstanbul ß ﬁ ½")


def closed(renderer: Renderer) -> bool:
    """Whether it knows a fixed list of words, so that the policy was trained for its grammar."""
    return not any(renderer.decode(renderer.encode(t)).split() == t.split() for t in ODD_TEXTS)


def named(parts: Parts, opening: Sequence[Message], tools: Sequence[Tool]) -> Finding:
    """Every tool of the agent stands in the rendered prompt."""
    renderer: Renderer = parts["renderer"]
    text = renderer.decode(renderer.prompt(opening, tools))
    mine = [tool for tool in tools if tool.owner == "agent"]
    theirs = [tool for tool in tools if tool.owner != "agent"]
    missing = [tool.name for tool in mine if not _stands_in(tool.name, text)]
    if missing and closed(renderer):
        return Finding(
            "note",
            "tools",
            f"{len(missing)} of {len(mine)} tools of the agent are not named in the prompt: in the "
            "closed vocabulary of this renderer they are words that the policy was trained on",
        )
    if missing:
        return Finding(
            "error",
            "tools",
            f"{len(missing)} of {len(mine)} tools of the agent are not in the rendered prompt: the "
            "policy cannot know of them. The renderer drops tools (chat templates often do so "
            "silently): choose another renderer, or name the tools in the system message.",
            tuple(missing),
        )
    words = f"all {len(mine)} tools of the agent are named in the prompt" if mine else "no tools"
    if theirs:
        named = sum(_stands_in(tool.name, text) for tool in theirs)
        words += (
            f"; of {len(theirs)} on the user's side {named or 'none'} "
            f"{'is' if named < 2 else 'are'} (the agent asks for those, it cannot call them)"
        )
    return Finding("ok", "tools", words)


def _stands_in(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def calls(parts: Parts, opening: Sequence[Message], tools: Sequence[Tool]) -> Iterator[Finding]:
    """What `turn` writes of a call `parse` reads: real calls, made-up ones, several, with text."""
    renderer: Renderer = parts["renderer"]
    mine = [tool for tool in tools if tool.owner == "agent"]
    if not mine:
        return
    gold = [turn.message for turn in parts.episode.play.turns] if parts.episode else []
    gold = [message for message in gold if message.tool_calls]
    broken = list(filter(None, (_returns(renderer, message) for message in gold)))
    if broken:
        yield Finding(
            "error",
            "calls",
            f"{len(broken)} of {len(gold)} tool calls of the reference agent do not come back "
            "through turn and parse: the environment would see other calls than the policy made",
            tuple(broken),
        )
        return
    if closed(renderer):
        yield Finding(
            "ok" if gold else "note",
            "calls",
            f"{len(gold)} calls of the reference agent come back through turn and parse; made-up "
            "ones are not tried with a closed vocabulary",
        )
        return
    plain, odd = (
        [_returns(renderer, _calling(tool, text)) for tool in mine] for text in (PLAIN, ODD)
    )
    lost = list(filter(None, plain))
    if lost:
        yield Finding(
            "error",
            "calls",
            f"calls of {len(lost)} of {len(mine)} tools, with arguments made from their schemas, "
            "do not come back through turn and parse: the policy could not use these tools. The "
            "renderer does not speak this format.",
            tuple(lost),
        )
        return
    strange = list(filter(None, odd))
    if strange:
        yield Finding(
            "warning",
            "calls",
            f"calls of {len(strange)} of {len(mine)} tools do not come back when their arguments "
            "hold quotes, line breaks or letters beyond ASCII",
            tuple(strange),
        )
        return
    beside = [
        _returns(renderer, evolve(_calling(mine[0], PLAIN), content="I look it up.")),
        _returns(renderer, Message("assistant", tool_calls=_calls_of(mine[0], mine[-1]))),
    ]
    if any(beside):
        yield Finding(
            "warning",
            "calls",
            "single calls come back through turn and parse, but text beside a call or two calls "
            "in one turn do not",
            tuple(filter(None, beside)),
        )
        return
    yield Finding(
        "ok",
        "calls",
        f"calls of all {len(mine)} tools come back through turn and parse, with odd arguments, "
        f"with text beside them and two in a turn"
        + (f"; so do {len(gold)} of the reference agent" if gold else ""),
    )


def _calling(tool: Tool, text: str) -> Message:
    return Message("assistant", tool_calls=(ToolCall(tool.name, arguments(tool.parameters, text)),))


def _calls_of(*tools: Tool) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(tool.name, arguments(tool.parameters), str(i)) for i, tool in enumerate(tools)
    )


def _returns(renderer: Renderer, message: Message) -> str:
    """Nothing when `parse` gives back what `turn` was given; else both, in words."""
    back = renderer.parse(renderer.turn(message))
    if closed(renderer):  # the words beside a call may be lost, as `text` says; the call may not
        message, back = evolve(message, content=""), evolve(back, content="")
    if _said(back) == _said(message):
        return ""
    return f"{short(str(_said(message)))} → {short(str(_said(back)))}"


def _said(message: Message) -> tuple[Any, ...]:
    calls = [(call.name, dict(call.arguments)) for call in message.tool_calls]
    return (*calls, message.content) if message.content else tuple(calls)


def short(text: str, most: int = 120) -> str:
    """One line of a text."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
