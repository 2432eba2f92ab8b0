"""The repair of one failed rollout, stage by stage: fakes for the roles, the rest is real."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
import torch
from attrs import evolve, fields
from fakes import (
    POCKET,
    Admits,
    FlagsTurns,
    Judges,
    SpeakingPolicy,
    TroubledEnvironment,
    Weighs,
    Writes,
    cannot_fork,
    closes_with_the_code,
    gives_up,
    played,
)

from rti import (
    Correction,
    Diagnosis,
    Evidence,
    InfrastructureError,
    Message,
    NoCorrection,
    NumericsError,
    PluginError,
    Privileged,
    RequestKey,
    RunError,
    StaleVersionError,
    Verdict,
)
from rti.collect import funnel
from rti.intervene import Repairer, Scope
from rti.ops import calibration_weights, perplexity
from rti.records import repaired_turn
from rti_grpo import CalibrationWeighter, PerplexityGate

KEY = RequestKey(seed=1, step=4, task="x", rollout=3)


@pytest.fixture(scope="module")
def base(registry, tmp_path_factory):
    """Policy, renderer and environment, for all tests here."""
    from rti.assemble import assemble
    from rti.config import load_config

    path = tmp_path_factory.mktemp("base") / "pocket.toml"
    path.write_text(POCKET)
    return assemble(load_config(path, ["rollout.max_new_tokens=40"]), registry, trains=False).actor


@pytest.fixture
def desk(base):
    """A telecom desk whose fix is the user's, and an agent that calls it itself and gives up."""
    return Desk(base)


class Desk:
    """One hard task, its failed draft, and what to repair it with."""

    def __init__(self, base):
        self.task = next(t for t in base.environment.tasks("train") if t.family == "AH")
        self.fix = self.task.data["task"].fix
        self.environment = TroubledEnvironment(base.environment)
        self.policy = SpeakingPolicy(base.policy, base.renderer, closes_with_the_code)
        self.actor = evolve(base, environment=self.environment, policy=self.policy)
        self.renderer = base.renderer
        self.wrong = f"need {self.fix} . call {self.fix} <e>"
        self.right = f"need {self.fix} . ask {self.fix} <e>"
        self.code = self.task.data["task"].gold
        self.hm = Message("assistant", "hm")

    def repairer(self, **parts):
        made = {
            "validator": FlagsTurns([0]),
            "corrector": Writes(self.renderer, self.right),
            "verifiers": [],
            "gates": [],
            "weighter": Weighs(),
            "scope": Scope(attempts=1),
            **parts,
        }
        return Repairer(actor=self.actor, **made)

    def correction(self, message, ids=None):
        return Correction(ids or self.renderer.turn(Message("assistant", self.right)), message)

    def repair(self, turns=None, key=KEY, **parts):
        """(repaired or None, records, the draft episode)"""
        repairer = self.repairer(**parts)

        async def run():
            turns_ = turns or [self.wrong, "giving up . transfer <e>"]
            draft = await played(self.actor, self.task, turns_)
            self.environment.log.clear()
            self.policy.scored.clear()
            return *await repairer.repair(draft, key), draft

        return asyncio.run(run())


def stages(records):
    return [r.stage for r in records]


# --- every stage ----------------------------------------------------------------------------


def test_succeeded(desk):
    repaired, [record], draft = desk.repair(verifiers=[("judge", Judges(True))], gates=[Admits()])
    assert (record.stage, record.reason, record.outcome, record.trained) == (
        "succeeded", "", 1.0, True
    )  # fmt: skip
    assert (record.rollout, record.attempt, record.task) == (0, 0, desk.task)
    assert (repaired.outcome, repaired.success, repaired.draft_outcome) == (1.0, True, 0.0)
    assert repaired.corrected
    assert repaired.index == draft.rollout.index
    first, second = repaired.turns
    assert desk.renderer.decode(first.completion_ids) == desk.right
    assert first.message.token_ids == first.completion_ids
    assert first.observations[0].content == f"user did it code {desk.code}"
    assert first.corrected
    assert not second.corrected
    assert second.weights is None
    assert desk.renderer.extends(first.prompt_ids + first.completion_ids, second.prompt_ids)
    assert draft.rollout.outcome == 0.0
    assert desk.environment.log.count("fork") == 1


def test_a_reader_is_told_what_followed_the_correction(desk):
    repaired, [record], _ = desk.repair()
    assert record.resumed.turns == repaired.turns
    told = repaired_turn(record, 3, desk.renderer)
    assert told.after == f"[tool] user did it code {desk.code}\nall set . close {desk.code} <e>"
    assert (" ".join(told.draft_tokens), " ".join(told.tokens)) == (desk.wrong, desk.right)
    assert len(told.weights) == len(told.tokens)
    failed = desk.repair(corrector=Writes(desk.renderer, "sorry . transfer <e>"))[1][0]
    assert (failed.stage, failed.resumed.success) == ("failed", False)
    unheard = desk.repair(validator=FlagsTurns([]), corrector=None)[1][0]
    assert repaired_turn(unheard, 3, desk.renderer).after == ""


def test_unflagged(desk):
    repaired, [record], _ = desk.repair(validator=FlagsTurns([]), corrector=None)
    assert repaired is None
    assert (record.stage, record.reason) == ("unflagged", "no harmful turn")
    assert record.correction is None
    assert "fork" not in desk.environment.log


def test_unreadable_diagnoses_flag_nothing_and_are_counted(desk):
    class Mumbles(FlagsTurns):
        async def validate(self, turn, history, evidence):
            return Diagnosis(False, raw="hm", parsed=turn.index > 0)

    _, [record], _ = desk.repair(validator=Mumbles([]), corrector=None)
    assert (record.stage, record.reason) == ("unflagged", "1 of 2 diagnoses unreadable")
    assert not record.diagnosis.parsed
    assert funnel([record], 1)["unparsed/diagnosis"] == 1


def test_uncorrected(desk):
    repaired, [record], _ = desk.repair(corrector=Writes(desk.renderer, None))
    assert (repaired, record.stage, record.reason) == (None, "uncorrected", "no correction")
    assert record.diagnosis.harmful


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("<e>", "empty"),
        ("", "empty"),
        ("wait , oops", "unfinished: no end-of-turn token"),
        ("need {fix} . ask {fix}", "unfinished: no end-of-turn token"),
        ("need {fix} . call {fix} <e>", "unchanged from the draft"),
    ],
)
def test_trivial_corrections_are_refused_before_any_judge_sees_them(desk, words, reason):
    judge = Judges(True)
    repaired, [record], _ = desk.repair(
        corrector=Writes(desk.renderer, words.format(fix=desk.fix)), verifiers=[("judge", judge)]
    )
    assert (repaired, record.stage, record.reason) == (None, "rejected", reason)
    assert judge.seen == []
    assert desk.policy.scored == []
    assert record.correction is not None


def test_a_correction_that_says_nothing_is_empty(desk):
    class Blank(Writes):
        async def correct(self, *arguments):
            made = await super().correct(*arguments)
            return evolve(made, message=evolve(made.message, content=" \n", tool_calls=()))

    _, [record], _ = desk.repair(corrector=Blank(desk.renderer, desk.right))
    assert record.stage == "rejected"
    assert record.reason.startswith("empty")


def test_rejected_and_no_verifier_is_asked_after_the_first_refusal(desk):
    yes, no, never = Judges(True), Judges(False, "it leaks"), Judges(True)
    repaired, [record], _ = desk.repair(
        verifiers=[("first", yes), ("second", no), ("third", never)], gates=[Admits()]
    )
    assert (repaired, record.stage, record.reason) == (None, "rejected", "second: it leaks")
    assert [v.accepted for v in record.verdicts] == [True, False]
    assert [v.by for v in record.verdicts][-1] in record.reason
    assert (len(yes.seen), len(no.seen), len(never.seen)) == (1, 1, 0)
    assert record.rollout_logprobs is None  # nothing refused is ever scored
    assert desk.policy.scored == []
    assert "fork" not in desk.environment.log


def test_gated_before_anything_is_resumed(desk):
    lets, stops = Admits(), Admits(False)
    weighter = Weighs([])  # would be an error if it were asked
    repaired, [record], _ = desk.repair(
        corrector=Writes(desk.renderer, desk.right, "feedback : x rewrite :"),
        verifiers=[("judge", Judges(True))],
        gates=[lets, stops],
        weighter=weighter,
    )
    assert (repaired, record.stage, record.reason) == (None, "gated", "on principle")
    assert [d.admitted for d in record.decisions] == [True, False]
    assert record.weights is None
    assert len(desk.policy.scored) == 1  # the numerator is not even worked out
    assert "fork" not in desk.environment.log
    [seen] = stops.seen
    assert seen.rollout_logprobs == record.rollout_logprobs is not None


def test_unforkable(desk):
    desk.environment.trouble["fork"] = [cannot_fork()]
    repaired, [record], _ = desk.repair()
    assert (repaired, record.stage) == (None, "unforkable")
    assert record.reason == "this simulator keeps no log"
    assert not record.trained


@pytest.mark.parametrize(
    ("place", "trouble", "reason"),
    [
        ("fork", OSError("no memory"), "forking before turn 0 crashed: OSError: no memory"),
        ("step", OSError("gone"), "turn 0 of the environment crashed: OSError: gone"),
        ("step", InfrastructureError("server down"), "server down"),
        ("score", ValueError("nan"), "scoring crashed: ValueError: nan"),
        (
            "privileged",
            OSError("gone"),
            "evidence and privileged facts of the environment crashed: OSError: gone",
        ),
        (
            "evidence",
            OSError("gone"),
            "evidence and tools of the environment crashed: OSError: gone",
        ),
    ],
)
def test_faulted(desk, place, trouble, reason):
    repairer = desk.repairer()

    async def run():
        draft = await played(desk.actor, desk.task, [desk.wrong, "sorry . transfer <e>"])
        desk.environment.trouble[place] = [trouble]
        desk.environment.log.clear()
        return await repairer.repair(draft, KEY)

    repaired, [record] = asyncio.run(run())
    assert (repaired, record.stage, record.reason) == (None, "faulted", reason)
    assert record.outcome is None
    assert not record.trained
    # The fork is closed; the draft's session is the collector's to close.
    assert desk.environment.log.count("close") == (place in ("step", "score"))


@pytest.mark.parametrize("role", ["validator", "corrector", "verifier"])
def test_a_role_whose_server_is_down_is_a_fault_and_the_next_attempt_may_work(desk, role):
    def once_down(fake, method):
        inner, calls = getattr(fake, method), []

        async def fails_once(*arguments):
            calls.append(1)
            if len(calls) == 1:
                raise InfrastructureError("teacher: no answer")
            return await inner(*arguments)

        class Fake:
            pass

        setattr(Fake, method, staticmethod(fails_once))
        return Fake()

    parts = {
        "validator": {"validator": once_down(FlagsTurns([0]), "validate")},
        "corrector": {"corrector": once_down(Writes(desk.renderer, desk.right), "correct")},
        "verifier": {"verifiers": [("judge", once_down(Judges(True), "verify"))]},
    }[role]
    repaired, records, _ = desk.repair(scope=Scope(attempts=2), **parts)
    assert stages(records) == ["faulted", "succeeded"]
    assert records[0].reason == "teacher: no answer"
    assert repaired.success


def test_a_repaired_rollout_that_fails_leaves_the_draft(desk):
    desk.policy.says = gives_up
    repaired, [record], draft = desk.repair()
    assert repaired is None
    assert (record.stage, record.outcome, record.trained) == ("failed", 0.0, False)
    assert record.reason == "the resumed rollout did not succeed"
    assert [desk.renderer.decode(t.completion_ids) for t in draft.rollout.turns] == [
        desk.wrong,
        "giving up . transfer <e>",
    ]
    assert not draft.rollout.corrected


def test_a_correction_that_ends_the_episode(desk):
    close = f"all set . close {desk.code} <e>"
    repaired, [record], _ = desk.repair(corrector=Writes(desk.renderer, close))
    assert (record.stage, len(repaired.turns), repaired.truncated) == ("succeeded", 1, False)
    _, [record], _ = desk.repair(corrector=Writes(desk.renderer, "sorry . transfer <e>"))
    assert (record.stage, record.outcome) == ("failed", 0.0)


# --- attempts and scope ---------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_are_limited_and_each_is_a_fresh_sample(desk, attempts):
    validator, writes = FlagsTurns([0]), Writes(desk.renderer, desk.right)
    desk.policy.says = gives_up
    _, records, _ = desk.repair(
        validator=validator, corrector=writes, scope=Scope(attempts=attempts)
    )
    assert stages(records) == ["failed"] * attempts
    assert [r.attempt for r in records] == list(range(attempts))
    keys = [history.key for _, history, _ in validator.seen]
    assert keys == [KEY.child(attempt=a, turn=0) for a in range(attempts)]
    agent = [key for _, key in desk.policy.asked]
    assert len(set(agent)) == len(agent)  # every resumption draws anew
    assert all(k.role == "agent" and k.attempt > 0 for k in agent)  # and never as the draft did


def test_no_attempt_after_a_success(desk):
    words = [None, desk.right, desk.right]
    corrector = Writes(desk.renderer, words)
    repaired, records, _ = desk.repair(corrector=corrector, scope=Scope(attempts=5))
    assert stages(records) == ["uncorrected", "succeeded"]
    assert [r.trained for r in records] == [False, True]
    assert repaired.success
    assert len(corrector.calls) == 2


def test_scope_first_repairs_one_turn(desk):
    validator = FlagsTurns([0, 1, 2, 3])
    desk.policy.says = lambda words, key: f"need {desk.fix} . call {desk.fix} <e>"
    _, records, _ = desk.repair(validator=validator)
    assert stages(records) == ["failed"]
    assert len(validator.seen) == 1


def test_scope_first_looks_for_the_first_harmful_turn(desk):
    validator = FlagsTurns([1])
    repaired, [record], _ = desk.repair(validator=validator)
    assert [turn.index for turn, _, _ in validator.seen] == [0, 1]
    assert record.draft.index == 1
    assert [t.corrected for t in repaired.turns] == [False, True, False]
    assert desk.renderer.decode(repaired.turns[0].completion_ids) == desk.wrong


def test_scope_all_goes_on_after_a_failed_repair(desk):
    first = f"look for it . ask {desk.fix} {desk.fix} <e>"  # harmless: the user can not
    corrector = Writes(desk.renderer, [first, desk.right])
    validator = FlagsTurns([0, 1])
    says = iter(["giving up . transfer <e>"])
    desk.policy.says = lambda words, key: next(says, f"all set . close {desk.code} <e>")
    repaired, records, _ = desk.repair(
        validator=validator, corrector=corrector, scope=Scope("all", attempts=1)
    )
    # The first repair's resumption failed; its next turn was repaired too, and that succeeded.
    assert stages(records) == ["succeeded", "succeeded"]
    assert [r.trained for r in records] == [True, True]
    assert [t.corrected for t in repaired.turns] == [True, True, False]
    assert [r.draft.index for r in records] == [0, 1]
    assert desk.environment.log.count("fork") == 2
    assert desk.environment.log.count("close") == 2


def test_scope_all_is_limited(desk):
    corrector = Writes(desk.renderer, "look for it . ask nobody <e>".replace("nobody", "user"))
    desk.policy.says = lambda words, key: desk.wrong
    _, records, _ = desk.repair(
        validator=FlagsTurns([0, 1, 2, 3]),
        corrector=corrector,
        scope=Scope("all", attempts=1, max_corrections=2),
    )
    assert stages(records) == ["failed", "failed"]
    assert len(corrector.calls) == 2


def test_after_rollout_shows_observations_and_before_step_does_not(desk):
    after, before = FlagsTurns([0]), FlagsTurns([0])
    desk.repair(validator=after)
    desk.repair(validator=before, scope=Scope(when="before_step", attempts=1))
    [(seen, history, evidence)] = after.seen
    assert [m.content for m in seen.observations] == ["denied user only"]
    [(unseen, same_history, same_evidence)] = before.seen
    assert unseen.observations is None
    assert evolve(unseen, observations=seen.observations) == seen
    assert (same_history, same_evidence) == (history, evidence)


def test_inline_repairs_judge_each_turn_before_it_is_executed(desk):
    validator = FlagsTurns([0, 1])
    first = "look for it . ask user <e>"
    says = iter([desk.wrong])
    desk.policy.says = lambda words, key: next(says, f"all set . close {desk.code} <e>")
    repaired, records, _ = desk.repair(
        validator=validator,
        corrector=Writes(desk.renderer, [first, desk.right]),
        scope=Scope("all", "before_step", attempts=1),
    )
    assert stages(records) == ["succeeded", "succeeded"]
    assert [r.draft.index for r in records] == [0, 1]
    assert all(turn.observations is None for turn, _, _ in validator.seen)
    assert [turn.index for turn, _, _ in validator.seen] == [0, 1, 2]
    assert desk.environment.log.count("fork") == 1  # the second correction needed none
    assert [t.corrected for t in repaired.turns] == [True, True, False]
    prompts = [t.prompt_ids + t.completion_ids for t in repaired.turns]
    assert all(desk.renderer.extends(a, b) for a, b in pairwise(prompts))


def test_an_inline_correction_that_is_refused_leaves_the_sampled_turn(desk):
    says = iter([desk.wrong, "sorry . transfer <e>"])
    desk.policy.says = lambda words, key: next(says)
    repaired, records, _ = desk.repair(
        validator=FlagsTurns([0, 1]),
        corrector=Writes(desk.renderer, ["look for it . ask user <e>", None]),
        scope=Scope("all", "before_step", attempts=1),
    )
    assert repaired is None
    # It failed, so its next flagged turn was looked at once more, and got no correction again.
    assert stages(records) == ["failed", "uncorrected", "uncorrected"]


def test_a_fault_after_an_inline_correction_is_the_end_of_every_open_one(desk):
    repairer = desk.repairer(
        validator=FlagsTurns([0, 1, 2]),
        corrector=Writes(desk.renderer, ["look for it . ask user <e>", "so . ask user <e>", None]),
        scope=Scope("all", "before_step", attempts=1),
    )
    desk.policy.says = lambda words, key: desk.wrong

    async def run():
        draft = await played(desk.actor, desk.task, [desk.wrong, "sorry . transfer <e>"])
        desk.environment.trouble["step"] = [None, None, OSError("gone")]
        return await repairer.repair(draft, KEY)

    repaired, records = asyncio.run(run())
    assert repaired is None
    assert stages(records) == ["faulted", "faulted", "uncorrected"]


# --- the numbers ----------------------------------------------------------------------------

PROMPT = "<s> telecom . user : line 1 2 frozen . agent : feedback : ask user to run it . rewrite :"


def score(base, prompt, ids):
    [found] = asyncio.run(base.policy.score([prompt], [ids], base.policy.version))
    return found


def test_all_numbers_are_taken_at_the_original_rollout_prompt(desk, base):
    gate = PerplexityGate(delta=math.inf)
    repaired, [record], draft = desk.repair(
        corrector=Writes(desk.renderer, desk.right, PROMPT),
        gates=[gate],
        weighter=CalibrationWeighter(0.2),
    )
    turn, original = repaired.turns[0], draft.rollout.turns[0]
    ids = desk.renderer.encode(desk.right)
    at_rollout_prompt = score(base, original.prompt_ids, ids)
    at_corrector_prompt = score(base, desk.renderer.encode(PROMPT), ids)
    assert (
        max(abs(a - b) for a, b in zip(at_rollout_prompt, at_corrector_prompt, strict=True)) > 0.1
    )
    assert turn.prompt_ids == original.prompt_ids
    assert turn.rollout_logprobs == pytest.approx(at_rollout_prompt, abs=1e-5)
    assert record.rollout_logprobs == turn.rollout_logprobs
    assert record.corrector_logprobs == pytest.approx(at_corrector_prompt, abs=1e-5)
    expected = perplexity(torch.tensor(at_rollout_prompt))
    assert record.decisions[0].value == pytest.approx(expected, rel=1e-4)
    weights = calibration_weights(
        torch.tensor(record.corrector_logprobs), torch.tensor(record.rollout_logprobs), 0.2
    ).tolist()
    assert list(turn.weights) == pytest.approx(weights)
    assert any(w != 1 for w in turn.weights)
    assert record.weights == turn.weights


@pytest.mark.parametrize("side", [0.99, 1.01])
def test_the_gate_decides_by_the_perplexity_at_the_rollout_prompt(desk, base, side):
    _, _, draft = desk.repair()
    original = draft.rollout.turns[0]
    value = perplexity(
        torch.tensor(score(base, original.prompt_ids, desk.renderer.encode(desk.right)))
    )
    repaired, [record], _ = desk.repair(
        corrector=Writes(desk.renderer, desk.right, PROMPT), gates=[PerplexityGate(value * side)]
    )
    assert record.stage == ("succeeded" if side > 1 else "gated")
    assert (repaired is not None) == (side > 1)


def test_no_corrector_prompt_means_weights_of_1(desk):
    repaired, [record], _ = desk.repair(weighter=CalibrationWeighter(0.2))
    assert record.corrector_logprobs is None
    assert set(repaired.turns[0].weights) == {1.0}
    assert len(repaired.turns[0].weights) == len(repaired.turns[0].completion_ids)
    assert len(desk.policy.scored) == 1


@pytest.mark.parametrize(
    "weights", [[1.0], [], [math.nan] * 8, [0.0] * 8, [-1.0] * 8, [math.inf] * 8]
)
def test_weights_that_make_no_sense_are_an_error(desk, weights):
    assert len(desk.renderer.encode(desk.right)) == 8
    with pytest.raises(NumericsError, match=r"\[weighter\]"):
        desk.repair(weighter=Weighs(weights))


def test_scoring_under_another_version_than_the_drafts_is_an_error(desk, base):
    repairer = desk.repairer()

    async def run():
        draft = await played(desk.actor, desk.task, [desk.wrong, "sorry . transfer <e>"])
        turns = tuple(evolve(t, policy_version=7) for t in draft.rollout.turns)
        draft.rollout = evolve(draft.rollout, turns=turns)
        desk.policy.scored.clear()
        return await repairer.repair(draft, KEY)

    with pytest.raises(StaleVersionError, match="version 7"):
        asyncio.run(run())
    assert [version for _, _, version in desk.policy.scored] == [7]


def test_a_corrected_turn_has_the_drafts_version(desk):
    repaired, _, draft = desk.repair()
    assert repaired.turns[0].policy_version == draft.rollout.turns[0].policy_version == 0


# --- what each role is told -----------------------------------------------------------------


def test_the_corrector_never_receives_evidence_or_privileged_facts(desk):
    writes = Writes(desk.renderer, desk.right)
    desk.repair(corrector=writes)
    [(draft, diagnosis, history, tools)] = writes.calls
    assert isinstance(diagnosis, Diagnosis)

    def everything(value):
        yield value
        if hasattr(value, "__attrs_attrs__"):
            for field in fields(type(value)):
                yield from everything(getattr(value, field.name))
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from everything(item)

    seen = list(everything([draft, diagnosis, history, tools]))
    assert not any(isinstance(v, (Evidence, Privileged)) for v in seen)
    rubric = desk.task.data["task"].rubric
    texts = [v for v in seen if isinstance(v, str)]
    assert not any(rubric in text or desk.code in text.split() for text in texts)
    assert tuple(tools) == history.tools != ()


def test_validator_and_verifier_get_the_evidence_and_the_verifier_the_facts(desk):
    validator, judge = FlagsTurns([0]), Judges(True)
    desk.repair(validator=validator, verifiers=[("judge", judge)])
    [(turn, history, shown)] = validator.seen
    assert isinstance(shown, Evidence)
    assert shown.text == desk.task.data["task"].rubric
    [(correction, draft, same, also, privileged)] = judge.seen
    assert (draft, same, also) == (turn, history, shown)
    assert privileged == Privileged((desk.code,))
    assert isinstance(correction, Correction)


def test_history_is_what_led_up_to_the_turn(desk):
    validator = FlagsTurns([1])
    _, _, draft = desk.repair(validator=validator)
    _, history, _ = validator.seen[1]
    first = draft.rollout.turns[0]
    assert history.messages == (*draft.session.opening, first.message, *first.observations)
    assert history.prompt_ids == draft.rollout.turns[1].prompt_ids
    assert history.prompt_ids == desk.renderer.prompt(history.messages)
    assert history.key == KEY.child(turn=1)


def test_provenance_names_author_and_verdicts(desk):
    class Named(Writes):
        async def correct(self, *arguments):
            made = await super().correct(*arguments)
            stamp = evolve(made.provenance, kind="policy", plugin="mine", model="m", template="t1")
            return evolve(made, provenance=stamp)

    repaired, _, _ = desk.repair(
        corrector=Named(desk.renderer, desk.right),
        verifiers=[("veto", Judges(True)), ("self", Judges(True))],
    )
    stamp = repaired.turns[0].provenance
    assert (stamp.kind, stamp.plugin, stamp.model, stamp.template) == (
        "correction", "mine", "m", "t1"
    )  # fmt: skip
    assert stamp.verdicts == ("veto", "self")
    assert repaired.turns[1].provenance.kind == "policy"


def test_a_role_that_breaks_is_not_hidden(desk):
    class Broken:
        async def validate(self, *arguments):
            raise RunError("no such model")

    with pytest.raises(RunError, match="no such model"):
        desk.repair(validator=Broken())


@pytest.mark.parametrize(
    ("section", "parts", "says"),
    [
        ("validator", lambda _: {"validator": Gives("validate", None)}, "validate() gave None"),
        ("corrector", lambda _: {"corrector": Gives("correct", "hello")}, "correct() gave 'hello'"),
        ("corrector", lambda _: {"corrector": Gives("correct", ZeroDivisionError("x"))}, "x"),
        ("corrector",
         lambda d: {"corrector": Gives("correct", d.correction(Message("user", "h")))},
         "must be an assistant's Message"),
        ("corrector",
         lambda d: {"corrector": Gives("correct", d.correction(d.hm, (5, -3)))},
         "token ids (5, -3)"),
        ("verifier", lambda _: {"verifiers": [("a", Gives("verify", True))]}, "verify() gave True"),
        ("veto", lambda _: {"vetters": [("a", Gives("vet", True))]}, "vet() gave True"),
        ("gate", lambda _: {"gates": [GivesAtOnce("admit", True)]}, "admit() gave True"),
        ("weighter", lambda _: {"weighter": GivesAtOnce("weigh", ["much"])}, "could not convert"),
    ],
)  # fmt: skip
def test_a_role_that_gives_what_it_must_not_is_named(desk, section, parts, says):
    with pytest.raises(PluginError) as error:
        desk.repair(**parts(desk))
    assert f"[{section}] Gives" in str(error.value)
    assert says in str(error.value)


class Gives:
    """A role of which one method gives, or raises, what it is told."""

    def __init__(self, method, what):
        async def give(*_):
            if isinstance(what, Exception):
                raise what
            return what

        setattr(self, method, give)


class GivesAtOnce:
    def __init__(self, method, what):
        setattr(self, method, lambda *_: what)


# --- inside a group -------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "repaired"), [(1, 1), (3, 3)])
def test_repairs_stay_below_the_group_size(pocket, most, repaired):
    run = pocket(f"intervention.repairs_per_group={most}", "verifier.use=[]", "gate.use=[]",
                 "rollout.max_new_tokens=40", trains=False)  # fmt: skip
    collector = run.collector
    task = next(t for t in run.environment.tasks("train") if t.family == "AH")
    fix = task.data["task"].fix
    actor = collector.actor
    actor.policy = SpeakingPolicy(actor.policy, run.renderer, closes_with_the_code)
    collector.repairer.validator = FlagsTurns([0])
    collector.repairer.corrector = Writes(run.renderer, f"need {fix} . ask {fix} <e>")
    batch = asyncio.run(collector.collect([task], 0))
    [group] = batch.groups
    assert [r.success for r in group.rollouts] == [True] * repaired + [False] * (4 - repaired)
    assert [r.draft_outcome for r in group.rollouts] == [0.0] * repaired + [None] * (4 - repaired)
    assert batch.metrics["funnel/candidates"] == most
    assert batch.metrics["rollouts_corrected"] == repaired


# --- the veto on diagnoses ------------------------------------------------------------------


class Vets(Judges):
    """A veto: judges diagnoses too."""

    async def vet(self, *arguments):
        self.seen.append(arguments)
        return Verdict(self.accepts, self.reason)


def test_a_vetoed_diagnosis_never_reaches_the_corrector(desk):
    veto, corrector = Vets(False, "names the code"), Writes(desk.renderer, desk.right)
    repaired, [record], _ = desk.repair(vetters=[("leaks", veto)], corrector=corrector)
    assert repaired is None
    assert (record.stage, record.reason) == ("vetoed", "leaks: names the code")
    assert [(v.by, v.accepted) for v in record.verdicts] == [("leaks", False)]
    assert corrector.calls == []
    diagnosis, draft, history, evidence, privileged = veto.seen[0]
    assert (diagnosis, draft, history) == (record.diagnosis, record.draft, record.history)
    assert isinstance(evidence, Evidence)
    assert isinstance(privileged, Privileged)
    assert funnel([record], 1)["funnel/vetoed"] == funnel([record], 1)["funnel/flagged"] == 1
    assert funnel([record], 1)["funnel/corrected"] == 0


def test_an_accepted_diagnosis_goes_on(desk):
    repaired, [record], _ = desk.repair(vetters=[("leaks", Vets(True))])
    assert repaired is not None
    assert record.verdicts == ()  # the verdict on a diagnosis is none on the correction


def test_a_config_can_switch_veto_and_verifiers_apart(pocket):
    both = pocket("veto.use=leaks", trains=False).collector.repairer
    assert [name for name, _ in both.verifiers] == ["leaks", "self"]
    assert [name for name, _ in both.vetters] == ["leaks"]
    rules = pocket("veto.use=leaks", "verifier.use=[]", trains=False).collector.repairer
    assert [name for name, _ in rules.verifiers] == ["leaks"]
    policy = pocket("veto.use=[]", trains=False).collector.repairer
    assert [name for name, _ in policy.verifiers] == ["self"]
    assert policy.vetters == []
    none = pocket("veto.use=[]", "verifier.use=[]", trains=False).collector.repairer
    assert list(none.verifiers) == list(none.vetters) == []


def test_why_there_is_no_correction(desk):
    class Declines:
        async def correct(self, *arguments):
            raise NoCorrection("unfinished")

    _, [record], _ = desk.repair(corrector=Declines())
    assert (record.stage, record.reason) == ("uncorrected", "unfinished")
