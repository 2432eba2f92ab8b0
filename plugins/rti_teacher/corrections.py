"""A teacher's reply → a turn of the student's: said in its format, tokenised once, frozen.

What the student's format cannot say exactly as the teacher said it is no correction: neither its
tokens nor the action that they stand for would be the teacher's.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any

from rti import Ids, Message, NoCorrection, Renderer, Tool, ToolCall
from rti.roles import without_thought
from rti_teacher.wire import Reply, read_call_lines


def turn_of(reply: Reply, text: str, renderer: Renderer, tools: Sequence[Tool]) -> Message:
    """The turn that a reply stands for; `text` is its text up to the end of the turn.

    Raises:
        NoCorrection: "unfinished", "content-filter", "bad-tool-call", "empty", or
            "not-in-vocabulary" (words that the student has no tokens for).
    """
    if reply.finish == "length":
        raise NoCorrection("unfinished")
    if reply.finish == "content_filter":
        raise NoCorrection("content-filter")
    said = without_thought(text)
    if reply.calls:
        calls = tuple(_call(i, *call) for i, call in enumerate(reply.calls))
        return Message("assistant", said.strip(), tool_calls=calls)
    ids = renderer.encode(said)
    if _bare(renderer.decode(ids)) != _bare(said):
        raise NoCorrection("not-in-vocabulary")
    heard = renderer.parse((*ids, *renderer.stop_ids[:1]))  # some formats are read from the end
    content, calls = heard.content.strip(), heard.tool_calls
    if not calls:
        content, calls = read_call_lines(content, tools)
    if not content and not calls:
        raise NoCorrection("empty")
    return Message("assistant", content, tool_calls=calls)


def frozen_turn(message: Message, renderer: Renderer) -> tuple[Ids, Message]:
    """Ids of the turn, and the turn as the environment will read it off them.

    Raises:
        NoCorrection: "lost-in-rendering" when they do not say what the message says.
    """
    ids = tuple(renderer.turn(message))
    heard = renderer.parse(ids)
    if _bare(heard.content) != _bare(message.content) or _calls(heard) != _calls(message):
        raise NoCorrection("lost-in-rendering")
    return ids, heard


def _call(place: int, name: str, arguments: str) -> ToolCall:
    try:
        parsed = json.loads(arguments)
        json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()  # no NaN, no half signs
    except (ValueError, RecursionError):
        raise NoCorrection("bad-tool-call") from None
    if not isinstance(parsed, dict):
        raise NoCorrection("bad-tool-call")
    return ToolCall(name, parsed, str(place))


def _calls(message: Message) -> list[tuple[str, Any]]:
    return [(c.name, dict(c.arguments)) for c in message.tool_calls]


def _bare(text: str) -> str:
    """Text without its spacing: renderers have their own, and some tokenizers normalise."""
    return "".join(unicodedata.normalize("NFC", text).split())
