"""A smoke test: one whole RTI step on navigation with a tiny, random model.

The Corrector is a fake that replays the gold turns (`gold_replay.py`), so that the step gets as far
as the update. It says that the path runs, and nothing about learning.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")

from qwen_tokenizer import make_qwen_tokenizer

from rti.assemble import assemble
from rti.config import load_config
from rti.conformance import play
from rti.registry import Registry

RECIPE = Path(__file__).parents[2] / "recipes" / "navigation-smollm2.toml"
FAKES = Path(__file__).with_name("gold_replay.py")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer with random weights, and a tokenizer with Qwen's added tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = make_qwen_tokenizer(tmp_path_factory.mktemp("models") / "tiny")
    words = len(PreTrainedTokenizerFast.from_pretrained(folder))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16384,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_a_step_goes_from_rollouts_by_repairs_to_an_update(tiny: Path, tmp_path: Path) -> None:
    registry = Registry.load(files=[FAKES])
    config = load_config(
        RECIPE,
        [
            f"model.path={tiny}",
            f"run.out={tmp_path / 'run'}",
            "model.threads=1",
            "rollout.max_new_tokens=4",
            "rollout.max_context=16384",
            "intervention.scope=all",
            "intervention.when=before_step",
            "validator.use=flags-everything",
            "corrector.use=gold-replay",
            "verifier.use=[]",
            "gate.delta=inf",
            "reporter.use=[]",
            "trainer.learning_rate=1e-3",
            "trainer.micro_batch_tokens=16384",
        ],
    )
    run = assemble(config, registry)
    gold = run.environment.reference("gold")
    replay = sys.modules[registry.get("corrector", "gold-replay").__module__]
    task = next(t for t in run.environment.tasks("train") if t.family == "buried")

    async def collect():
        played = await play(run.environment, task, gold, 8)
        replay.GOLD.clear()
        replay.GOLD[task.id] = tuple(t.message for t in played.turns)
        await run.policy.load(run.trainer.weights(), 0)
        return await run.collector.collect([task], 0)

    batch = asyncio.run(collect())
    [group] = batch.groups
    assert batch.metrics["groups_all_failed"] == 1
    assert sorted(r.outcome for r in group.rollouts) == [0.0, 1.0]
    repaired = next(r for r in group.rollouts if r.success)
    assert all(t.corrected for t in repaired.turns)
    before = {name: value.clone() for name, value in run.trainer.weights().items()}
    metrics = run.trainer.step(batch)
    assert metrics["grad_norm"] > 0
    after = run.trainer.weights()
    assert any(not before[name].equal(after[name]) for name in before)
