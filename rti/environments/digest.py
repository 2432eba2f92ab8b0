"""One hash for equal states, whatever Python objects a state is made of."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import hashlib
import pathlib
import random
import types
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Any

from rti.errors import RunError

_SAID = (
    str, bytes, int, float, complex, bool, type(None), decimal.Decimal, fractions.Fraction,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, uuid.UUID,
    pathlib.PurePath, range, bytearray,
)  # fmt: skip
"""What its own repr tells whole."""


def digest(value: Any) -> str:
    """A hash that is equal for equal values: order of dicts and sets does not count.

    Raises:
        RunError: for an object whose value cannot be seen.
    """
    return hashlib.sha256(_canonical(value, {}).encode("utf-8", "backslashreplace")).hexdigest()


def _canonical(value: Any, above: dict[int, int]) -> str:
    """`above` holds the containers that we are within: one that holds itself ends here."""
    kind = type(value).__qualname__
    if isinstance(value, enum.Enum):
        return f"{kind}.{value.name}"
    if isinstance(value, _SAID):
        return f"{kind}:{value!r}"
    if id(value) in above:
        return f"<{above[id(value)]} up>"
    inside = {key: up + 1 for key, up in above.items()} | {id(value): 1}
    if isinstance(value, Mapping):
        rows = sorted(f"{_canonical(k, inside)}={_canonical(v, inside)}" for k, v in value.items())
        return f"{kind}{{{','.join(rows)}}}"
    if isinstance(value, Set):
        return f"{kind}{{{','.join(sorted(_canonical(v, inside) for v in value))}}}"
    if isinstance(value, list | tuple | deque):
        return f"{kind}[{','.join(_canonical(v, inside) for v in value)}]"
    if isinstance(value, random.Random):
        return f"{kind}:{value.getstate()!r}"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        return f"{kind}:{getattr(value, '__qualname__', value.__name__)}"
    if isinstance(value, types.MethodType):
        return f"{kind}:{value.__func__.__qualname__}"
    held = dict(_attributes(value))
    says: Any = type(value).__repr__
    if not held and says is object.__repr__:
        raise RunError(
            f"the state holds a {kind}, and nothing tells two of them apart: keep plain values in "
            "the state, or define digest(state) on the environment."
        )
    if not held:
        return f"{kind}:{value!r}"
    return f"{kind}({_canonical(held, inside)})"


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__") and hasattr(value, name):
                yield name, getattr(value, name)
