"""LUFFY: advantages of mixed groups, the shaped loss, and a real update on it."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from attrs import evolve
from hf_cases import optimiser, random_sample, tiny, tiny_folder, trainer_of
from hypothesis import given
from hypothesis import strategies as st

from rti import Batch, Group, Message, Provenance, Rollout, RunError, Span, Task, Turn
from rti.testing import check_objective, groups
from rti_luffy import Luffy

torch = pytest.importorskip("torch")
from rti.ops import ppo_clip_loss  # noqa: E402

TASK = Task("t")
TEACHER = Provenance("demonstration", "hf", model="models/teacher")


def mixed(*outcomes, teacher=None):
    """A group of the policy's rollouts, and one of the teacher's behind them."""
    said = Turn(0, (1,), (2,), (-0.1,), Message("assistant"))
    made = [Rollout(TASK, i, (said,), outcome=o, success=o == 1) for i, o in enumerate(outcomes)]
    if teacher is not None:
        shown = evolve(said, rollout_logprobs=(0.0,), provenance=TEACHER)
        made.append(Rollout(TASK, len(made), (shown,), outcome=teacher, success=True))
    return Group(TASK, tuple(made))


@pytest.mark.parametrize(
    "objective",
    [Luffy(), Luffy(split=True), Luffy(aggregate="constant", constant_length=9, gamma=0.5)],
)
def test_it_keeps_the_contract(objective):
    check_objective(objective, examples=15)


def test_what_it_needs_and_refuses():
    assert Luffy().needs == ("demonstrations",)
    for options, says in (
        ({"gamma": 0.0}, "gamma = 0.0: must be above 0"),
        ({"aggregate": "constant"}, "constant_length = 0"),
    ):
        with pytest.raises(ValueError, match=says):
            Luffy(**options)


def test_the_hook_module_is_import_light():
    code = "import sys, rti_luffy; rti_luffy.Luffy(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- advantages -----------------------------------------------------------------------------


def test_advantages_by_hand():
    """Of four rollouts the teacher's and one more succeeded."""
    group = mixed(0.0, 1.0, 0.0, teacher=1.0)
    assert Luffy().advantages(group) == (-0.5, 0.5, -0.5, 0.5)
    third = 1 / 3
    assert Luffy(split=True).advantages(group) == pytest.approx(
        (-third, 2 * third, -third, 2 * third)
    )


def test_an_all_failed_group_learns_from_the_teacher():
    group = mixed(0.0, 0.0, 0.0, teacher=1.0)
    assert Luffy().advantages(group) == (-0.25, -0.25, -0.25, 0.75)
    assert Luffy(split=True).advantages(group) == (0.0, 0.0, 0.0, 1.0)


def test_without_a_demonstration_it_is_grpo_without_std():
    for objective in (Luffy(), Luffy(split=True)):
        assert objective.advantages(mixed(0.0, 1.0)) == (-0.5, 0.5)


@given(groups(), st.booleans())
def test_without_split_all_rollouts_are_in_the_mean(group, split):
    advantages = Luffy(split=split).advantages(group)
    assert math.fsum(advantages) == pytest.approx(0, abs=1e-9)


# --- the loss of a token --------------------------------------------------------------------


def test_the_loss_by_hand():
    """π_θ is .1 on all. On the teacher's tokens f = .1 / .2; on the policy's r = .1 / .2."""
    new = torch.tensor([0.1] * 4).log().requires_grad_()
    rollout = torch.tensor([0.0, 0.0, math.log(0.2), math.log(0.2)])
    advantages = torch.tensor([2.0, -2.0, 2.0, -2.0])
    flags = torch.tensor([1.0, 1.0, 0.0, 0.0])
    loss = Luffy().token_loss(new, rollout, advantages, demonstrations=flags)
    assert loss.tolist() == pytest.approx([-1.0, 1.0, -1.0, 1.6])
    loss.sum().backward()
    # d f / d log p = p·γ / (p + γ)², here .25; the policy's bad token is held at the clip.
    assert new.grad.tolist() == pytest.approx([-0.5, 0.5, -1.0, 0.0])


@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.floats(-3, 3)), min_size=1))
def test_on_the_policys_tokens_it_is_grpos(drawn):
    new, rollout, advantages = (torch.tensor(x) for x in zip(*drawn, strict=True))
    ours = Luffy().token_loss(new, rollout, advantages, demonstrations=torch.zeros(len(drawn)))
    assert torch.equal(ours, ppo_clip_loss(new, rollout, advantages))


@given(st.lists(st.tuples(st.floats(-30, 0), st.floats(-30, 0)), min_size=1), st.floats(0.01, 10))
def test_on_the_teachers_it_is_bounded_never_clipped_and_blind_to_the_sampler(drawn, gamma):
    new = torch.tensor([n for n, _ in drawn], dtype=torch.float64, requires_grad=True)
    rollout = torch.tensor([r for _, r in drawn], dtype=torch.float64)
    ones = torch.ones(len(drawn), dtype=torch.float64)
    objective = Luffy(gamma=gamma)
    loss = objective.token_loss(new, rollout, ones, demonstrations=ones)
    assert bool(((loss < 0) & (loss >= -1 / (1 + gamma) - 1e-12)).all())
    again = objective.token_loss(new, torch.zeros_like(rollout), ones, demonstrations=ones)
    assert torch.equal(loss, again)
    loss.sum().backward()
    assert bool((new.grad < 0).all())  # it always pulls a good token up


# --- a real update --------------------------------------------------------------------------


def shown(sample):
    """The sample as a teacher's: its tokens have no rollout logprob."""
    said = tuple(Span(i, i + 1, TEACHER) for i, trained in enumerate(sample.loss_mask) if trained)
    return evolve(sample, rollout_logprobs=(0.0,) * len(sample.token_ids), spans=said)


SAMPLES = tuple(shown(s) if s.rollout == 2 else s for s in map(random_sample, range(4)))
FLAGS = tuple(tuple(float(m and s.rollout == 2) for m in s.loss_mask) for s in SAMPLES)
BATCH = Batch(SAMPLES, aux={"demonstrations": FLAGS})


@pytest.mark.parametrize("budget", [8192, 30])
def test_the_gradient_is_that_of_a_loss_written_by_hand(tmp_path, budget):
    folder = tiny_folder("llama", tmp_path / "model")
    trainer = trainer_of(folder, Luffy(), beta1=0.0, micro_batch_tokens=budget)
    metrics = trainer.step(BATCH)
    found = optimiser(trainer, tmp_path / "after")
    model = tiny("llama")
    total, count, ratios = torch.zeros(()), sum(sum(s.loss_mask) for s in SAMPLES), []
    for sample, flags in zip(SAMPLES, FLAGS, strict=True):
        logprobs = model(torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        for t, trained in enumerate(sample.loss_mask):
            if not trained:
                continue
            own, A = logprobs[t - 1, sample.token_ids[t]], sample.advantages[t]
            if flags[t]:
                total = total - A * own.exp() / (own.exp() + 0.1)
                continue
            r = (own - sample.rollout_logprobs[t]).exp()
            ratios.append(abs(own.item() - sample.rollout_logprobs[t]))
            total = total - torch.minimum(r * A, r.clamp(0.8, 1.2) * A)
    (total / count).backward()
    assert metrics["loss"] == pytest.approx(total.item() / count, rel=1e-4)
    for name, parameter in model.named_parameters():
        rounding = 1e-4 * parameter.grad.abs().max().item()
        torch.testing.assert_close(
            found[f"state/exp_avg/{name}"], parameter.grad, rtol=1e-2, atol=rounding
        )
    # A teacher's tokens say nothing of how sampler and trainer agree.
    assert metrics["log_ratio_max"] == pytest.approx(max(ratios), rel=1e-4)
    assert metrics["log_ratio_mean"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-4)


def test_a_batch_of_demonstrations_alone_is_learned_from(tmp_path):
    """Then no token tells how sampler and trainer agree."""
    folder = tiny_folder("llama", tmp_path)
    metrics = trainer_of(folder, Luffy()).step(
        Batch(SAMPLES[2:3], aux={"demonstrations": FLAGS[2:3]})
    )
    assert metrics["grad_norm"] > 0
    assert (metrics["log_ratio_mean"], metrics["log_ratio_max"]) == (0.0, 0.0)


@pytest.mark.parametrize("aux", [{}, {"demonstrations": FLAGS[:-1]}, {"demonstrations": ((),) * 4}])
def test_a_batch_without_its_extras_is_an_error(tmp_path, aux):
    trainer = trainer_of(tiny_folder("llama", tmp_path), Luffy())
    with pytest.raises(RunError, match=r"\[objective\] needs 'demonstrations', but the batch's"):
        trainer.step(Batch(SAMPLES, aux=aux))
