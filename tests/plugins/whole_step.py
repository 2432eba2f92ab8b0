"""What the smoke tests of one whole RTI step share: a tiny model, and how far the step must get."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def tiny_llama(folder: Path, words: int) -> Path:
    """A Llama of one layer with random weights, for a tokenizer that lies in the folder already."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

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


SMALL = [
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
]
"""Changes to a recipe: the fakes of `gold_replay.py` in the roles, and little of everything."""


def repaired_and_learned_from(run: Any, batch: Any) -> None:
    """One group failed as a whole, one rollout was repaired turn by turn, and weights move."""
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
