"""A local teacher: its rollouts in the groups, its logprobs, and runs that learn from it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from attrs import evolve
from fakes import SpeakingPolicy, closes_with_the_code, gives_up

pytest.importorskip("torch")

from rti import ConfigError, NumericsError, Provenance
from rti.batch import demonstrations
from rti.cli import main
from rti.engine import train
from rti.folders import model_folder
from rti.teacher import Teacher, check_vocabulary

BASE = "rti_pocket:base"
GROUPS, SIZE = 4, 4


@pytest.fixture
def build(pocket, tmp_path):
    """Builds a small run that needs a teacher; by default it is a twin of the policy."""

    def made(objective, *overrides, weights=BASE, name="run"):
        return pocket(
            f"objective.use={objective}", f"teacher.weights={weights}", "trigger.use=never",
            "rollout.max_new_tokens=40", f"run.out={tmp_path / name}", *overrides,
        )  # fmt: skip

    return made


def collect(run, *families, step=0):
    tasks = [
        next(t for t in run.environment.tasks("train") if t.family == family) for family in families
    ]
    return asyncio.run(run.collector.collect(tasks, run.actor.policy.version, step))


def scripted(run, says, tries=4):
    """A teacher that speaks as it is told; its script is its policy."""
    policy = SpeakingPolicy(run.policy, run.renderer, says)
    by = Provenance("demonstration", "hf", "rti-rl", "models/teacher")
    run.collector.teacher = Teacher(lambda: evolve(run.actor, policy=policy), by, tries)
    return policy


def solves(words, key):
    """Asks the user for the fix that the user named, then closes with the code; at desks only."""
    said = words.split()
    if "code" in said or "is" not in said:
        return closes_with_the_code(words, key)
    fix = " ".join(said[said.index("is") + 1 : said.index("agent", said.index("is"))]).rstrip(" .")
    return f"need {fix} . ask {fix} <e>"


# --- demonstrations -------------------------------------------------------------------------


def test_the_teachers_rollout_takes_one_place_of_each_group(build):
    run = build("luffy")
    policy = scripted(run, solves)
    batch = collect(run, "AH", "AH")
    for number, group in enumerate(batch.groups):
        assert [r.demonstration for r in group.rollouts] == [False] * (SIZE - 1) + [True]
        assert [r.index for r in group.rollouts] == [SIZE * number + i for i in range(SIZE)]
        shown = group.rollouts[-1]
        assert shown.success
        for turn in shown.turns:
            assert turn.provenance == run.collector.teacher.provenance
            assert turn.rollout_logprobs == (0.0,) * len(turn.completion_ids)
    m = batch.metrics
    assert (m["demonstrations"], m["demonstrations_missing"]) == (2, 0)
    # What is said of the policy is said of its own rollouts.
    assert m["rollouts"] == 2 * (SIZE - 1)
    own = [r for g in batch.groups for r in g.rollouts if not r.demonstration]
    assert m["pass@1"] == sum(r.success for r in own) / len(own)
    assert {key.rollout for _, key in policy.asked} == {SIZE - 1, 2 * SIZE - 1}
    assert m["groups_with_signal"] == sum(
        not all(r.success for r in g.rollouts) for g in batch.groups
    )


def test_its_tokens_are_marked_and_trained_on(build):
    run = build("luffy")
    scripted(run, solves)
    batch = collect(run, "AH", "BH")
    flags = batch.aux["demonstrations"]
    assert flags == demonstrations(batch.samples)
    assert [len(row) for row in flags] == [len(s.token_ids) for s in batch.samples]
    marked = 0
    for sample, row in zip(batch.samples, flags, strict=True):
        for span in sample.spans:
            theirs = span.provenance.kind == "demonstration"
            assert set(row[span.start : span.stop]) == {float(theirs)}
            assert all(sample.loss_mask[span.start : span.stop])
            marked += (span.stop - span.start) * theirs
        assert sum(row) == sum(
            span.stop - span.start for span in sample.spans if span.provenance.kind != "policy"
        )
    assert batch.metrics["demonstration_tokens"] == marked > 0
    assert batch.metrics["corrected_tokens"] == 0


def test_without_a_success_the_group_goes_without(build):
    run = build("luffy")
    policy = scripted(run, gives_up, tries=3)
    batch = collect(run, "AH", "A1")
    assert [len(g.rollouts) for g in batch.groups] == [SIZE - 1] * 2
    assert (batch.metrics["demonstrations"], batch.metrics["demonstrations_missing"]) == (0, 2)
    assert sum(map(sum, batch.aux["demonstrations"])) == 0
    attempts = {(key.task, key.attempt) for _, key in policy.asked}
    assert len(attempts) == 2 * 3


def test_only_what_failed_is_played_again(build):
    run = build("luffy")

    def at_second_try(words, key):
        return solves(words, key) if key.attempt or key.rollout < SIZE else gives_up(words, key)

    policy = scripted(run, at_second_try)
    batch = collect(run, "AH", "AH")  # one task, twice
    assert batch.metrics["demonstrations"] == 2
    tried = {(key.rollout, key.attempt) for _, key in policy.asked}
    assert tried == {(3, 0), (7, 0), (7, 1)}


def test_the_teachers_tokens_are_counted_apart(build):
    run = build("luffy")
    before = dict(run.policy.usage)
    batch = collect(run, "A1", "A3", "B1", "B2")
    m = batch.metrics
    own = [t for g in batch.groups for r in g.rollouts if not r.demonstration for t in r.turns]
    assert m["sampled_tokens"] == sum(len(t.completion_ids) for t in own)
    assert m["sampled_tokens"] == run.policy.usage["sampled_tokens"] - before["sampled_tokens"]
    assert m["teacher_tokens_sampled"] >= m["demonstration_tokens"]
    assert m["demonstrations"] > 0
    assert m["demonstrations"] + m["demonstrations_missing"] == GROUPS
    assert m["teacher_tokens_scored"] == m["teacher_faults"] == 0
    assert m["seconds_teacher"] > 0
    again = collect(run, "A1", "A3", "B1", "B2").metrics
    assert again["teacher_tokens_sampled"] == m["teacher_tokens_sampled"]  # of each step


def test_the_teacher_keeps_nothing_of_an_earlier_step(build):
    """A resumed run would not have it, and its numbers would differ in the last bit."""
    run = build("luffy")
    reused = []
    for _ in range(3):
        collect(run, "A1", "B1")
        reused.append(run.collector.teacher.actor.policy.usage["reused_tokens"])
    assert reused == [reused[0], 2 * reused[0], 3 * reused[0]]
    assert reused[0] > 0


# --- logprobs -------------------------------------------------------------------------------


def test_the_teacher_scores_every_trained_token_at_its_rollout_prompt(build):
    run = build("opd")
    batch = collect(run, "AH", "A1", "B1")
    teacher = run.collector.teacher.actor.policy
    assert teacher is not run.policy
    waiting = [t for g in batch.groups for r in g.rollouts for t in r.turns]
    for sample, row in zip(batch.samples, batch.aux["teacher"], strict=True):
        assert len(row) == len(sample.token_ids)
        assert all(v == 0 for v, m in zip(row, sample.loss_mask, strict=True) if not m)
        for span in sample.spans:
            turn = waiting.pop(0)
            [alone] = asyncio.run(
                teacher.score([turn.prompt_ids], [turn.completion_ids], teacher.version)
            )
            assert row[span.start : span.stop] == pytest.approx(alone, abs=1e-4)
    assert waiting == []
    m = batch.metrics
    assert m["teacher_tokens_scored"] == m["trained_tokens"] > 0
    assert (m["scored_tokens"], m["teacher_tokens_sampled"]) == (0, 0)
    # The twin knows the tokens as well as the policy does.
    assert m["teacher_kl"] == pytest.approx(0, abs=1e-4)
    assert "demonstrations" not in m


def test_groups_without_a_signal_are_trained_on_too(build):
    run = build("opd")
    run.actor.policy = SpeakingPolicy(run.policy, run.renderer, gives_up)
    batch = collect(run, "AH", "A1")
    assert [set(g.outcomes_G) for g in batch.groups] == [{0.0}, {0.0}]
    assert {s.group for s in batch.samples} == {0, 1}
    assert batch.metrics["groups_with_signal"] == 2
    assert all(set(s.advantages) == {0.0} for s in batch.samples)


def test_a_teacher_that_is_lost_for_a_number_is_an_error(build):
    run = build("opd")

    class Lost(SpeakingPolicy):
        async def score(self, prompts, completions, version):
            return [(float("nan"),) * len(c) for c in completions]

    policy = Lost(run.policy, run.renderer, gives_up)
    run.collector.teacher = Teacher(lambda: evolve(run.actor, policy=policy), Provenance())
    with pytest.raises(NumericsError, match=r"\[teacher\] weights: .* is nan"):
        collect(run, "A1")


# --- runs -----------------------------------------------------------------------------------


def events(out, kind="StepDone"):
    lines = (Path(out) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def told(out):
    metrics = [e["metrics"] for e in events(out)]
    return [{k: v for k, v in m.items() if "seconds" not in k} for m in metrics]


def tensors(out, step):
    folder = Path(out) / "checkpoints" / f"step-{step:06d}"
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another model over the same words."""
    from rti_pocket.warmstart import new_model, save_base

    folder = tmp_path_factory.mktemp("teacher")
    save_base(new_model(5), folder)
    return folder


@pytest.mark.parametrize("objective", ["luffy", "opd"])
def test_resuming_with_a_teacher_is_bit_for_bit(build, other, objective):
    weights = {"luffy": BASE, "opd": other}[objective]
    # So short that easy tasks fail now and then, and the twin has something to show.
    overrides = ("rollout.families={AH = 1, A1 = 2, A3 = 1}", "rollout.max_new_tokens=18")

    def run(name, steps):
        return build(objective, f"run.steps={steps}", *overrides, weights=weights, name=name)

    asyncio.run(train(run("whole", 3)))
    asyncio.run(train(run("halves", 1)))
    asyncio.run(train(run("halves", 3), resume=True))
    whole, halves = (run(name, 3).out for name in ("whole", "halves"))
    assert tensors(halves, 3) == tensors(whole, 3) != {}
    assert told(halves) == told(whole)
    learned = told(whole)
    assert "loss" in learned[-1]
    if objective == "opd":
        assert all("loss" in m for m in learned)
        assert all(m["teacher_kl"] > 0 for m in learned)
        assert learned[-1]["tokens"] == sum(m["sampled_tokens"] for m in learned)
    else:
        assert sum(m["demonstrations"] for m in learned) > 0


def test_another_teacher_is_another_run(build, other):
    one = ("run.steps=1", "rollout.families={A1 = 1}")
    asyncio.run(train(build("opd", *one)))
    with pytest.raises(ConfigError, match=r"--resume: \[teacher\] differs"):
        asyncio.run(train(build("opd", *one, weights=other), resume=True))


# --- what cannot begin ----------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "need"), [("luffy", "demonstrations"), ("opd", "teacher")])
def test_a_run_without_the_teacher_it_needs_does_not_begin(build, objective, need):
    run = build(objective, weights="")
    with pytest.raises(ConfigError, match=rf"\[teacher\] weights is empty.*'{need}'"):
        asyncio.run(train(run))
    assert not run.out.exists()
    with pytest.raises(ConfigError, match=r"\[teacher\] weights is empty"):
        collect(run, "A1")


def test_the_command_says_so_and_exits_with_2(pocket_toml, capsys):
    assert main(["train", str(pocket_toml), "--set", "objective.use=opd"]) == 2
    assert "[teacher] weights is empty" in capsys.readouterr().err


def test_an_objective_that_needs_no_teacher_loads_none(pocket, tmp_path):
    run = pocket(f"teacher.weights={tmp_path / 'nowhere'}", "run.steps=1")
    assert run.collector.teacher is None
    assert "teacher_tokens_sampled" not in collect(run, "A1").metrics


def test_evaluating_loads_no_teacher(build, tmp_path):
    from rti.engine import evaluate_run

    run = build("luffy", "eval.tasks=1", "eval.trials=1", weights=tmp_path / "nowhere")
    assert asyncio.run(evaluate_run(run)).metrics["tasks"] == 1


def test_a_folder_without_a_model_is_named_as_the_teachers(build, tmp_path):
    with pytest.raises(ConfigError, match=r"\[teacher\] weights = .*no config.json") as caught:
        asyncio.run(train(build("luffy", weights=tmp_path)))
    assert "[model]" not in str(caught.value)


def test_a_teacher_with_other_tokens_is_refused(build, tmp_path):
    folder = tmp_path / "foreign"
    shutil.copytree(model_folder(BASE), folder)
    path = folder / "tokenizer.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    words = table["model"]["vocab"]
    words["telecom"], words["nav"] = words["nav"], words["telecom"]
    path.write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        asyncio.run(train(build("opd", weights=folder)))
    message = str(caught.value)
    assert message.startswith("[teacher] weights = ")
    assert "its tokenizer is not the policy's. 2 tokens have another id or none, 'nav'" in message
    assert 'use = "teacher"' in message
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer in .* cannot be read"):
        check_vocabulary(str(folder), BASE)
