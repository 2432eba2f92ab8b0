"""The trainer beyond its plain update: KL penalty, schedules, scoring, summing gradients."""

from __future__ import annotations

import asyncio
import math

import pytest
from attrs import evolve
from hf_cases import (
    BATCH,
    FAMILIES,
    SPLIT,
    optimiser,
    policy_of,
    random_sample,
    tiny,
    tiny_folder,
    trainer_of,
)

from rti import Batch, ConfigError, NumericsError, RunError
from rti.config import PluginSection
from rti_grpo import Grpo
from rti_hf.schedule import rate_factor

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from rti.ops import token_scales  # noqa: E402
from rti_hf.forward import cut  # noqa: E402

FULL, LORA = {}, {"lora_rank": 4, "lora_alpha": 8.0}
FAST = {"learning_rate": 1e-2}
SILENT = Batch(tuple(evolve(s, advantages=(0.0,) * len(s.advantages)) for s in BATCH.samples))
"""The policy loss is 0 throughout: only a penalty can move anything."""


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return tiny_folder(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return tiny_folder("llama", tmp_path_factory.mktemp("one"))


@pytest.fixture(params=[FULL, LORA], ids=["full", "lora"])
def way(request):
    if request.param:
        pytest.importorskip("peft")
    return request.param


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def bare(metrics):
    return {k: v for k, v in metrics.items() if k != "seconds_update"}


# --- the KL penalty -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "options"),
    [("float32", {}), ("bfloat16", {}), ("float32", {"gradient_checkpointing": True})],
)
def test_at_the_initial_model_the_penalty_and_its_gradient_are_0(folder, way, dtype, options):
    penalised = trainer_of(folder, dtype=dtype, kl_coefficient=5.0, **way, **options)
    plain = trainer_of(folder, dtype=dtype, **way, **options)
    one, other = bare(penalised.step(BATCH)), bare(plain.step(BATCH))
    assert one.pop("kl") == 0.0
    assert "kl" not in other
    assert one == other
    same(dict(penalised.weights()), dict(plain.weights()))
    silent = trainer_of(folder, dtype=dtype, kl_coefficient=5.0, **way, **options)
    assert silent.step(SILENT)["grad_norm"] == 0.0


def test_the_gradient_of_the_penalty_is_that_of_one_written_by_hand(llama, tmp_path):
    """After an update: β · scale · (1 − π_ref/π_θ) · ∇log π_θ, token by token."""
    trainer = trainer_of(llama, kl_coefficient=0.3, beta1=0.0, **FAST)
    trainer.step(BATCH)
    moved = tiny("llama")
    with torch.no_grad():
        for name, parameter in moved.named_parameters():
            parameter.copy_(trainer.weights()[name])
    metrics = trainer.step(SILENT)
    found = optimiser(trainer, tmp_path)
    reference = transformers.AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    samples = SILENT.samples
    scales = token_scales(
        [sum(s.loss_mask) for s in samples], [s.rollout for s in samples]
    ).tolist()
    surrogate, kl, count = torch.zeros(()), 0.0, 0
    for s, scale in zip(samples, scales, strict=True):
        ids = torch.tensor([s.token_ids])
        ours = moved(ids).logits[0].log_softmax(-1)
        with torch.no_grad():
            theirs = reference(ids).logits[0].log_softmax(-1)
        for t in range(1, len(s.token_ids)):
            if not s.loss_mask[t]:
                continue
            ratio = math.exp(theirs[t - 1, s.token_ids[t]] - ours[t - 1, s.token_ids[t]].item())
            kl += ratio - math.log(ratio) - 1
            count += 1
            surrogate = surrogate + 0.3 * scale * (1 - ratio) * ours[t - 1, s.token_ids[t]]
    surrogate.backward()
    assert metrics["kl"] == pytest.approx(kl / count, rel=1e-3)
    assert metrics["loss"] == pytest.approx(0.3 * kl / count, rel=1e-3)
    for name, parameter in moved.named_parameters():
        rounding = 1e-4 * parameter.grad.abs().max().item()
        torch.testing.assert_close(
            found[f"state/exp_avg/{name}"], parameter.grad, rtol=1e-2, atol=rounding
        )


def test_the_penalty_pulls_back_to_the_initial_model(llama, way):
    trainer = trainer_of(llama, kl_coefficient=1.0, **FAST, **way)
    for _ in range(3):
        trainer.step(BATCH)
    far = trainer.step(SILENT)["kl"]
    for _ in range(15):
        near = trainer.step(SILENT)["kl"]
    assert near < far / 2


def test_micro_batches_change_no_penalty(llama, way):
    def after(budget):
        trainer = trainer_of(
            llama, kl_coefficient=1.0, micro_batch_tokens=budget, beta1=0.0, **FAST, **way
        )
        trainer.step(BATCH)
        return trainer.step(SPLIT)

    whole, parts = after(8192), after(30)
    assert parts["kl"] == pytest.approx(whole["kl"], rel=1e-3)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_resumed_the_reference_is_still_the_initial_model(llama, way, dtype, tmp_path):
    options = {
        "dtype": dtype, "kl_coefficient": 0.5, "schedule": "cosine", "schedule_steps": 6,
        "warmup_steps": 2, **FAST, **way,
    }  # fmt: skip
    straight = trainer_of(llama, **options)
    straight.step(BATCH)
    straight.step(SPLIT)
    straight.save(tmp_path)
    resumed = trainer_of(llama, **options)
    resumed.restore(tmp_path)
    for batch in (BATCH, SPLIT, BATCH):
        one, other = bare(straight.step(batch)), bare(resumed.step(batch))
        assert one["kl"] > 0
        assert one == other
    same(dict(straight.weights()), dict(resumed.weights()))
    same(optimiser(straight, tmp_path / "a"), optimiser(resumed, tmp_path / "b"))


def test_resuming_with_another_reference_is_an_error(llama, tmp_path):
    trainer_of(llama, kl_coefficient=0.5).save(tmp_path)
    other = trainer_of(tiny_folder("llama", tmp_path / "other", seed=9), kl_coefficient=0.5)
    with pytest.raises(RunError, match=r"another model than \[model\] path holds now"):
        other.restore(tmp_path)


# --- π_old, which the trainer computes -----------------------------------------------------


def test_with_tis_the_first_update_has_a_ratio_of_exactly_1(llama):
    """So its loss is −w·A, whatever the sampler said; the second one moves against π_old."""
    seen = []

    class Watched(Grpo):
        def token_loss(self, logprobs, rollout_logprobs, advantages, old=None):
            seen.append((logprobs.detach().clone(), old.clone()))
            return super().token_loss(logprobs, rollout_logprobs, advantages, old)

    trainer = trainer_of(llama, Watched(tis=2.0), epochs=2, micro_batch_tokens=60)
    trainer.step(BATCH)
    parts = len(seen) // 2
    assert parts > 1
    assert all(torch.equal(new, old) for new, old in seen[:parts])
    assert not any(torch.equal(new, old) for new, old in seen[parts:])
    for (_, first), (_, second) in zip(seen[:parts], seen[parts:], strict=True):
        assert torch.equal(first, second)  # computed once a batch


def test_with_tis_the_loss_is_that_written_by_hand(llama):
    trainer = trainer_of(llama, Grpo(tis=2.0))
    metrics = trainer.step(BATCH)
    model, total, count = tiny("llama"), 0.0, 0
    for sample in BATCH.samples:
        with torch.no_grad():
            logprobs = model(torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        for t, trained in enumerate(sample.loss_mask):
            if trained:
                own = logprobs[t - 1, sample.token_ids[t]].item()
                weight = min(math.exp(own - sample.rollout_logprobs[t]), 2.0)
                total -= weight * sample.advantages[t]
                count += 1
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-4)


# --- schedules ------------------------------------------------------------------------------

# By hand: warm-up over 2 updates, over at update 6, down to a tenth.
RATES = {
    "constant": [0.5, 1, 1, 1, 1, 1, 1, 1],
    "linear": [0.5, 1, 1, 0.775, 0.55, 0.325, 0.1, 0.1],
    "cosine": [0.5, 1, 1, 0.1 + 0.9 * (2 + 2**0.5) / 4, 0.55, 0.1 + 0.9 * (2 - 2**0.5) / 4, 0.1,
               0.1],
}  # fmt: skip


@pytest.mark.parametrize("schedule", RATES)
def test_the_step_size_follows_its_schedule(llama, schedule, tmp_path):
    assert [rate_factor(u, schedule, 2, 6, 0.1) for u in range(8)] == pytest.approx(RATES[schedule])
    options = {
        "schedule": schedule, "warmup_steps": 2, "schedule_steps": 6, "schedule_min_ratio": 0.1,
    }  # fmt: skip
    trainer = trainer_of(llama, learning_rate=1e-3, **options)
    rates = [trainer.step(BATCH)["learning_rate"] for _ in range(4)]
    trainer.save(tmp_path)
    trainer = trainer_of(llama, learning_rate=1e-3, **options)
    trainer.restore(tmp_path)
    rates += [trainer.step(BATCH)["learning_rate"] for _ in range(4)]
    assert rates == pytest.approx([1e-3 * rate for rate in RATES[schedule]])


def test_without_a_warm_up_it_starts_in_full_and_may_end_at_0():
    assert [rate_factor(u, "linear", 0, 4, 0.0) for u in range(6)] == [1, 0.75, 0.5, 0.25, 0, 0]
    assert [rate_factor(u, "constant", 0, 0, 0.0) for u in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("options", [{}, {"schedule_steps": 5, "warmup_steps": 5}])
def test_a_schedule_without_a_length_is_an_error(registry, options):
    with pytest.raises(ConfigError, match="schedule = 'cosine' needs schedule_steps"):
        registry.build(PluginSection("trainer", "hf", {"schedule": "cosine", **options}))


# --- scoring --------------------------------------------------------------------------------

PROMPTS = [tuple(range(3, 3 + n)) for n in (4, 9, 1, 6, 2)]
COMPLETIONS = [(1, 2, 3), (4,), (5, 6, 7, 8, 9, 10, 11), (), (0, 0)]


@pytest.mark.parametrize("budget", [8192, 20, 1])
def test_scores_are_those_of_the_policy_at_the_same_weights(folder, way, budget):
    trainer = trainer_of(folder, micro_batch_tokens=budget, **FAST, **way)
    trainer.step(BATCH)
    trainer.step(BATCH)
    policy = policy_of(folder)
    asyncio.run(policy.load(trainer.weights(), 2))
    ours = trainer.score(PROMPTS, COMPLETIONS)
    assert [len(row) for row in ours] == [3, 1, 7, 0, 2]
    asked = [i for i, completion in enumerate(COMPLETIONS) if completion]
    theirs = asyncio.run(
        policy.score([PROMPTS[i] for i in asked], [COMPLETIONS[i] for i in asked], 2)
    )
    for i, row in zip(asked, theirs, strict=True):
        assert ours[i] == pytest.approx(row, abs=1e-5)


def test_scoring_leaves_the_next_update_as_it_is(llama, way):
    options = {"gradient_checkpointing": True, "kl_coefficient": 0.1, **FAST, **way}
    asked, left = trainer_of(llama, **options), trainer_of(llama, **options)
    for _ in range(2):
        asked.score(PROMPTS, COMPLETIONS)
        assert bare(asked.step(BATCH)) == bare(left.step(BATCH))
    same(dict(asked.weights()), dict(left.weights()))


def test_scoring_after_nothing_is_an_error(llama):
    trainer = trainer_of(llama)
    assert trainer.score([], []) == []
    with pytest.raises(NumericsError, match="a prompt is empty"):
        trainer.score([(1,), ()], [(2,), (3,)])


# --- micro-batches --------------------------------------------------------------------------


def test_rows_are_cut_in_order_and_within_the_budget():
    assert list(cut([3, 3, 3, 9, 2, 2], 9)) == [[0, 1, 2], [3], [4, 5]]
    assert list(cut([5, 1, 1], 4)) == [[0], [1, 2]]
    assert list(cut([], 4)) == []


def test_half_precision_sums_gradients_in_float32(llama, tmp_path):
    """32 equal micro-batches: in bfloat16 the sum would stick at 2⁸ times an addend's last bit."""
    batch = Batch(tuple(evolve(random_sample(3), rollout=i) for i in range(32)))
    found = {}
    for budget in (1, 8192):
        trainer = trainer_of(llama, dtype="bfloat16", micro_batch_tokens=budget, beta1=0.0)
        trainer.step(batch)
        found[budget] = optimiser(trainer, tmp_path / str(budget))
    alone = trainer_of(llama, dtype="bfloat16", beta1=0.0)
    alone.step(Batch(batch.samples[:1]))
    one = optimiser(alone, tmp_path / "one")
    name = "state/exp_avg/model.layers.0.mlp.up_proj.weight"
    error = (found[1][name] - one[name]).norm() / one[name].norm()
    assert error < 2e-3
