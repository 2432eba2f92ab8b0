"""The correction path with a real model (SmolLM2-135M) on a real benchmark (τ²-telecom)."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("tau2", reason="needs the extra tau2")
pytest.importorskip("torch", reason="needs the extra hf")

from whole_step import SMALL, repaired_and_learned_from, tiny_llama

from rti.assemble import assemble
from rti.config import load_config
from rti.conformance import play
from rti.registry import Registry

RECIPE = Path(__file__).parents[2] / "recipes" / "tau2-telecom-smollm2.toml"
FAKES = Path(__file__).with_name("gold_replay.py")


@pytest.mark.slow
def test_gold_turns_reach_outcome_1_and_the_loss(smollm2_folder: Path, tmp_path: Path) -> None:
    registry = Registry.load(files=[FAKES])
    config = load_config(
        RECIPE,
        [
            f"model.path={smollm2_folder}",
            f"run.out={tmp_path / 'run'}",
            "model.dtype=float32",
            "model.threads=1",
            "environment.policy_document=brief",
            "rollout.max_new_tokens=8",
            "rollout.max_turns=4",
            "intervention.scope=all",
            "intervention.when=before_step",
            "validator.use=flags-everything",
            "corrector.use=gold-replay",
            "verifier.use=[]",
            "gate.delta=inf",
            "reporter.use=[]",
        ],
    )
    run = assemble(config, registry)
    gold = registry.get("corrector", "gold-replay")
    module = sys.modules[gold.__module__]
    module.GOLD.clear()  # another test may have put its own there

    async def drive():
        agent = run.environment.reference("gold")
        for task in run.environment.tasks("train"):
            played = await play(run.environment, task, agent, 20)
            await played.session.close()
            asks_customer = any(not t.message.tool_calls for t in played.turns[:-1])
            if asks_customer and len(played.turns) <= 4:
                module.GOLD[task.id] = tuple(t.message for t in played.turns)
                break
        [task_id] = module.GOLD
        assert run.trainer is not None
        await run.policy.load(run.trainer.weights(), 0)
        return task_id, await run.collector.collect([task], 0)

    task_id, batch = asyncio.run(drive())
    gold_messages = module.GOLD[task_id]

    # The drafts failed, the repaired rollout did not, and it stands in its draft's place.
    [group] = batch.groups
    assert batch.metrics["groups_all_failed"] == 1
    assert sorted(r.outcome for r in group.rollouts) == [0.0, 1.0]
    repaired = next(r for r in group.rollouts if r.success)
    assert all(t.corrected for t in repaired.turns)
    assert len(repaired.turns) == len(gold_messages)

    # The corrected ids are in the batch as they are: they decode to the gold messages.
    sample = next(
        s for s in batch.samples if any(p.provenance.kind == "correction" for p in s.spans)
    )
    for span, message, turn in zip(sample.spans, gold_messages, repaired.turns, strict=True):
        ids = sample.token_ids[span.start : span.stop]
        assert ids == turn.completion_ids == run.renderer.turn(message)
        said = run.renderer.parse(ids)
        assert (said.content, [c.name for c in said.tool_calls]) == (
            message.content,
            [c.name for c in message.tool_calls],
        )
        assert all(sample.loss_mask[span.start : span.stop])
        assert sample.weights[span.start : span.stop] == turn.weights
        assert span.provenance.plugin == "gold-replay"
        assert span.provenance.distribution.startswith(str(FAKES))
    corrected = [w for t in repaired.turns for w in t.weights]
    assert all(0.8 <= w <= 1.2 for w in corrected)
    assert len(set(corrected)) > 2

    # Their logprobs are those of π_roll at the original rollout prompt: the ratio is 1 and the
    # loss is −mean(A·w), which is not what it would be without the weights.
    assert run.trainer is not None
    metrics = run.trainer.step(batch)
    assert metrics["log_ratio_max"] < 1e-3
    trained = [
        (a, a / w)
        for s in batch.samples
        for a, w, m in zip(s.advantages, s.weights, s.loss_mask, strict=True)
        if m
    ]
    with_weights = -math.fsum(a for a, _ in trained) / len(trained)
    without = -math.fsum(a for _, a in trained) / len(trained)
    assert metrics["loss"] == pytest.approx(with_weights, abs=1e-4)
    assert abs(with_weights - without) > 1e-3
    assert metrics["grad_norm"] > 0


@pytest.fixture(scope="module")
def tiny(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer with random weights, and SmolLM2's tokenizer."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    tokenizer.save_pretrained(folder)
    return tiny_llama(folder, len(tokenizer))


@pytest.mark.parametrize("domain", ["retail", "airline"])
def test_a_step_goes_from_rollouts_by_repairs_to_an_update(
    domain: str, tiny: Path, tmp_path: Path
) -> None:
    """A smoke test: a tiny, random model, and gold turns in the Corrector's place."""
    registry = Registry.load(files=[FAKES])
    config = load_config(
        RECIPE.with_name(f"tau2-{domain}-smollm2.toml"),
        [
            f"model.path={tiny}",
            f"run.out={tmp_path / 'run'}",
            *SMALL,
            "environment.policy_document=brief",
            "rollout.max_turns=8",
            "veto.use=[]",  # gold turns act on ids that nobody has looked up
        ],
    )
    run = assemble(config, registry)
    replay = sys.modules[registry.get("corrector", "gold-replay").__module__]
    replay.GOLD.clear()

    async def collect():
        agent = run.environment.reference("gold")
        for task in run.environment.tasks("train"):
            played = await play(run.environment, task, agent, 20)
            await played.session.close()
            changes = [t for t in played.turns if t.message.tool_calls]
            if changes and len(played.turns) <= 8:
                replay.GOLD[task.id] = tuple(t.message for t in played.turns)
                break
        await run.policy.load(run.trainer.weights(), 0)
        return await run.collector.collect([task], 0)

    repaired_and_learned_from(run, asyncio.run(collect()))
