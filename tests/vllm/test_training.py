"""Whole RTI steps by vLLM: rollouts, a correction, an update, a push, a checkpoint, a resume.

A 135M model corrects nothing by itself, so the Validator and the Corrector are the gold-replay
fakes; policy, renderer, environment, gate, weighter and trainer are real.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from vllm_real import apart, named

from rti.assemble import Run, assemble
from rti.checkpoint import read_state
from rti.config import load_config
from rti.conformance import play
from rti.engine import checkpoint_to_read, train
from rti.registry import Registry

FAKES = Path(__file__).parents[1] / "plugins" / "gold_replay.py"
CONFIG = """
[run]
seed = 1
[model]
path = "{model}"
[environment]
use = "pocket"
train_tasks = 2
[renderer]
use = "chatml"
[rollout]
group_size = 2
max_turns = 4
max_new_tokens = 12
families = {{ AH = 1 }}
[intervention]
attempts = 1
scope = "all"
when = "before_step"
[validator]
use = "flags-everything"
[corrector]
use = "gold-replay"
[veto]
use = []
[verifier]
use = []
[gate]
delta = inf
[policy]
use = "vllm"
base_urls = ["{url}"]
[trainer]
use = "hf"
learning_rate = 1e-5
[reporter]
use = "jsonl"
[checkpoint]
every = 1
"""


@pytest.fixture
def build(policy: Any, folder: Path, reference: Any, tmp_path: Path) -> Any:
    """Builds the run on the session's server, which gets its weights back afterwards."""
    [endpoint] = policy._remote.client.endpoints
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.format(model=folder, url=endpoint.url), encoding="utf-8")
    registry = Registry.load([FAKES])

    def made(*overrides: str) -> Run:
        config = load_config(path, [f"run.out={tmp_path / 'run'}", *overrides])
        run = assemble(config, registry)
        gold = sys.modules[registry.get("corrector", "gold-replay").__module__].GOLD
        agent = run.environment.reference("gold")

        async def fill() -> None:
            for task in run.environment.tasks("train"):
                if task.family == "AH":
                    gold[task.id] = tuple(
                        t.message for t in (await play(run.environment, task, agent, 20)).turns
                    )

        asyncio.run(fill())
        return run

    yield made
    asyncio.run(policy.load(named(reference), 0))


def steps(run: Run) -> list[dict[str, Any]]:
    lines = (run.out / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == "StepDone"]


def test_two_steps_learn_and_a_third_goes_on_from_the_checkpoint(build):
    run = build("run.steps=2")
    asyncio.run(train(run))
    first, second = (event["metrics"] for event in steps(run))
    for metrics in (first, second):
        assert metrics["groups_all_failed"] == 1
        assert metrics["rollouts_corrected"] == 1
        assert metrics["grad_norm"] > 0
        assert metrics["stale_samples"] == 0
    # The first step's logprobs are of the model as it came, the second's of weights pushed after
    # an update: on every trained token vLLM and the trainer agree.
    print("agreement on trained tokens:", first["log_ratio_max"], second["log_ratio_max"])
    assert first["log_ratio_max"] < 1e-3
    assert second["log_ratio_max"] < 1e-3
    assert [e["policy_version"] for e in steps(run)] == [1, 2]
    # And so they do after the second push; which was needed, for the update moved them by more.
    prompts, completions = [tuple(range(100, 160))] * 2, [tuple(range(200, 240)), (5, 6, 7)]
    vllm = asyncio.run(run.policy.score(prompts, completions, 2))
    mean, most, count = apart(vllm, run.trainer.score(prompts, completions))
    print(f"after the push: mean {mean:.1e}, max {most:.1e} over {count} tokens")
    assert most < 1e-3
    saved = checkpoint_to_read(run.out)
    assert read_state(saved).step == 2
    asyncio.run(run.close())

    more = build("run.steps=3")
    before = more.trainer.score(prompts, completions)
    assert apart(before, vllm)[1] > 1e-2  # the model as it came
    asyncio.run(train(more, resume=True))
    third = steps(more)[-1]
    assert (third["step"], third["policy_version"]) == (2, 3)
    assert third["metrics"]["log_ratio_max"] < 1e-3
    asyncio.run(more.close())
