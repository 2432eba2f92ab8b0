from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rti import NumericsError
from rti.ops import admits, perplexity

LOGPROBS = st.lists(st.floats(-50.0, 0.0), min_size=1, max_size=20)
DELTAS = st.one_of(st.floats(0.0, 1e6), st.just(math.inf))


def test_hand_computed() -> None:
    # Tokens of probability 1/2 and 1/8: geometric mean 1/4, so perplexity 4.
    logprobs_T = torch.tensor([math.log(1 / 2), math.log(1 / 8)], dtype=torch.float64)
    assert perplexity(logprobs_T) == pytest.approx(4.0, rel=1e-15)


@given(LOGPROBS)
def test_agrees_with_plain_python_in_float64(logprobs: list[float]) -> None:
    reference = math.exp(-math.fsum(logprobs) / len(logprobs))
    value = perplexity(torch.tensor(logprobs, dtype=torch.float64))
    assert value == pytest.approx(reference, rel=1e-12)


def test_is_computed_in_float64_from_lower_precision() -> None:
    # In float16 the running sum of 5000 × −0.1 would be off by whole units.
    logprobs_T = torch.full((5000,), -0.1, dtype=torch.float16)
    assert perplexity(logprobs_T) == pytest.approx(math.exp(-float(logprobs_T[0])), rel=1e-12)


@pytest.mark.parametrize("logprobs", [[-1000.0], [-1e30, 0.0], [-math.inf, -0.5]])
def test_overflow_and_impossible_tokens_give_infinity(logprobs: list[float]) -> None:
    value = perplexity(torch.tensor(logprobs, dtype=torch.float64))
    assert value == math.inf
    assert not admits(value, 1e300)
    assert admits(value, math.inf)


@given(LOGPROBS, DELTAS, DELTAS)
def test_gate_is_monotone_in_delta(logprobs: list[float], a: float, b: float) -> None:
    value = perplexity(torch.tensor(logprobs, dtype=torch.float64))
    low, high = sorted((a, b))
    assert admits(value, high) or not admits(value, low)


@given(LOGPROBS)
def test_delta_zero_admits_nothing_and_infinity_everything(logprobs: list[float]) -> None:
    value = perplexity(torch.tensor(logprobs, dtype=torch.float64))
    assert not admits(value, 0.0)
    assert admits(value, math.inf)


def test_rounding_above_zero_still_passes_no_gate_at_zero() -> None:
    value = perplexity(torch.tensor([5e-5, 5e-5]))
    assert 0.999 < value < 1.0
    assert not admits(value, 0.0)


def test_boundary_is_admitted() -> None:
    assert admits(5.0, 5.0)
    assert not admits(math.nextafter(5.0, 6.0), 5.0)


@pytest.mark.parametrize(
    ("logprobs", "says"),
    [
        ([], "empty"),
        ([[-1.0, -2.0]], r"shape \(1, 2\)"),
        ([-1.0, math.nan], r"logprobs_T\[1\] = nan"),
        ([-1.0, 0.01], r"logprobs_T\[1\] = 0.0\d*: must be a logprob"),
        ([math.inf], r"logprobs_T\[0\] = inf"),
    ],
)
def test_bad_logprobs_name_themselves(logprobs: list[float], says: str) -> None:
    with pytest.raises(NumericsError, match=says):
        perplexity(torch.tensor(logprobs))


@pytest.mark.parametrize(
    ("value", "delta", "says"),
    [
        (math.nan, 5.0, "perplexity = nan"),
        (0.0, 5.0, "perplexity = 0.0"),
        (2.0, math.nan, "delta = nan"),
        (2.0, -1.0, "delta = -1.0"),
    ],
)
def test_bad_numbers_at_the_gate_name_themselves(value: float, delta: float, says: str) -> None:
    with pytest.raises(NumericsError, match=says):
        admits(value, delta)
