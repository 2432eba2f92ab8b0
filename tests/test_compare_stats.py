"""Intervals over seeds, against tables and by properties."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rti import NumericsError
from rti.compare import mean_interval, t_quantile
from rti.compare.output import blocks

TABLE = {1: 12.706205, 2: 4.302653, 3: 3.182446, 4: 2.776445, 5: 2.570582, 9: 2.262157,
         10: 2.228139, 29: 2.045230, 30: 2.042272, 120: 1.979930}  # fmt: skip
"""Student's t at .975."""


@pytest.mark.parametrize(("degrees", "value"), TABLE.items())
def test_the_quantile_is_that_of_the_tables(degrees: int, value: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(value, abs=1e-6)


def test_other_levels() -> None:
    assert t_quantile(0.95, 4) == pytest.approx(2.131847, abs=1e-6)
    assert t_quantile(0.995, 4) == pytest.approx(4.604095, abs=1e-6)
    assert t_quantile(0.5, 7) == pytest.approx(0, abs=1e-12)


def test_an_interval_by_hand() -> None:
    mean, low, high = mean_interval([0.1, 0.2, 0.3, 0.4, 0.5])
    half = 2.776445 * math.sqrt(0.025) / math.sqrt(5)
    assert (mean, low, high) == pytest.approx((0.3, 0.3 - half, 0.3 + half), abs=1e-6)


def test_one_value_has_no_interval_and_none_is_an_error() -> None:
    assert mean_interval([0.7]) == (0.7, None, None)
    for values in ([], [math.nan], [0.1, math.inf]):
        with pytest.raises(NumericsError):
            mean_interval(values)
    for p, degrees in ((0.4, 3), (1.0, 3), (0.9, 0)):
        with pytest.raises(NumericsError):
            t_quantile(p, degrees)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.floats(-3, 3))
def test_intervals_move_with_their_values(values: list[float], shift: float) -> None:
    mean, low, high = mean_interval(values)
    assert low is not None
    assert high is not None
    assert low <= mean <= high
    moved = mean_interval([v + shift for v in values])
    assert moved == pytest.approx((mean + shift, low + shift, high + shift), abs=1e-9)
    assert mean == pytest.approx(statistics.fmean(values))


@given(st.integers(1, 60), st.floats(0.51, 0.99))
def test_more_degrees_of_freedom_narrow_it(degrees: int, p: float) -> None:
    assert t_quantile(p, degrees + 1) <= t_quantile(p, degrees) + 1e-9


def test_a_wide_table_is_shown_in_parts_that_fit():
    rows = [
        ("arm", "seeds", "pass@1", "tokens"),
        ("grpo-equal-tokens", "5", "0.843 ± 0.187", "301,037"),
    ]
    assert list(blocks(rows, 80)) == [rows]
    first, second = blocks(rows, 46)
    assert first == [("arm", "seeds", "pass@1"), ("grpo-equal-tokens", "5", "0.843 ± 0.187")]
    assert second == [("arm", "tokens"), ("grpo-equal-tokens", "301,037")]
    assert [len(part[0]) for part in blocks(rows, 1)] == [2, 2, 2]  # however narrow, one at least
