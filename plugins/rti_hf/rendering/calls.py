"""Two ways of writing tool calls: Hermes (JSON) and Qwen3.5 (nested tags). Strictly read.

A block that does not parse is no call and stays in the content: nothing is guessed into a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rti import Tool, ToolCall
from rti_hf.rendering.encoder import Markup, Piece
from rti_hf.rendering.values import listing, strict_json, typed

HERMES_INTRO = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
HERMES_FORMAT = """
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""

TAGS_INTRO = """# Tools

You have access to the following functions:

<tools>
"""
TAGS_FORMAT = """
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must \
be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the \
function call, but NOT after
- If there is no function call available, answer the question like normal with your current \
knowledge and do not tell the user about function calls
</IMPORTANT>"""

_BLOCK = re.compile(r"\n?<tool_call>(.*?)</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)

ReadCall = Callable[[str, str], ToolCall | None]


def read_calls(text: str, read: ReadCall) -> tuple[str, tuple[ToolCall, ...]]:
    """Content without the calls in it, and the calls, numbered "0", "1", … as they stand.

    One newline before a block belongs to it.
    """
    calls: list[ToolCall] = []

    def take(found: re.Match[str]) -> str:
        call = read(found[1], str(len(calls)))
        if call is None:
            return found[0]
        calls.append(call)
        return ""

    return _BLOCK.sub(take, text), tuple(calls)


def hermes_tools(tools: list[Tool]) -> tuple[Piece, ...]:
    """The section of a system message that lists tools, for Hermes calls."""
    return Markup(HERMES_INTRO), listing(tools), Markup(HERMES_FORMAT)


def hermes_write(calls: Sequence[ToolCall], after: str) -> list[Piece]:
    """Calls as JSON objects, each on lines of its own."""
    pieces: list[Piece] = []
    for call in calls:
        body = {"name": call.name, "arguments": dict(call.arguments)}
        line = "\n" if after or pieces else ""
        pieces += [
            Markup(f"{line}<tool_call>\n"),
            json.dumps(body, ensure_ascii=False),
            Markup("\n</tool_call>"),
        ]
    return pieces


def hermes_read(text: str, call_id: str) -> ToolCall | None:
    """A JSON object with a name and an object of arguments, or None."""
    try:
        call = strict_json(text)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ToolCall(call["name"], arguments, call_id) if isinstance(arguments, dict) else None


def tags_tools(tools: list[Tool]) -> tuple[Piece, ...]:
    """The section of a system message that lists tools, for calls in nested tags."""
    return Markup(TAGS_INTRO), listing(tools), Markup(TAGS_FORMAT)


def tags_write(calls: Sequence[ToolCall], after: str, value: Callable[[Any], str]) -> list[Piece]:
    """Calls in nested tags; `value` writes one argument.

    A value that holds `</parameter>` cannot be told from the end of it: the format has no escape,
    and `tags_read` refuses such a call.
    """
    pieces: list[Piece] = []
    for call in calls:
        line = "\n" if pieces else "\n\n" if after else ""
        pieces += [Markup(f"{line}<tool_call>\n<function="), call.name, Markup(">\n")]
        for name, argument in call.arguments.items():
            pieces += [Markup("<parameter="), name, Markup(">\n"), value(argument)]
            pieces.append(Markup("\n</parameter>\n"))
        pieces.append(Markup("</function>\n</tool_call>"))
    return pieces


def tags_read(text: str, call_id: str, schemas: Mapping[str, Mapping[str, Any]]) -> ToolCall | None:
    """One function with its parameters, or None for anything else, a parameter given twice too.

    Args:
        text: what stands between `<tool_call>` and `</tool_call>`.
        call_id: the id of the call.
        schemas: JSON schemas of parameters by tool and parameter, for their types.
    """
    function = _FUNCTION.fullmatch(text)
    if function is None:
        return None
    name, rest = function[1], function[2]
    known = schemas.get(name, {})
    arguments: dict[str, Any] = {}
    at = 0
    while found := _PARAMETER.match(rest, at):
        if found[1] in arguments:
            return None
        arguments[found[1]] = typed(found[2], known.get(found[1]))
        at = found.end()
    return None if rest[at:].strip() else ToolCall(name, arguments, call_id)
