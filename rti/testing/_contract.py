"""What the checks are made of: assertions with words, and examples from a fixed seed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rti.conformance import is_a, that

__all__ = ["check_ids", "for_all", "is_a", "pure", "that"]

T = TypeVar("T")


def check_ids(value: object, name: str) -> None:
    that(
        isinstance(value, tuple) and bool(value) and all(type(i) is int and i >= 0 for i in value),
        f"{name} is {value!r}: must be a tuple of token ids, not empty",
    )


def pure(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call twice; both results must be equal and the arguments as before."""
    before = copy.deepcopy(arguments)
    result = function(*arguments)
    that(function(*arguments) == result, f"{name} is not pure: equal input, another result")
    that(arguments == before, f"{name} changed its input")
    return result


def for_all(strategy: st.SearchStrategy[T], check: Callable[[T], None], examples: int) -> None:
    """Run `check` on drawn examples, the simplest first, alike in every run."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        # A plug-in may be slow (it may ask a model), and an author may call a check in `@given`.
        suppress_health_check=list(HealthCheck),
        # No shrinking: the assertion says in words what broke, and records of nested records
        # take a minute to shrink.
        phases=(Phase.generate,),
    )
    @given(strategy)
    def run(example: T) -> None:
        check(example)

    run()
