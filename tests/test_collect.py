"""Collecting a batch without a trainer: metrics that agree with the records, groups, sessions."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import torch
from attrs import define, evolve
from fakes import (
    POCKET,
    AsksForTheFix,
    FlagsTurns,
    Judges,
    SpeakingPolicy,
    TroubledEnvironment,
    closes_with_the_code,
)

from rti import Diagnosis, InfrastructureError, NoCorrection, RunError
from rti.counting import REACHED
from rti.ops import perplexity
from rti.words import explain

PROMPT = "<s> telecom . agent : feedback : ask user to run it . rewrite :"


def collect(collector, tasks, step=0):
    return asyncio.run(collector.collect(tasks, collector.actor.policy.version, step))


def of_family(run, family, count=1):
    return [t for t in run.environment.tasks("train") if t.family == family][:count]


@pytest.fixture
def repairing(pocket):
    """A run whose agent hands over at once, and whose roles ask the user to run the fix.

    So AH tasks (the fix is the user's) are repaired; A1 tasks fail again after the correction.
    """

    def build(*overrides):
        run = pocket(
            "rollout.max_new_tokens=40", "gate.delta=inf", "verifier.use=[]",
            "intervention.attempts=1", *overrides, trains=False,
        )  # fmt: skip
        collector = run.collector
        collector.actor.policy = SpeakingPolicy(run.policy, run.renderer, closes_with_the_code)
        collector.actor.environment = TroubledEnvironment(run.environment)
        collector.repairer.validator = FlagsTurns([0])
        collector.repairer.corrector = AsksForTheFix(run.renderer, PROMPT)
        return run

    return build


# --- a real batch ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(registry, tmp_path_factory):
    """A batch by the base model in all its roles."""
    from rti.assemble import assemble
    from rti.config import load_config

    path = tmp_path_factory.mktemp("real") / "pocket.toml"
    path.write_text(POCKET)
    overrides = ["gate.delta=1000", "rollout.max_new_tokens=40", "rollout.group_size=6"]
    run = assemble(load_config(path, overrides), registry, trains=False)
    tasks = of_family(run, "AH", 2) + of_family(run, "BH", 2) + of_family(run, "A1")
    return run, collect(run.collector, tasks)


def test_the_funnel_counts_the_records(real):
    run, batch = real
    m, records = batch.metrics, batch.interventions
    order = ["attempts", "flagged", "corrected", "verified", "admitted", "succeeded", "trained"]
    counts = [m[f"funnel/{name}"] for name in order]
    assert counts == sorted(counts, reverse=True)
    assert m["funnel/flagged"] > 0
    assert m["funnel/attempts"] == len(records)
    stages = Counter(r.stage for r in records)
    for name, through in REACHED.items():
        assert m[f"funnel/{name}"] == sum(stages[s] for s in through)
    assert m["funnel/flagged"] == sum(
        r.diagnosis is not None and r.diagnosis.harmful for r in records
    )
    assert m["funnel/corrected"] == sum(r.correction is not None for r in records)
    assert m["funnel/verified"] == sum(r.rollout_logprobs is not None for r in records)
    assert m["funnel/admitted"] == sum(r.weights is not None for r in records)
    assert m["funnel/trained"] == sum(r.trained for r in records)
    assert all(r.stage == "succeeded" for r in records if r.trained)
    tried = {(r.task.id, r.rollout) for r in records}
    assert m["funnel/candidates"] == len(tried)
    assert len(records) <= len(tried) * run.config.intervention.attempts
    values = [perplexity(torch.tensor(r.rollout_logprobs)) for r in records if r.rollout_logprobs]
    if values:
        assert m["mean_ppl"] == pytest.approx(sum(values) / len(values))
    else:
        assert "mean_ppl" not in m


def test_metrics_agree_with_the_groups(real):
    _, batch = real
    m = batch.metrics
    assert m["groups"] == len(batch.groups) == 5
    assert m["rollouts"] == 30
    drafts = [
        [r.draft_outcome if r.draft_outcome is not None else r.outcome for r in g.rollouts]
        for g in batch.groups
    ]
    failed = [not any(outcomes) for outcomes in drafts]
    assert m["groups_all_failed"] == m["groups_fired"] == sum(failed)
    assert m["groups_all_failed"] >= 1
    assert m["groups_all_succeeded"] == sum(all(outcomes) for outcomes in drafts)
    assert m["pass@1"] == pytest.approx(sum(map(sum, drafts)) / 30)
    assert m["pass@G"] == pytest.approx(sum(not f for f in failed) / 5)
    corrected = [r for g in batch.groups for r in g.rollouts if r.corrected]
    assert m["rollouts_corrected"] == len(corrected)
    assert all(r.success and r.draft_outcome == 0.0 for r in corrected)
    mixed = [g for g in batch.groups if len(set(g.outcomes_G)) > 1]
    assert m["groups_with_signal"] == len(mixed)
    assert m["sampled_tokens"] > 0
    assert m["seconds_rollout"] > 0
    assert m["trained_tokens"] == sum(sum(s.loss_mask) for s in batch.samples)
    for group, fired in zip(batch.groups, failed, strict=True):
        repaired = sum(r.corrected for r in group.rollouts)
        assert repaired <= (3 if fired else 0)


def test_weights_are_1_except_on_corrected_turns_where_they_are_clipped(real):
    _, batch = real
    for sample in batch.samples:
        corrected = {
            i
            for s in sample.spans
            if s.provenance.kind == "correction"
            for i in range(s.start, s.stop)
        }
        for i, weight in enumerate(sample.weights):
            assert weight == 1.0 if i not in corrected else 0.8 <= weight <= 1.2


def test_no_intervention_where_one_succeeded(real):
    _, batch = real
    for group in batch.groups:
        if any(r.success and not r.corrected for r in group.rollouts):
            assert not any(r.task == group.task for r in batch.interventions)
            assert not any(r.corrected for r in group.rollouts)


# --- repairs that are sure to work ----------------------------------------------------------


def test_a_repaired_rollout_takes_its_drafts_place(repairing):
    run = repairing()
    ah, a1 = of_family(run, "AH"), of_family(run, "A1")
    batch = collect(run.collector, ah + a1)
    repaired, untouched = batch.groups
    assert [r.success for r in repaired.rollouts] == [True, True, False, False]
    assert [r.index for r in repaired.rollouts] == [0, 1, 2, 3]
    assert [r.corrected for r in repaired.rollouts] == [True, True, False, False]
    assert untouched.outcomes_G == (0.0,) * 4
    assert not any(r.corrected for r in untouched.rollouts)
    assert [r.stage for r in batch.interventions] == ["succeeded"] * 2 + ["failed"] * 2
    assert batch.metrics["groups_all_failed"] == 2  # judged on the drafts
    assert batch.metrics["groups_with_signal"] == 1  # judged on what came of them
    assert {s.group for s in batch.samples} == {0}
    assert batch.metrics["rollouts_corrected"] == 2
    assert explain(batch) == "1 of 2 groups gives signal, with 2 repaired rollouts."
    # No failed correction reaches the loss: its tokens stand in no sample.
    lengths = {len(r.correction.completion_ids) for r in batch.interventions if r.trained}
    assert batch.metrics["corrected_tokens"] == 2 * lengths.pop()


def test_one_success_means_that_the_policy_can_do_it_alone(repairing):
    run = repairing()

    def hands_over_once(words, key):
        """Nobody has the fix of an A3 task: handing over is right, calling about is not."""
        if key.rollout == 0 or "code" in words.split():
            return closes_with_the_code(words, key)
        return "need t0 t1 . call t0 t1 <e>"

    run.collector.actor.policy.says = hands_over_once
    batch = collect(run.collector, of_family(run, "A3") + of_family(run, "AH"))
    assert [g.outcomes_G.count(1.0) for g in batch.groups] == [1, 2]
    assert {r.task.family for r in batch.interventions} == {"AH"}
    assert batch.metrics["groups_fired"] == 1
    assert not any(r.corrected for r in batch.groups[0].rollouts)


def test_append_keeps_the_drafts_too(repairing):
    run = repairing("intervention.compose=append")
    batch = collect(run.collector, of_family(run, "AH"))
    [group] = batch.groups
    assert [r.index for r in group.rollouts] == [0, 1, 2, 3, 0, 1]
    assert group.outcomes_G == (0.0,) * 4 + (1.0,) * 2
    assert [r.corrected for r in group.rollouts] == [False] * 4 + [True] * 2
    assert [s.rollout for s in batch.samples] == [0, 1, 2, 3, 4, 5]
    advantages = run.collector.objective.advantages(group)
    assert [s.advantages[-1] for s in batch.samples] == pytest.approx(list(advantages))
    assert sum(advantages) == pytest.approx(0)


@pytest.mark.parametrize("compose", ["replace", "append"])
def test_corrected_tokens_carry_weights_and_provenance(repairing, compose):
    run = repairing(f"intervention.compose={compose}")
    batch = collect(run.collector, of_family(run, "AH"))
    [group] = batch.groups
    advantages = run.collector.objective.advantages(group)
    seen = 0
    for sample in batch.samples:
        for span in sample.spans:
            where = slice(span.start, span.stop)
            advantage = advantages[sample.rollout]
            if span.provenance.kind == "policy":
                assert set(sample.advantages[where]) == {advantage}
                continue
            seen += 1
            record = next(r for r in batch.interventions if r.trained)
            assert sample.token_ids[where] == record.correction.completion_ids
            assert sample.weights[where] == record.weights
            assert sample.rollout_logprobs[where] == record.rollout_logprobs
            assert sample.advantages[where] == tuple(advantage * w for w in record.weights)
            assert any(w != 1 for w in record.weights)
    assert seen == 2


def test_a_rejected_correction_never_reaches_the_batch(repairing):
    run = repairing()
    run.collector.repairer.verifiers = [("judge", Judges(False, "no"))]
    batch = collect(run.collector, of_family(run, "AH"))
    assert len(batch) == 0
    assert batch.metrics["funnel/corrected"] == 2
    assert batch.metrics["funnel/verified"] == 0
    assert "2 rejected by the Verifier" in explain(batch)
    assert "The weights stay as they are" in explain(batch)


def test_every_session_is_closed(repairing):
    run = repairing()
    collect(run.collector, of_family(run, "AH") + of_family(run, "A1"))
    log = Counter(run.collector.actor.environment.log)
    assert (log["start"], log["fork"]) == (8, 4)
    assert log["close"] == 12


def test_only_rollouts_that_are_left_can_be_repaired(repairing):
    run = repairing("rollout.retries=0", "intervention.repairs_per_group=3")
    environment = run.collector.actor.environment
    environment.trouble["start"] = [OSError("gone")] * 2
    batch = collect(run.collector, of_family(run, "AH"))
    [group] = batch.groups
    assert (group.faults, batch.metrics["faults"]) == (2, 2)
    # Two are left, and one of them stays failed: a group of successes has no signal either.
    assert [r.index for r in group.rollouts] == [2, 3]
    assert group.outcomes_G == (1.0, 0.0)
    assert batch.metrics["funnel/candidates"] == 1
    words = "2 rollouts dropped for infrastructure: starting the task crashed: OSError: gone."
    assert batch.notes == (words,)
    assert explain(batch).endswith(words)


def test_a_task_that_comes_twice_is_sampled_twice(pocket):
    run = pocket("trigger.use=never", "rollout.max_new_tokens=40", trains=False)
    task = of_family(run, "B1")
    batch = collect(run.collector, task + task)
    first, second = ([r.messages for r in g.rollouts] for g in batch.groups)
    assert first != second
    assert [r.index for g in batch.groups for r in g.rollouts] == list(range(8))


def test_repairs_of_a_task_that_comes_twice_go_to_their_own_group(repairing):
    run = repairing()
    task = of_family(run, "AH")
    batch = collect(run.collector, task + task)
    assert [g.outcomes_G for g in batch.groups] == [(1.0, 1.0, 0.0, 0.0)] * 2
    for group in batch.groups:
        assert [r.index for r in group.rollouts if r.corrected] == [
            group.rollouts[i].index for i in (0, 1)
        ]


def test_appended_repairs_of_a_task_that_comes_twice_do_too(repairing):
    run = repairing("intervention.compose=append")
    task = of_family(run, "AH")
    batch = collect(run.collector, task + task)
    for group in batch.groups:
        indices = [r.index for r in group.rollouts]
        assert len(indices) == 6  # four drafts, two repairs
        assert indices[4:] == indices[:2]


def test_collecting_with_another_version_is_an_error(pocket):
    run = pocket(trains=False)
    with pytest.raises(RunError, match="version 3, but the policy holds version 0"):
        asyncio.run(run.collector.collect(of_family(run, "A1"), 3))


def test_the_step_is_part_of_every_key(pocket):
    run = pocket("trigger.use=never", trains=False)
    task = of_family(run, "B1")
    said = [
        [r.messages for r in collect(run.collector, task, step).groups[0].rollouts]
        for step in (0, 1, 0)
    ]
    assert said[0] == said[2] != said[1]


# --- groups sampled anew --------------------------------------------------------------------


@pytest.fixture
def resampling(repairing):
    """A run that samples groups of one outcome anew: AH tasks all fail, A3 tasks all succeed."""

    def build(rounds=2):
        run = repairing("trigger.use=resample", f"trigger.rounds={rounds}")
        easy = {t.id for t in run.environment.tasks("train") if t.family == "A3"}

        def says(words, key):
            """Half of an A3 task's rollouts call about, which is wrong, where its number is odd."""
            mixed = key.task in easy and int(key.task.rpartition("-")[2]) % 2
            if mixed and key.rollout % 2:
                return "need t0 t1 . call t0 t1 <e>"
            return closes_with_the_code(words, key)

        run.collector.actor.policy.says = says
        return run

    return build


def test_a_group_of_one_outcome_gives_its_place_to_another(resampling):
    run = resampling()
    fails, [solved, mixed] = of_family(run, "AH"), of_family(run, "A3", 2)
    asked = []

    def further(number):
        asked.append(number)
        return [[mixed, mixed, mixed], [fails[0]] * 3][number - 1]

    work = run.collector.collect([*fails, mixed, solved], 0, 0, further)
    batch = asyncio.run(work)
    # Places keep their order; the second group stood from the start.
    assert [g.task for g in batch.groups] == [mixed, mixed, mixed]
    assert asked == [1]
    m = batch.metrics
    assert m["groups_resampled"] == 2
    assert m["groups"] == 5  # whatever was sampled counts
    assert (m["groups_all_failed"], m["groups_all_succeeded"]) == (1, 1)
    assert m["rollouts"] == 20
    assert m["pass@1"] == pytest.approx((0 + 4 + 3 * 2) / 20)
    assert m["groups_with_signal"] == 3
    assert m["groups_fired"] == 0
    # Three times the same task: each its own draws.
    assert [[r.index for r in g.rollouts] for g in batch.groups] == [
        [4, 5, 6, 7], [0, 1, 2, 3], [8, 9, 10, 11]
    ]  # fmt: skip
    log = Counter(run.collector.actor.environment.log)
    assert log["start"] == log["close"] == 20


def test_after_the_last_round_a_group_stays_as_it_is(resampling):
    run = resampling(rounds=2)
    fails = of_family(run, "AH", 3)
    rounds = []

    def further(number):
        rounds.append(number)
        return [fails[number]]

    batch = asyncio.run(run.collector.collect(fails[:1], 0, 0, further))
    assert rounds == [1, 2]
    assert [g.task for g in batch.groups] == [fails[2]]
    assert batch.metrics["groups_resampled"] == 2
    assert batch.metrics["groups_with_signal"] == 0
    assert explain(batch).startswith("No signal: 3 of 3 groups all failed")


def test_without_further_tasks_nothing_is_resampled(resampling):
    run = resampling()
    batch = collect(run.collector, of_family(run, "AH"))
    assert [g.task for g in batch.groups] == of_family(run, "AH")
    assert batch.metrics["groups_resampled"] == 0


def test_faults_of_a_group_that_was_dropped_are_told(resampling):
    run = resampling()
    run.collector.actor.limits = evolve(run.collector.actor.limits, retries=0)
    run.collector.actor.environment.trouble["start"] = [OSError("gone")]
    fails, [_, mixed] = of_family(run, "AH"), of_family(run, "A3", 2)
    batch = asyncio.run(run.collector.collect(fails, 0, 0, lambda number: [mixed]))
    assert [g.faults for g in batch.groups] == [0]
    assert batch.metrics["faults"] == 1
    assert "1 rollouts dropped for infrastructure" in batch.notes[0]


# --- what a reader must be told -------------------------------------------------------------


def test_a_role_that_can_do_no_more_stops_intervention_and_says_so(repairing):
    run = repairing()
    validator = run.collector.repairer.validator
    run.collector.repairer.validator = Spent(validator)
    batch = collect(run.collector, of_family(run, "AH"))
    assert batch.metrics["groups_fired"] == 1
    assert batch.metrics["funnel/candidates"] == batch.metrics["funnel/attempts"] == 0
    assert validator.seen == []
    assert batch.notes == ("No intervention: 5 of 5 requests are spent.",)
    assert "No intervention: 5 of 5 requests are spent." in explain(batch)


def test_a_budget_that_ends_in_the_middle_leaves_the_drafts(repairing):
    run = repairing("intervention.attempts=3")
    run.collector.repairer.corrector = SpendsItself(run.renderer, PROMPT, left=1)
    batch = collect(run.collector, of_family(run, "AH", 2))
    m = batch.metrics
    assert m["funnel/trained"] == 1
    assert m["funnel/faulted"] == m["funnel/candidates"] - 1  # one attempt each, no more
    assert m["rollouts"] == 8
    assert any("repairs broken off for infrastructure: 1 of 1 requests" in n for n in batch.notes)


def test_what_could_not_be_read_is_counted_by_kind(repairing):
    run = repairing()
    run.collector.repairer.validator = Unread()
    batch = collect(run.collector, of_family(run, "AH"))
    m = batch.metrics
    assert m["unparsed/diagnosis"] == m["unparsed/diagnosis/no-json"] == m["funnel/attempts"] > 0
    assert m["unparsed/verdict"] == 0
    run = repairing("trigger.use=always")
    run.collector.repairer.corrector = Declines("unfinished: it ran on and on")
    m = collect(run.collector, of_family(run, "AH")).metrics
    assert m["unparsed/correction/unfinished"] == m["funnel/flagged"] > 0


def test_a_roles_counters_and_notes_come_into_the_step(repairing):
    """Roles that share an account give the same counters, which count once."""
    run = repairing()
    account = Account()
    run.collector.repairer.validator = Accounted(run.collector.repairer.validator, account)
    run.collector.repairer.verifiers = [("a", Accounted(Judges(True), account))]
    first = collect(run.collector, of_family(run, "AH"))
    asked = first.metrics["teacher/requests"]
    assert asked == account.requests > 0
    assert first.notes == ("The teacher takes no schema.",)
    second = collect(run.collector, of_family(run, "AH"), step=1)
    assert second.metrics["teacher/requests"] == account.requests - asked > 0
    assert second.notes == ()  # said once
    account.requests = 0
    asyncio.run(run.close())
    assert account.closed == 2


def test_an_environments_counters_come_into_the_step(repairing):
    run = repairing("trigger.use=never")
    lived = run.collector.actor.environment = Counts(run.collector.actor.environment)
    first = collect(run.collector, of_family(run, "AH"))
    assert first.metrics["sessions"] == lived.begun == first.metrics["rollouts"]
    assert (
        collect(run.collector, of_family(run, "AH"), step=1).metrics["sessions"] == lived.begun / 2
    )


@define
class Counts:
    """An environment that counts its sessions."""

    inner: Any
    begun: int = 0

    @property
    def usage(self):
        return {"sessions": float(self.begun)}

    async def start(self, task):
        self.begun += 1
        return await self.inner.start(task)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@define
class Account:
    """What two roles share."""

    requests: int = 0
    closed: int = 0


@define
class Accounted:
    """A role that counts what it asks."""

    inner: Any
    account: Account

    @property
    def usage(self):
        return {"teacher/requests": float(self.account.requests)}

    @property
    def notes(self):
        return ("The teacher takes no schema.",) if self.account.requests else ()

    async def validate(self, *arguments):
        self.account.requests += 1
        return await self.inner.validate(*arguments)

    async def verify(self, *arguments):
        self.account.requests += 1
        return await self.inner.verify(*arguments)

    async def close(self):
        self.account.closed += 1


@define
class Spent:
    """A validator whose means have run out."""

    inner: Any
    spent: str = "5 of 5 requests are spent"

    async def validate(self, *arguments):
        return await self.inner.validate(*arguments)


@define
class SpendsItself(AsksForTheFix):
    """A corrector that can be asked `left` times."""

    left: int = 0

    @property
    def spent(self):
        return "" if self.left > 0 else "1 of 1 requests are spent"

    async def correct(self, *arguments):
        if self.spent:
            raise InfrastructureError(self.spent)
        self.left -= 1
        return await AsksForTheFix.correct(self, *arguments)


class Unread:
    """A validator whose answers make no sense."""

    async def validate(self, *arguments):
        return Diagnosis(False, parsed=False, problem="no-json")


@define
class Declines:
    """A corrector that says why it has nothing."""

    why: str

    async def correct(self, *arguments):
        raise NoCorrection(self.why)
