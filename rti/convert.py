"""From untyped tables (TOML, `--set`) to typed options. The one place that judges a value.

Core config sections and the options of plug-ins go through the same functions, so that both are
refused in the same words: where, which option, the value, what was wanted, the option's docstring.
"""

from __future__ import annotations

import difflib
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union

import attrs

from rti.errors import ConfigError
from rti.options import options_of

T = TypeVar("T")

_WORDS: dict[Any, str] = {
    Any: "anything",
    bool: "true or false",
    int: "a whole number (of at most 64 bits)",
    float: "a number (not NaN)",
    str: "a string",
    type(None): "nothing",
}
_LISTS = (list, Sequence)
_TABLES = (dict, Mapping)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or an empty string when nothing among `choices` is close."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[str]) -> str:
    """Words for a message: `a, b, c`, or `(none)`."""
    return ", ".join(words) or "(none)"


def shown(value: Any) -> str:
    """A value for a message: its repr, cut to a length that a person reads."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def describe(wanted: Any) -> str:
    """What a type asks of a value, in words.

    Raises:
        TypeError: for a type that options cannot have.
    """
    if wanted in _WORDS:
        return _WORDS[wanted]
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join("left out" if a is type(None) else describe(a) for a in arguments)
    if origin in _LISTS or (origin is tuple and arguments[1:] == (...,)):
        return f"a list, each item {describe(arguments[0])}"
    if origin in _TABLES and arguments[0] is str:
        return f"a table, each value {describe(arguments[1])}"
    raise TypeError(
        f"options cannot have the type {type_name(wanted)}: use bool, int, float, str, Any, "
        "a Literal of strings, list[...], tuple[..., ...], dict[str, ...], or one of these | None"
    )


def type_name(wanted: Any) -> str:
    """A type as a reader of the reference wants it: `float`, `'first' | 'all'`, `list[str]`."""
    if wanted is type(None):
        return "None"
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is not None:
        inner = ", ".join("..." if a is ... else type_name(a) for a in arguments)
        return f"{origin.__name__}[{inner}]"
    return str(getattr(wanted, "__name__", wanted))


class Mismatch(Exception):
    """A value that is not of the wanted type. Callers turn it into a ConfigError."""


def convert(value: Any, wanted: Any) -> Any:
    """`value` as a `wanted`, refusing what is not one: a bool is no int, NaN is no number.

    An int is taken for a float; lists become the wanted kind of sequence.

    Raises:
        Mismatch: when it is not one.
        TypeError: for a type that options cannot have.
    """
    if wanted is Any:
        return value
    if wanted is int:
        if type(value) is int and -(2**63) <= value < 2**63:
            return value
        raise Mismatch
    if wanted is float:
        if type(value) not in (int, float) or value != value:
            raise Mismatch
        try:
            return float(value)
        except OverflowError:
            raise Mismatch from None
    if wanted in (bool, str, type(None)):
        if type(value) is wanted:
            return value
        raise Mismatch
    describe(wanted)  # raises for what options cannot have
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        for choice in arguments:
            if type(choice) is type(value) and choice == value:
                return choice
        raise Mismatch
    if origin in (Union, types.UnionType):
        for argument in arguments:
            try:
                return convert(value, argument)
            except Mismatch:
                continue
        raise Mismatch
    if origin in _TABLES:
        if not isinstance(value, Mapping) or not all(type(key) is str for key in value):
            raise Mismatch
        return {key: convert(item, arguments[1]) for key, item in value.items()}
    if not isinstance(value, (list, tuple)):
        raise Mismatch
    items = [convert(item, arguments[0]) for item in value]
    return tuple(items) if origin is tuple else items


def option_types(cls: type) -> dict[str, Any]:
    """The type of each option of a class, resolved one by one.

    Other fields may name things that exist for the type checker alone; they are not looked at.

    Raises:
        TypeError: for an option without a type, or with one that options cannot have.
    """
    found = {}
    for name, attribute in options_of(cls).items():
        found[name] = _resolve(cls, attribute)
        try:
            describe(found[name])
        except TypeError as error:
            raise TypeError(f"option {name!r} of {cls.__name__}: {error}") from None
    return found


def _resolve(cls: type, attribute: attrs.Attribute[Any]) -> Any:
    if attribute.type is None:
        raise TypeError(f"option {attribute.name!r} of {cls.__name__} has no type annotation")
    if not isinstance(attribute.type, str):
        return attribute.type
    error: NameError | None = None
    for owner in cls.__mro__:  # an inherited option is written in the words of its own module
        holder = type("holder", (), {"__annotations__": {"option": attribute.type}})
        try:
            names = vars(sys.modules[owner.__module__])
            return typing.get_type_hints(holder, globalns=names)["option"]
        except NameError as unknown:
            error = error or unknown
    raise TypeError(f"option {attribute.name!r} of {cls.__name__}: {error}")


def default_of(attribute: attrs.Attribute[Any]) -> Any:
    """The default of an option, fresh when it is mutable."""
    default: Any = attribute.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A value as TOML holds it: tuples are lists."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def checked(cls: type, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of `table`, converted to the types of the options of `cls` and checked.

    `where` opens every message: "[gate]", or "base.toml: [gate]".

    Raises:
        ConfigError: for an unknown option, a wrong type, or a value that a check refuses.
    """
    options, wanted, values = options_of(cls), option_types(cls), {}
    for name, value in table.items():
        if name not in options:
            raise ConfigError(
                f"{where} has no option {name!r}.{did_you_mean(name, options)} "
                f"It has: {listed(options)}."
            )
        about = f"\n  {name}: {options[name].metadata['doc']}"
        try:
            values[name] = convert(value, wanted[name])
        except Mismatch:
            raise ConfigError(
                f"{where} {name} = {shown(value)} is {_kind(value)}: "
                f"wanted {describe(wanted[name])}.{_hint(value, wanted[name])}{about}"
            ) from None
        try:
            validate: Any = options[name].validator
            validate(None, options[name], values[name])
        except ValueError as error:
            raise ConfigError(f"{where} {error}.{about}") from None
    return values


def construct(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of `cls` with the options of `table`.

    Raises:
        ConfigError: as `checked`, or when `cls` itself refuses the combination (ValueError).
    """
    options = options_of(cls)
    values = {options[name].alias or name: v for name, v in checked(cls, table, where).items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{where} {error}") from error


def resolved(cls: type, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All options of `cls` as TOML would hold them: those of `table`, and defaults for the rest.

    Options whose value is None are left out, since TOML has no word for it.

    Raises:
        ConfigError: as `checked`.
    """
    given = checked(cls, table, where)
    every = {
        name: given[name] if name in given else default_of(attribute)
        for name, attribute in options_of(cls).items()
    }
    return {name: plain(value) for name, value in every.items() if value is not None}


def _kind(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string",
             list: "a list", tuple: "a list", dict: "a table"}  # fmt: skip
    return names.get(type(value), f"a {type(value).__name__}")


def _hint(value: Any, wanted: Any) -> str:
    if wanted is str and not isinstance(value, (list, tuple, dict)):
        return " Put it in quotes."
    if isinstance(value, str) and typing.get_origin(wanted) in (*_LISTS, tuple):
        return ' Write a list as ["a", "b"], quotes included.'
    return ""
