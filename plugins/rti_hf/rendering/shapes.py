"""Our records in the dictionaries that chat templates and the library `renderers` take."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rti import Message, Tool, ToolCall


def message_dict(
    messages: Sequence[Message], index: int, plain: Callable[[str], str]
) -> dict[str, Any]:
    """A message in OpenAI's shape, as text that has gone through `plain`.

    Calls are named `functions.NAME:NUMBER`, counted over the conversation: Kimi's format shows
    no other name of the tool than this one.
    """
    message = messages[index]
    shape: dict[str, Any] = {"role": message.role, "content": plain(message.content)}
    if message.reasoning:
        shape["reasoning_content"] = plain(message.reasoning)
    if message.tool_calls:
        shape["tool_calls"] = [
            {
                "type": "function",
                "id": f"functions.{call.name}:{_count(messages, index) + number}",
                "function": {
                    "name": plain(call.name),
                    "arguments": _mapped(dict(call.arguments), plain),
                },
            }
            for number, call in enumerate(message.tool_calls)
        ]
    if message.role == "tool":
        asked = next((i for i in range(index, -1, -1) if messages[i].tool_calls), index)
        ids = [call.id for call in messages[asked].tool_calls]
        number = ids.index(message.tool_call_id) if message.tool_call_id in ids else -1
        name = messages[asked].tool_calls[number].name if ids else "tool"
        shape["name"] = plain(name)
        shape["tool_call_id"] = f"functions.{name}:{_count(messages, asked) + max(number, 0)}"
    return shape


def _count(messages: Sequence[Message], index: int) -> int:
    """How many calls stand before a message."""
    return sum(len(message.tool_calls) for message in messages[:index])


def tool_dict(tool: Tool) -> dict[str, Any]:
    """A tool in OpenAI's shape, as plain JSON."""
    body = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    spec: dict[str, Any] = json.loads(
        json.dumps({"type": "function", "function": body}, default=dict)
    )
    return spec


def sound_call(attempt: Any, call_id: str) -> ToolCall | None:
    """A call that the library calls sound, with arguments that a file can hold."""
    if attempt.status.value not in ("ok", "unknown_tool") or not attempt.name:
        return None
    arguments = attempt.arguments
    try:
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return None
    if arguments is None:
        arguments = {}
    return ToolCall(attempt.name, arguments, call_id) if isinstance(arguments, dict) else None


def _mapped(value: Any, text: Callable[[str], str]) -> Any:
    """A JSON value with `text` applied to each string in it."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {text(str(key)): _mapped(item, text) for key, item in value.items()}
    return [_mapped(item, text) for item in value] if isinstance(value, (list, tuple)) else value
