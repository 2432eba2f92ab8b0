"""Options of plug-ins and config sections: a default, a docstring, a type and a check.

    @frozen
    class PerplexityGate:
        delta: float = option(5.0, "Highest perplexity admitted (δ).", at_least(0))

The type is the field's annotation; the docstring shows in `rti plugins` and in the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

Check = Callable[[Any], str | None]
"""Takes a value; returns None, or what it must be, in words: "at least 0"."""


def option(default: Any, doc: str, *checks: Check) -> Any:
    """Declare an option. A mutable default is copied for every instance.

    Raises:
        ValueError: when the class is built with a value that a check refuses.
    """

    def validate(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        for check in checks:
            wanted = check(value)
            if wanted is not None:
                raise ValueError(f"{attribute.name} = {value!r}: must be {wanted}")

    metadata = {"rti_option": True, "doc": doc, "checks": checks}
    if isinstance(default, (dict, list)):
        copy = type(default)
        return attrs.field(factory=lambda: copy(default), validator=validate, metadata=metadata)
    return attrs.field(default=default, validator=validate, metadata=metadata)


def at_least(low: float) -> Check:
    """A number, not NaN, of at least `low`."""
    return lambda v: None if v >= low else f"at least {low}"


def above(low: float) -> Check:
    """A number above `low`."""
    return lambda v: None if v > low else f"above {low}"


def between(low: float, high: float) -> Check:
    """A number from `low` to `high`, both included."""
    return lambda v: None if low <= v <= high else f"from {low} to {high}"


def finite(value: Any) -> str | None:
    """A finite number."""
    return None if math.isfinite(value) else "finite"


def one_of(*choices: str) -> Check:
    """One of the given words."""
    return lambda v: None if v in choices else "one of " + ", ".join(map(repr, choices))


def not_empty(value: Any) -> str | None:
    """A string or list with something in it."""
    return None if value else "given (it is empty)"


def anything(value: Any) -> str | None:
    """No check beyond the type: every value of it makes sense."""
    return None


def options_of(cls: type) -> dict[str, attrs.Attribute[Any]]:
    """The options of an attrs class, by name."""
    fields = attrs.fields_dict(cls) if attrs.has(cls) else {}
    return {name: f for name, f in fields.items() if f.metadata.get("rti_option")}
