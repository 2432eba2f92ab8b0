from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rti import NumericsError
from rti.ops import calibration_weights

LOGPROB = st.one_of(st.floats(-5.0, 0.0), st.floats(-1e6, 0.0), st.just(0.0))
PAIRS = st.lists(st.tuples(LOGPROB, LOGPROB), min_size=1, max_size=20)
EPSILONS = st.one_of(st.just(0.2), st.floats(0.0, 1.0, exclude_max=True))


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_hand_computed() -> None:
    # Ratios .55/.5 = 1.1 (kept), .9/.3 = 3 (cut to 1.2), .1/.5 = .2 (cut to .8), 1 (exactly 1).
    corrector = tensor([math.log(p) for p in (0.55, 0.9, 0.1, 0.4)])
    rollout = tensor([math.log(p) for p in (0.5, 0.3, 0.5, 0.4)])
    weights = calibration_weights(corrector, rollout, 0.2).tolist()
    assert weights == pytest.approx([1.1, 1.2, 0.8, 1.0], rel=1e-14)
    assert weights[1:] == [1.0 + 0.2, 1.0 - 0.2, 1.0]


@given(PAIRS, EPSILONS)
def test_finite_and_inside_the_clip_range(pairs: list[tuple[float, float]], epsilon: float) -> None:
    corrector, rollout = zip(*pairs, strict=True)
    weights = calibration_weights(tensor(list(corrector)), tensor(list(rollout)), epsilon)
    assert weights.dtype == torch.float64
    assert weights.shape == (len(pairs),)
    for weight in weights.tolist():
        assert math.isfinite(weight)
        assert 1.0 - epsilon <= weight <= 1.0 + epsilon


@given(PAIRS, EPSILONS)
def test_agrees_with_the_formula(pairs: list[tuple[float, float]], epsilon: float) -> None:
    corrector, rollout = zip(*pairs, strict=True)
    weights = calibration_weights(tensor(list(corrector)), tensor(list(rollout)), epsilon)
    for weight, (c, r) in zip(weights.tolist(), pairs, strict=True):
        ratio = math.exp(min(c - r, 700.0))
        assert weight == pytest.approx(min(max(ratio, 1 - epsilon), 1 + epsilon), rel=1e-13)


@given(st.lists(LOGPROB, min_size=1, max_size=20), EPSILONS)
def test_exactly_one_where_equal(logprobs: list[float], epsilon: float) -> None:
    same = tensor(logprobs)
    assert calibration_weights(same, same.clone(), epsilon).tolist() == [1.0] * len(logprobs)


@given(PAIRS)
def test_epsilon_zero_is_no_weighting(pairs: list[tuple[float, float]]) -> None:
    corrector, rollout = zip(*pairs, strict=True)
    weights = calibration_weights(tensor(list(corrector)), tensor(list(rollout)), 0.0)
    assert weights.tolist() == [1.0] * len(pairs)


def test_a_token_the_corrector_could_not_write_gets_the_floor() -> None:
    weights = calibration_weights(tensor([-math.inf]), tensor([-1.0]), 0.2)
    assert weights.tolist() == [0.8]


def test_a_token_the_rollout_policy_could_not_write_is_an_error() -> None:
    with pytest.raises(NumericsError, match=r"rollout_logprobs_T\[1\] = -inf"):
        calibration_weights(tensor([-1.0, -1.0]), tensor([-1.0, -math.inf]), 0.2)


def test_no_gradient_passes_through() -> None:
    corrector = tensor([-1.0]).requires_grad_()
    assert not calibration_weights(corrector, tensor([-1.1]), 0.2).requires_grad


@pytest.mark.parametrize(
    ("corrector", "rollout", "epsilon", "says"),
    [
        ([], [], 0.2, "corrector_logprobs_T is empty"),
        ([-1.0], [-1.0, -2.0], 0.2, r"corrector_logprobs_T \(1,\), rollout_logprobs_T \(2,\)"),
        ([[-1.0]], [[-1.0]], 0.2, "1 dimension"),
        ([math.nan], [-1.0], 0.2, r"corrector_logprobs_T\[0\] = nan"),
        ([-1.0], [math.nan], 0.2, r"rollout_logprobs_T\[0\] = nan"),
        ([0.5], [-1.0], 0.2, r"corrector_logprobs_T\[0\] = 0.5"),
        ([-1.0], [-1.0], 1.0, "epsilon = 1.0"),
        ([-1.0], [-1.0], -0.1, "epsilon = -0.1"),
        ([-1.0], [-1.0], math.nan, "epsilon = nan"),
    ],
)
def test_bad_input_names_itself(
    corrector: list[float], rollout: list[float], epsilon: float, says: str
) -> None:
    with pytest.raises(NumericsError, match=says):
        calibration_weights(tensor(corrector), tensor(rollout), epsilon)
