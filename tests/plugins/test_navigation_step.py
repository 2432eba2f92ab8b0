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
from whole_step import SMALL, repaired_and_learned_from, tiny_llama

from rti.assemble import assemble
from rti.config import load_config
from rti.conformance import play
from rti.registry import Registry

RECIPE = Path(__file__).parents[2] / "recipes" / "navigation-smollm2.toml"
FAKES = Path(__file__).with_name("gold_replay.py")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer with random weights, and a tokenizer with Qwen's added tokens."""
    from transformers import PreTrainedTokenizerFast

    folder = make_qwen_tokenizer(tmp_path_factory.mktemp("models") / "tiny")
    return tiny_llama(folder, len(PreTrainedTokenizerFast.from_pretrained(folder)))


def test_a_step_goes_from_rollouts_by_repairs_to_an_update(tiny: Path, tmp_path: Path) -> None:
    registry = Registry.load(files=[FAKES])
    config = load_config(RECIPE, [f"model.path={tiny}", f"run.out={tmp_path / 'run'}", *SMALL])
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

    repaired_and_learned_from(run, asyncio.run(collect()))
