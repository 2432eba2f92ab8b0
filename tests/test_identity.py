"""RTI that intervenes on nothing is GRPO, bit for bit: losses and final parameters."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch

from rti import Group, RequestKey
from rti.batch import build_batch
from rti.engine import tasks_of_step, train

STEPS = 3

PLUGIN = '''
from attrs import define, field, frozen
from rti import Correction, Diagnosis, Verdict, hookimpl

@frozen
class No:
    """Rejects every correction."""

    async def verify(self, correction, draft, history, evidence, privileged):
        return Verdict(False, "on principle")

@frozen
class First:
    """Flags the first turn."""

    async def validate(self, turn, history, evidence):
        return Diagnosis(turn.index == 0, "first", "ask user to run it")

@define
class Ask:
    """Asks the user to run the fix."""

    renderer = None

    def bind(self, context):
        Ask.renderer = context.renderer

    async def correct(self, draft, diagnosis, history, tools):
        said = history.messages[1].content.split()
        if "is" not in said:
            return None
        fix = " ".join(said[said.index("is") + 1 : -1])
        ids = self.renderer.encode(f"need {fix} . ask {fix} <e>")
        return Correction(ids, self.renderer.parse(ids))

@hookimpl
def rti_verifiers():
    return {"no": No}

@hookimpl
def rti_validators():
    return {"first": First}

@hookimpl
def rti_correctors():
    return {"ask": Ask}
'''


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "identity_plugin.py"
    path.write_text(PLUGIN)
    return path


def trained(run):
    """(losses of all steps, final parameters, events) of a run through the engine."""
    asyncio.run(train(run))
    events = [json.loads(line) for line in (run.out / "events.jsonl").read_text().splitlines()]
    steps = [e for e in events if e["event"] == "StepDone"]
    assert [e["step"] for e in steps] == list(range(STEPS))
    losses = [e["metrics"].get("loss") for e in steps]
    return losses, {n: w.clone() for n, w in run.trainer.weights().items()}, events


def plain_grpo(run):
    """The same by hand: rollouts, group advantages, one update a step. No repairer anywhere."""
    actor, config = run.actor, run.config
    losses = []

    async def episode(task, i, step):
        made = await actor.episode(task, i, RequestKey(config.run.seed, step, task.id, i))
        await made.close()
        return made.rollout

    async def loop():
        await actor.policy.load(run.trainer.weights(), 0)
        for step in range(STEPS):
            tasks = tasks_of_step(
                run.environment.tasks("train"), step, config.run.seed, 0, config.rollout.families
            )
            size = config.rollout.group_size
            flat = await actor.policy.gather(
                [episode(t, i, step) for t in tasks for i in range(size)]
            )
            groups = [Group(t, tuple(flat[n * size : (n + 1) * size])) for n, t in enumerate(tasks)]
            objective = run.collector.objective
            batch = build_batch(groups, objective, run.renderer.extends, actor.policy.version)
            losses.append(run.trainer.step(batch)["loss"] if batch.samples else None)
            await actor.policy.load(run.trainer.weights(), step + 1)

    asyncio.run(loop())
    return losses, run.trainer.weights()


def assert_same(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    for name, weight in one[1].items():
        assert torch.equal(weight, other[1][name]), name


@pytest.fixture
def build(pocket, tmp_path, plugin):
    def made(name, *overrides):
        return pocket(f"run.steps={STEPS}", f"run.out={tmp_path / name}", *overrides, plugin=plugin)

    return made


def test_without_interventions_it_is_grpo_bit_for_bit(build):
    grpo = plain_grpo(build("plain"))
    assert any(loss is not None for loss in grpo[0])  # some groups gave signal
    base = build("untouched").trainer.weights()
    assert not all(torch.equal(w, base[n]) for n, w in grpo[1].items())

    never = trained(build("never", "trigger.use=never"))
    assert_same(never, grpo)
    assert not any(e["event"] == "TurnRepaired" for e in never[2])

    gated = trained(build("gated", "gate.delta=0", "verifier.use=[]"))
    assert_same(gated, grpo)
    looks = [e for e in gated[2] if e["event"] == "TurnRepaired"]
    scored = [e for e in looks if e["stage"] == "gated"]
    assert scored  # interventions were really sampled, and scored at the gate
    assert all(e["perplexity"] >= 1 - 1e-6 and e["threshold"] == 0 for e in scored)

    rejected = trained(build("rejected", "verifier.use=no", "gate.delta=inf"))
    assert_same(rejected, grpo)
    looks = [e for e in rejected[2] if e["event"] == "TurnRepaired"]
    assert any(e["stage"] == "rejected" and e["reason"] == "no: on principle" for e in looks)
    assert not any(e["trained"] for e in looks)


def test_and_with_an_intervention_that_succeeds_it_is_not(build):
    """The control: the same work does change the run when corrections come through."""
    never = trained(build("never", "trigger.use=never"))
    rti = trained(
        build("rti", "validator.use=first", "corrector.use=ask", "verifier.use=[]", "gate.use=[]")
    )
    assert any(e["event"] == "TurnRepaired" and e["trained"] for e in rti[2])
    assert never[0] != rti[0]
    assert not all(torch.equal(w, rti[1][n]) for n, w in never[1].items())


def test_the_same_seed_gives_the_same_run_and_another_seed_another(build):
    first, again = trained(build("one")), trained(build("two"))
    assert_same(first, again)

    def bare(events):
        """Events without what a clock says."""
        for event in events:
            event.pop("time", None)
            for name in [n for n in event.get("metrics", {}) if "seconds" in n]:
                del event["metrics"][name]
        return [e for e in events if e["event"] in ("StepDone", "TurnRepaired")]

    assert bare(first[2]) == bare(again[2])
    other = trained(build("three", "run.seed=4"))
    assert not all(torch.equal(w, other[1][n]) for n, w in first[1].items())
