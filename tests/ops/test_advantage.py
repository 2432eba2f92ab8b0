from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rti import NumericsError
from rti.ops import group_advantages

OUTCOMES = st.lists(
    st.one_of(st.sampled_from((0.0, 1.0)), st.floats(0.0, 1.0)), min_size=1, max_size=16
)
NORMALISE = st.sampled_from(("std", "none"))
DDOF = st.sampled_from((0, 1))


def advantages(outcomes: list[float], normalise: str = "std", ddof: int = 1) -> list[float]:
    result = group_advantages(torch.tensor(outcomes, dtype=torch.float64), normalise, ddof)
    assert result.dtype == torch.float64
    values: list[float] = result.tolist()
    return values


@pytest.mark.parametrize(("size", "winner", "loser"), [(8, 2.47, -0.35), (16, 3.75, -0.25)])
def test_one_success_in_a_failed_group(size: int, winner: float, loser: float) -> None:
    values = advantages([1.0] + [0.0] * (size - 1))
    assert values == pytest.approx([winner] + [loser] * (size - 1), abs=6e-3)


def test_hand_computed() -> None:
    # Mean 1/4; squares 9/16 + 3/16 = 3/4; std 1/2 unbiased, √3/4 of the population.
    assert advantages([1.0, 0.0, 0.0, 0.0]) == [1.5, -0.5, -0.5, -0.5]
    root = math.sqrt(3)
    population = advantages([1.0, 0.0, 0.0, 0.0], ddof=0)
    assert population == pytest.approx([root, -root / 3, -root / 3, -root / 3], rel=1e-15)
    assert advantages([1.0, 0.0, 0.0, 0.0], "none") == [0.75, -0.25, -0.25, -0.25]


@given(OUTCOMES, DDOF)
def test_agrees_with_the_statistics_module(outcomes: list[float], ddof: int) -> None:
    assume(max(outcomes) - min(outcomes) > 1e-3)
    std = statistics.stdev(outcomes) if ddof else statistics.pstdev(outcomes)
    expected = [(r - statistics.fmean(outcomes)) / std for r in outcomes]
    assert advantages(outcomes, ddof=ddof) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(OUTCOMES.flatmap(lambda o: st.tuples(st.just(o), st.permutations(range(len(o))))), NORMALISE)
def test_permutation_equivariant_to_the_bit(
    drawn: tuple[list[float], list[int]], normalise: str
) -> None:
    outcomes, order = drawn
    straight = advantages(outcomes, normalise)
    assert advantages([outcomes[i] for i in order], normalise) == [straight[i] for i in order]


@given(st.floats(0.0, 1.0), st.integers(1, 20), NORMALISE, DDOF)
def test_equal_outcomes_give_exactly_zero(
    outcome: float, size: int, normalise: str, ddof: int
) -> None:
    assert advantages([outcome] * size, normalise, ddof) == [0.0] * size


def test_rounding_in_a_reward_is_no_signal() -> None:
    assert advantages([0.1 + 0.2, 0.3, 0.3, 0.3]) == [0.0] * 4


@given(OUTCOMES, NORMALISE)
def test_sum_to_zero_and_keep_the_order(outcomes: list[float], normalise: str) -> None:
    values = advantages(outcomes, normalise)
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-6)
    for i, a in enumerate(outcomes):
        for j, b in enumerate(outcomes):
            if a < b:
                assert values[i] <= values[j]


def test_float32_outcomes_are_accepted() -> None:
    values = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert values.tolist() == [1.5, -0.5, -0.5, -0.5]


@pytest.mark.parametrize(
    ("outcomes", "normalise", "ddof", "says"),
    [
        ([], "std", 1, "outcomes_G is empty"),
        ([[1.0]], "std", 1, "1 dimension"),
        ([0.0, math.nan], "std", 1, r"outcomes_G\[1\] = nan"),
        ([math.inf, 0.0], "none", 1, r"outcomes_G\[0\] = inf"),
        ([1e200, 0.0], "std", 1, "overflows"),
        ([1e308, 1e308, -1e308], "std", 1, "overflows"),
        ([1.0, 0.0], "max", 1, "normalise = 'max'"),
        ([1.0, 0.0], "std", 2, "ddof = 2"),
    ],
)
def test_bad_input_names_itself(
    outcomes: list[float], normalise: str, ddof: int, says: str
) -> None:
    with pytest.raises(NumericsError, match=says):
        group_advantages(torch.tensor(outcomes, dtype=torch.float64), normalise, ddof)
