from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rti import NumericsError
from rti.ops import ppo_clip_loss, token_scales

LOGPROB = st.one_of(st.floats(-5.0, 0.0), st.floats(-200.0, 0.0))
TOKENS = st.lists(st.tuples(LOGPROB, LOGPROB, st.floats(-4.0, 4.0)), min_size=1, max_size=20)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def loss_at(ratio: float, advantage: float) -> tuple[float, float]:
    """The loss of one token and its gradient with respect to the logprob."""
    logprob = tensor(math.log(ratio) - 1.0).requires_grad_()
    loss = ppo_clip_loss(logprob, tensor(-1.0), tensor(advantage), 0.2, 0.28)
    loss.sum().backward()
    assert logprob.grad is not None
    return float(loss.detach()[0]), float(logprob.grad[0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.1, 2.0, -2.2, -2.2),  # inside: −r·A, gradient −r·A
        (1.5, 2.0, -2.56, 0.0),  # good token, already likelier: held at 1.28·A
        (1.5, -2.0, 3.0, 3.0),  # bad token that got likelier: pushed back in full
        (0.5, 2.0, -1.0, -1.0),  # good token that got rarer: pulled back in full
        (0.5, -2.0, 1.6, 0.0),  # bad token, already rarer: held at .8·A
    ],
)
def test_hand_computed(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    assert loss_at(ratio, advantage) == pytest.approx((loss, gradient), rel=1e-12, abs=1e-15)


@given(TOKENS)
def test_agrees_with_plain_python(tokens: list[tuple[float, float, float]]) -> None:
    new, old, advantage = (tensor(*column) for column in zip(*tokens, strict=True))
    losses = ppo_clip_loss(new, old, advantage, 0.2, 0.28).tolist()
    for loss, (n, o, a) in zip(losses, tokens, strict=True):
        r = math.exp(min(max(n - o, -20.0), 20.0))
        assert loss == pytest.approx(-min(r * a, min(max(r, 0.8), 1.28) * a), rel=1e-12)


# The gradient sums two halves at r = 1, and a subnormal number cannot be halved.
ADVANTAGE = st.floats(-4.0, 4.0, allow_subnormal=False)


@given(st.lists(st.tuples(LOGPROB, ADVANTAGE), min_size=1, max_size=20))
def test_ratio_one_is_minus_the_advantage(tokens: list[tuple[float, float]]) -> None:
    logprobs, advantages = (tensor(*column) for column in zip(*tokens, strict=True))
    policy = logprobs.clone().requires_grad_()
    loss = ppo_clip_loss(policy, logprobs, advantages)
    assert torch.equal(loss, -advantages)
    loss.sum().backward()
    # On policy the gradient is REINFORCE's, however tight the clip.
    assert policy.grad is not None
    assert torch.equal(policy.grad, -advantages)


@given(st.floats(1.3, 50.0), st.floats(1.3, 50.0), st.floats(0.01, 4.0))
def test_constant_above_the_clip_for_good_tokens(a: float, b: float, advantage: float) -> None:
    assert loss_at(a, advantage) == loss_at(b, advantage)
    assert loss_at(a, advantage)[1] == 0.0


@given(st.floats(0.001, 0.75), st.floats(0.001, 0.75), st.floats(-4.0, -0.01))
def test_constant_below_the_clip_for_bad_tokens(a: float, b: float, advantage: float) -> None:
    assert loss_at(a, advantage) == loss_at(b, advantage)
    assert loss_at(a, advantage)[1] == 0.0


def test_gradient_against_finite_differences() -> None:
    old, advantage = tensor(-1.0, -1.0, -1.0), tensor(1.0, -1.0, 0.5)
    policy = tensor(-1.1, -0.9, -1.05).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: ppo_clip_loss(p, old, advantage), (policy,))


@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
def test_a_very_stale_token_stays_finite(advantage: float) -> None:
    policy = torch.tensor([0.0]).requires_grad_()
    loss = ppo_clip_loss(policy, torch.tensor([-500.0]), torch.tensor([advantage]))
    loss.sum().backward()
    assert policy.grad is not None
    assert math.isfinite(float(loss.detach()[0]))
    assert math.isfinite(float(policy.grad[0]))


def test_infinite_upper_clip_is_no_upper_clip() -> None:
    loss = ppo_clip_loss(tensor(0.0), tensor(-3.0), tensor(1.0), 0.2, math.inf)
    assert float(loss[0]) == pytest.approx(-math.exp(3.0))


def test_only_the_policy_gets_a_gradient_and_low_precision_is_lifted() -> None:
    policy = torch.tensor([[-1.0, -2.0]], dtype=torch.bfloat16).requires_grad_()
    old = torch.tensor([[-1.0, -2.0]], dtype=torch.float64).requires_grad_()
    advantages = torch.tensor([[1.0, 1.0]], dtype=torch.float64).requires_grad_()
    loss = ppo_clip_loss(policy, old, advantages)
    assert loss.dtype == torch.float32
    assert loss.shape == (1, 2)
    loss.sum().backward()
    assert policy.grad is not None
    assert old.grad is None
    assert advantages.grad is None


@pytest.mark.parametrize(
    ("new", "old", "advantages", "clips", "says"),
    [
        ([], [], [], (0.2, 0.2), "logprobs is empty"),
        ([-1.0, -1.0], [-1.0], [1.0], (0.2, 0.2), r"logprobs \(2,\)"),
        ([math.nan], [-1.0], [1.0], (0.2, 0.2), r"^logprobs\[0\] = nan"),
        ([-1.0], [-math.inf], [1.0], (0.2, 0.2), r"rollout_logprobs\[0\] = -inf"),
        ([-1.0], [-1.0], [math.nan], (0.2, 0.2), r"advantages\[0\] = nan"),
        ([-1.0], [-1.0], [1.0], (1.5, 0.2), "clip_low = 1.5"),
        ([-1.0], [-1.0], [1.0], (0.2, -0.1), "clip_high = -0.1"),
        ([-1.0], [-1.0], [1.0], (0.2, math.nan), "clip_high = nan"),
    ],
)
def test_bad_input_names_itself(
    new: list[float],
    old: list[float],
    advantages: list[float],
    clips: tuple[float, float],
    says: str,
) -> None:
    with pytest.raises(NumericsError, match=says):
        ppo_clip_loss(tensor(*new), tensor(*old), tensor(*advantages), *clips)


# ------------------------------------------------------------------ aggregation

BATCHES = st.lists(st.integers(1, 9), min_size=1, max_size=6)
AGGREGATE = st.sampled_from(("token", "sequence", "constant"))


def test_scales_hand_computed() -> None:
    # Rollout 0 of 4 tokens in two pieces, rollout 7 of 6 tokens: N = 10, R = 2.
    counts, rollouts = [1, 6, 3], [0, 7, 0]
    assert token_scales(counts, rollouts, "token").tolist() == [0.1] * 3
    assert token_scales(counts, rollouts, "sequence").tolist() == [1 / 8, 1 / 12, 1 / 8]
    assert token_scales(counts, rollouts, "constant", 20).tolist() == [1 / 40] * 3


@given(BATCHES, AGGREGATE, st.randoms(use_true_random=False))
def test_splitting_a_rollout_into_samples_changes_no_scale(
    lengths: list[int], aggregate: str, chance: random.Random
) -> None:
    whole = token_scales(lengths, list(range(len(lengths))), aggregate, 16).tolist()
    pieces = [(rollout, 1) for rollout, length in enumerate(lengths) for _ in range(length)]
    pieces += [(rollout, 0) for rollout in range(len(lengths))]  # a piece with nothing to learn
    chance.shuffle(pieces)
    scales = token_scales([n for _, n in pieces], [r for r, _ in pieces], aggregate, 16).tolist()
    assert scales == [whole[rollout] for rollout, _ in pieces]


@given(BATCHES, AGGREGATE, st.data())
def test_loss_and_gradient_do_not_depend_on_micro_batches(
    lengths: list[int], aggregate: str, data: st.DataObject
) -> None:
    total = sum(lengths)
    values = st.lists(st.floats(-2.0, 0.0), min_size=total, max_size=total)
    new, old = tensor(*data.draw(values)), tensor(*data.draw(values))
    advantages = tensor(*data.draw(values)) + 1.0
    scales = token_scales(lengths, list(range(len(lengths))), aggregate, 16)
    scale_per_token = scales.repeat_interleave(torch.tensor(lengths))

    def run(cuts: list[int]) -> tuple[float, torch.Tensor]:
        policy = new.clone().requires_grad_()
        loss = 0.0
        edges = [0, *cuts, total]
        for start, stop in itertools.pairwise(edges):
            if start < stop:
                piece = slice(start, stop)
                part = ppo_clip_loss(policy[piece], old[piece], advantages[piece])
                scaled = (part * scale_per_token[piece]).sum()
                scaled.backward()
                loss += float(scaled.detach())
        assert policy.grad is not None
        return loss, policy.grad

    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    whole_loss, whole_gradient = run([])
    cut_loss, cut_gradient = run(cuts)
    assert cut_loss == pytest.approx(whole_loss, rel=1e-12, abs=1e-15)
    assert torch.equal(cut_gradient, whole_gradient)


@given(BATCHES)
def test_what_each_aggregate_counts_alike(lengths: list[int]) -> None:
    rollouts = list(range(len(lengths)))
    by_token = token_scales(lengths, rollouts, "token")
    assert float((by_token * torch.tensor(lengths)).sum()) == pytest.approx(1.0)
    by_sequence = token_scales(lengths, rollouts, "sequence") * torch.tensor(lengths)
    assert by_sequence.tolist() == pytest.approx([1 / len(lengths)] * len(lengths))


def test_a_rollout_without_trained_tokens_counts_among_the_rollouts() -> None:
    assert token_scales([4, 0], [0, 1], "sequence").tolist() == [1 / 8, 0.0]
    assert token_scales([4, 0], [0, 1], "constant", 2).tolist() == [1 / 4, 0.0]


@pytest.mark.parametrize(
    ("counts", "rollouts", "aggregate", "length", "says"),
    [
        ([], [], "token", 0, "no trained token"),
        ([0, 0], [0, 1], "sequence", 0, "no trained token"),
        ([1], [0, 1], "token", 0, "1 token_counts_S but 2 rollouts_S"),
        ([-1, 3], [0, 1], "token", 0, "at least 0"),
        ([1], [0], "mean", 0, "aggregate = 'mean': must be one of 'token'"),
        ([1], [0], "constant", 0, "constant_length = 0"),
    ],
)
def test_bad_batches_name_themselves(
    counts: list[int], rollouts: list[int], aggregate: str, length: int, says: str
) -> None:
    with pytest.raises(NumericsError, match=says):
        token_scales(counts, rollouts, aggregate, length)
