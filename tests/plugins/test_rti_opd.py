"""On-policy distillation: the token advantage, and real updates on it."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hf_cases import optimiser, random_sample, tiny, tiny_folder, trainer_of
from hypothesis import given
from hypothesis import strategies as st

from rti import Batch, Group, Rollout, Task
from rti.testing import check_objective
from rti_grpo import Grpo
from rti_opd import Opd

torch = pytest.importorskip("torch")
from rti.ops import ppo_clip_loss  # noqa: E402

TASK = Task("t")
numbers = st.lists(
    st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.floats(-9, 0), st.floats(-3, 3)), min_size=1
)


def tensors(drawn):
    return (torch.tensor(x, dtype=torch.float64) for x in zip(*drawn, strict=True))


def group(*outcomes):
    return Group(TASK, tuple(Rollout(TASK, i, outcome=o) for i, o in enumerate(outcomes)))


@pytest.mark.parametrize(
    "objective",
    [Opd(), Opd(outcome=True), Opd(coef=0.5, outcome=True, normalise="none"), Opd(ddof=0)],
)
def test_it_keeps_the_contract(objective):
    check_objective(objective, examples=15)


def test_what_it_needs_and_refuses():
    assert Opd().needs == ("teacher",)
    assert Opd.every_group is True
    for options, says in (
        ({"coef": -1.0}, "coef = -1.0: must be at least 0"),
        ({"aggregate": "constant"}, "constant_length = 0"),
    ):
        with pytest.raises(ValueError, match=says):
            Opd(**options)


def test_the_hook_module_is_import_light():
    code = "import sys, rti_opd; rti_opd.Opd(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- advantages and loss --------------------------------------------------------------------


def test_outcomes_count_only_when_asked_for():
    assert Opd().advantages(group(0.0, 1.0)) == (0.0, 0.0)
    mixed = group(0.0, 1.0, 0.0, 0.0)
    assert Opd(outcome=True).advantages(mixed) == Grpo().advantages(mixed)


def test_the_loss_by_hand():
    """On policy: the teacher finds the first token twice as likely, the second half as likely."""
    both = torch.tensor([0.2, 0.2]).log()
    teacher = torch.tensor([0.4, 0.1]).log()
    outcome = torch.tensor([1.0, 1.0])
    log2 = math.log(2)
    loss = Opd().token_loss(both, both, outcome, teacher=teacher)
    assert loss.tolist() == pytest.approx([-log2 - 1, log2 - 1])
    loss = Opd(coef=2.0).token_loss(both, both, torch.zeros(2), teacher=teacher)
    assert loss.tolist() == pytest.approx([-2 * log2, 2 * log2])


@given(numbers)
def test_a_teacher_of_one_mind_with_the_sampler_adds_nothing(drawn):
    new, rollout, _, advantages = tensors(drawn)
    ours = Opd(outcome=True).token_loss(new, rollout, advantages, teacher=rollout)
    assert torch.equal(ours, ppo_clip_loss(new, rollout, advantages))


@given(numbers)
def test_coef_0_is_grpo(drawn):
    new, rollout, teacher, advantages = tensors(drawn)
    ours = Opd(coef=0.0, outcome=True).token_loss(new, rollout, advantages, teacher=teacher)
    assert torch.equal(ours, ppo_clip_loss(new, rollout, advantages))


@given(numbers)
def test_on_policy_the_gradient_pulls_towards_the_teacher(drawn):
    _, rollout, teacher, _ = tensors(drawn)
    new = rollout.clone().requires_grad_()
    Opd().token_loss(new, rollout, torch.zeros_like(new), teacher=teacher).sum().backward()
    torch.testing.assert_close(new.grad, rollout - teacher, rtol=1e-12, atol=1e-300)


# --- real updates ---------------------------------------------------------------------------

SAMPLES = tuple(map(random_sample, range(4)))
TEACHER = tuple(
    tuple(-0.5 - 0.3 * t if m else 0.0 for t, m in enumerate(s.loss_mask)) for s in SAMPLES
)


@pytest.mark.parametrize("budget", [8192, 30])
def test_the_gradient_is_that_of_a_loss_written_by_hand(tmp_path, budget):
    folder = tiny_folder("llama", tmp_path / "model")
    objective = Opd(coef=0.5, outcome=True)
    trainer = trainer_of(folder, objective, beta1=0.0, micro_batch_tokens=budget)
    metrics = trainer.step(Batch(SAMPLES, aux={"teacher": TEACHER}))
    found = optimiser(trainer, tmp_path / "after")
    model = tiny("llama")
    total, count = torch.zeros(()), sum(sum(s.loss_mask) for s in SAMPLES)
    for sample, teacher in zip(SAMPLES, TEACHER, strict=True):
        logprobs = model(torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        for t, trained in enumerate(sample.loss_mask):
            if trained:
                r = (logprobs[t - 1, sample.token_ids[t]] - sample.rollout_logprobs[t]).exp()
                A = sample.advantages[t] - 0.5 * (sample.rollout_logprobs[t] - teacher[t])
                total = total - torch.minimum(r * A, r.clamp(0.8, 1.2) * A)
    (total / count).backward()
    assert metrics["loss"] == pytest.approx(total.item() / count, rel=1e-4)
    for name, parameter in model.named_parameters():
        rounding = 1e-4 * parameter.grad.abs().max().item()
        torch.testing.assert_close(
            found[f"state/exp_avg/{name}"], parameter.grad, rtol=1e-2, atol=rounding
        )
