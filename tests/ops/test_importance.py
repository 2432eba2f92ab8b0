"""Truncated importance weights: a hand-computed example, the cap, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from rti import NumericsError  # noqa: E402
from rti.ops import truncated_weights  # noqa: E402

logprobs = st.lists(st.floats(-30, 0), min_size=1, max_size=6)


def logs(*probabilities):
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_by_hand():
    """Ratios 1/2, 1, 3/2 and 5, the last one cut at 2."""
    weights = truncated_weights(logs(0.2, 0.3, 0.6, 0.5), logs(0.4, 0.3, 0.4, 0.1), 2.0)
    assert weights.tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert float(weights[1]) == 1.0


@given(logprobs, st.floats(1, 100))
def test_where_both_agree_the_weight_is_exactly_1(values, cap):
    both = torch.tensor(values)
    assert torch.equal(truncated_weights(both, both.clone(), cap), torch.ones(len(values)))


@given(logprobs, st.data(), st.floats(1, 100), st.floats(1, 100))
def test_weights_lie_between_0_and_the_cap_and_grow_with_it(values, data, one, other):
    rollout = data.draw(st.lists(st.floats(-30, 0), min_size=len(values), max_size=len(values)))
    low, high = sorted((one, other))
    narrow, wide = (
        truncated_weights(torch.tensor(values), torch.tensor(rollout), cap) for cap in (low, high)
    )
    assert bool(((narrow > 0) & (narrow <= low) & (narrow <= wide)).all())


def test_no_gradient_flows_through_it():
    old = torch.tensor([-1.0, -2.0], requires_grad=True)
    assert not truncated_weights(old, torch.tensor([-1.5, -1.5]), 2.0).requires_grad


@pytest.mark.parametrize(
    ("old", "rollout", "cap", "says"),
    [
        ([-1.0], [-1.0], 0.5, "cap = 0.5: must be at least 1"),
        ([-1.0], [-1.0], math.nan, "cap = nan"),
        ([-1.0, -1.0], [-1.0], 2.0, "must be of one shape"),
        ([math.nan], [-1.0], 2.0, r"old_logprobs\[0\] = nan"),
        ([-1.0], [-math.inf], 2.0, r"rollout_logprobs\[0\] = -inf"),
        ([], [], 2.0, "empty"),
    ],
)
def test_bad_input_is_an_error(old, rollout, cap, says):
    with pytest.raises(NumericsError, match=says):
        truncated_weights(torch.tensor(old), torch.tensor(rollout), cap)
