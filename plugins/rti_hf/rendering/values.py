"""JSON values as tools, tokenizers and files can take them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rti import Tool

_PYTHON = {"True": True, "False": False, "None": None}


def strict_json(text: str) -> Any:
    """A JSON value.

    Raises:
        ValueError: for what is not JSON, not finite, or holds an unpaired surrogate (legal in
            JSON, but no tool, tokenizer or file can take it).
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def listing(tools: list[Tool]) -> str:
    """The JSON schemas of tools, one a line, as chat templates of this family write them."""
    return "\n".join(
        json.dumps(
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            },
            ensure_ascii=False,
        )
        for tool in tools
    )


def typed(text: str, schema: Any) -> Any:
    """An argument that was written as bare text, in the type that its JSON schema asks for.

    Where a string is allowed it stays text, save a null that is allowed too. Without a schema it
    is a number, true, false, null, list or object if it reads as one (Python's True, False and
    None as well), else text.
    """
    kinds = _kinds(schema)
    if "string" in kinds:
        return None if "null" in kinds and text in ("null", "None") else text
    if text in _PYTHON:
        return _PYTHON[text]
    try:
        value = strict_json(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def _kinds(schema: Any) -> set[str]:
    """The JSON types that a schema allows; empty when it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type", ())
    kinds = {named} if isinstance(named, str) else set(named)
    for choice in ("anyOf", "oneOf"):
        for inner in schema.get(choice, ()):
            kinds |= _kinds(inner)
    for value in schema.get("enum", ()):
        kinds |= {"string"} if isinstance(value, str) else set()
    return kinds


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number
