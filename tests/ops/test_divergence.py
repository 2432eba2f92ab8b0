from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rti import NumericsError
from rti.ops import kl_estimate

LOGPROB = st.floats(-19.0, 0.0)
PAIRS = st.lists(st.tuples(LOGPROB, LOGPROB), min_size=1, max_size=20)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def kl_at(probability: float, reference: float) -> tuple[float, float]:
    """The estimate at one token and its derivative by the logprob."""
    logprob = tensor(math.log(probability)).requires_grad_()
    estimate = kl_estimate(logprob, tensor(math.log(reference)))
    estimate.sum().backward()
    assert logprob.grad is not None
    return float(estimate.detach()[0]), float(logprob.grad[0])


@pytest.mark.parametrize(
    ("probability", "reference", "value", "gradient"),
    [
        (0.5, 0.5, 0.0, 0.0),
        (0.25, 0.5, 1 - math.log(2), -1.0),  # rarer than in the reference: pushed up, 1 − 2
        (0.5, 0.25, math.log(2) - 0.5, 0.5),  # likelier: pushed down, 1 − 1/2
        (0.9, 0.1, 1 / 9 + math.log(9) - 1, 8 / 9),
    ],
)
def test_hand_computed(probability: float, reference: float, value: float, gradient: float) -> None:
    assert kl_at(probability, reference) == pytest.approx((value, gradient), rel=1e-12, abs=1e-15)


@given(PAIRS)
def test_agrees_with_plain_python_and_is_never_negative(pairs: list[tuple[float, float]]) -> None:
    new, reference = (tensor(*column) for column in zip(*pairs, strict=True))
    for estimate, (n, r) in zip(kl_estimate(new, reference).tolist(), pairs, strict=True):
        assert estimate == pytest.approx(math.expm1(r - n) - (r - n), rel=1e-9, abs=1e-15)
        assert estimate >= -1e-15 * abs(r - n)


@given(st.lists(LOGPROB, min_size=1, max_size=20), st.sampled_from(["bfloat16", "float32"]))
def test_of_equal_logprobs_value_and_gradient_are_exactly_0(
    values: list[float], dtype: str
) -> None:
    logprobs = torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=True)
    estimate = kl_estimate(logprobs, logprobs)
    estimate.sum().backward()
    assert estimate.dtype == torch.float32
    assert estimate.tolist() == [0.0] * len(values)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [0.0] * len(values)


def test_small_differences_keep_their_digits_in_float32() -> None:
    """e^d − d − 1 would be 0, or off by half, at d = 1e-4."""
    new = torch.tensor([-1.0])
    reference = torch.tensor([-1.0 + 2**-13])
    assert kl_estimate(new, reference).item() == pytest.approx(2**-27, rel=1e-3)


def test_its_mean_over_tokens_of_the_policy_is_the_divergence() -> None:
    generator = torch.Generator().manual_seed(0)
    new, reference = (
        torch.randn(50, generator=generator, dtype=torch.float64).log_softmax(-1) for _ in range(2)
    )
    exact = (new.exp() * (new - reference)).sum()
    # The expectation, written out over all tokens: no sampling error.
    assert (new.exp() * kl_estimate(new, reference)).sum() == pytest.approx(exact.item(), rel=1e-9)


def test_a_token_far_outside_stays_finite() -> None:
    logprobs = torch.tensor([-500.0, -0.1], requires_grad=True)
    estimate = kl_estimate(logprobs, torch.tensor([-0.1, -500.0]))
    estimate.sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(estimate).all()
    assert logprobs.grad.tolist() == [0.0, 1.0]


def test_the_reference_gets_no_gradient() -> None:
    reference = torch.tensor([-2.0], requires_grad=True)
    kl_estimate(torch.tensor([-1.0], requires_grad=True), reference).sum().backward()
    assert reference.grad is None


@pytest.mark.parametrize(
    ("new", "reference", "message"),
    [
        ([], [], "logprobs is empty"),
        ([-1.0, -2.0], [-1.0], "must be of one shape: logprobs (2,), reference_logprobs (1,)"),
        ([math.nan], [-1.0], "logprobs[0] = nan: must be finite"),
        ([-1.0], [-math.inf], "reference_logprobs[0] = -inf: must be finite"),
    ],
)
def test_bad_input_is_an_error_that_names_it(
    new: list[float], reference: list[float], message: str
) -> None:
    with pytest.raises(NumericsError) as error:
        kl_estimate(tensor(*new), tensor(*reference))
    assert message in str(error.value)
