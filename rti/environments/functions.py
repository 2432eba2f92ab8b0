"""Typed Python functions as tools: schema from annotations and docstring, arguments checked."""

from __future__ import annotations

import copy
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from attrs import field, frozen

from rti.convert import Mismatch, convert, describe, did_you_mean, listed, shown
from rti.errors import ConfigError, InfrastructureError
from rti.types import Tool

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_SECTION = re.compile(r"^\s*(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.M)
_ENTRY = re.compile(r"^(\s*)(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


class BadCall(Exception):
    """A call that the model got wrong; the text is for the model."""


@frozen
class FunctionTool:
    """A function whose first parameter is the session's state, and the others what a model gives.

    Raises:
        ConfigError: for a function of which no schema can be made.
    """

    function: Callable[..., Any]
    tool: Tool
    _wanted: Mapping[str, Any] = field(repr=False)
    _required: Sequence[str] = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any], owner: Literal["agent", "user"]) -> FunctionTool:
        """Look at a function's annotations and docstring."""
        name = getattr(function, "__name__", repr(function))
        wanted, required = _parameters(function, name)
        summary, said = _docstring(function)
        if not summary:
            raise ConfigError(f"tool {name}: it has no docstring, and a model needs to be told.")
        properties = {
            key: {**_schema(kind), **({"description": said[key]} if key in said else {})}
            for key, kind in wanted.items()
        }
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        }
        return cls(function, Tool(name, summary, parameters, owner), wanted, required)

    async def __call__(self, state: Any, arguments: Mapping[str, Any]) -> str:
        """Run it on a state, and give what it returned as text.

        What it raises as ValueError or LookupError is the model's to read; anything else is a
        crash of the environment.

        Raises:
            BadCall: for arguments that do not fit, or values that the function refuses.
            InfrastructureError: for a result that is neither text nor JSON.
        """
        given = self._checked(copy.deepcopy(dict(arguments)))  # it may keep or change a list
        try:
            result = self.function(state, **given)
            result = await result if inspect.isawaitable(result) else result
        except (ValueError, LookupError) as error:
            words = str(error.args[0]) if error.args else type(error).__name__
            raise BadCall(words) from error
        try:
            return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InfrastructureError(
                f"tool {self.tool.name} returned {shown(result)}, which is neither text nor JSON "
                f"({error})."
            ) from error

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        name = self.tool.name
        for key in arguments:
            if key not in self._wanted:
                raise BadCall(
                    f"{name} has no argument {key!r}.{did_you_mean(key, self._wanted)} "
                    f"It takes: {listed(self._wanted)}."
                )
        missing = [key for key in self._required if key not in arguments]
        if missing:
            raise BadCall(f"{name} needs {listed(missing)} too.")
        given = {}
        for key, value in arguments.items():
            try:
                given[key] = convert(value, self._wanted[key])
            except Mismatch:
                raise BadCall(
                    f"{name}: {key} = {shown(value)}: wanted {describe(self._wanted[key])}."
                ) from None
        return given


def _parameters(function: Callable[..., Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """Types by name of what a model gives, and the names of what it must give."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = typing.get_type_hints(function)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"tool {name}: its signature cannot be read: {error}.") from error
    if not parameters or hints.get(parameters[0].name) in (str, int, float, bool):
        raise ConfigError(
            f"tool {name}: its first parameter must be the session's state; what a model gives "
            "comes after it."
        )
    wanted: dict[str, Any] = {}
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(f"tool {name}: *{parameter.name} says nothing to a model: name them.")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(f"tool {name}: {parameter.name} must be one that can be named.")
        if parameter.name not in hints:
            raise ConfigError(f"tool {name}: {parameter.name} has no annotation: give it a type.")
        try:
            describe(hints[parameter.name])
        except TypeError as error:
            words = str(error).replace("options", "tools' arguments")
            raise ConfigError(f"tool {name}, argument {parameter.name}: {words}.") from None
        wanted[parameter.name] = hints[parameter.name]
    return wanted, [p.name for p in parameters[1:] if p.default is p.empty]


def _schema(wanted: Any) -> dict[str, Any]:
    """The JSON schema of a type that arguments can have."""
    if wanted in _PLAIN:
        return {"type": _PLAIN[wanted]}
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each) for each in inner]}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1])}
    return {"type": "array", "items": _schema(inner[0])} if inner else {}


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What it does, and what it says of its arguments (Google's style)."""
    text = inspect.getdoc(function) or ""
    pieces = _SECTION.split(text)
    said: dict[str, str] = {}
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if title in ("Args", "Arguments"):
            said = _entries(body)
    return " ".join(pieces[0].split()), said


def _entries(body: str) -> dict[str, str]:
    """`name: words` a line; lines that are indented deeper go on with the words."""
    found: dict[str, str] = {}
    depth, last = None, ""
    for line in body.splitlines():
        entry = _ENTRY.match(line)
        if entry and (depth is None or len(entry[1]) <= depth):
            depth, last = len(entry[1]), entry[2]
            found[last] = entry[3].strip()
        elif last and line.strip():
            found[last] += " " + line.strip()
    return found
