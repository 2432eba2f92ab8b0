"""Validate → correct → verify → gate → resume: the repair of one failed rollout.

The file reads in that order. Every look at a turn leaves an `Intervention` that says how far it
came and why it stopped there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from rti.asking import asking, given, whole
from rti.errors import CannotFork, InfrastructureError, NoCorrection, NumericsError
from rti.interfaces import Corrector, Gate, Session, Validator, Verifier, Weighter
from rti.rollout import Actor, Episode, blamed, messages_before, release
from rti.types import (
    Correction,
    Decision,
    Diagnosis,
    Evidence,
    History,
    Intervention,
    Message,
    Privileged,
    RequestKey,
    Rollout,
    Stage,
    Turn,
    Verdict,
)


@frozen
class Scope:
    """Which turns are looked at, when, and how often. See `[intervention]`."""

    scope: Literal["first", "all"] = "first"
    when: Literal["after_rollout", "before_step"] = "after_rollout"
    attempts: int = 2
    max_corrections: int = 8

    @property
    def corrections(self) -> int:
        """Most corrections in one attempt."""
        return 1 if self.scope == "first" else self.max_corrections


@define
class Repairer:
    """The roles, the gate and the weighter, and the actor that goes on afterwards.

    `vetters` are those verifiers that also judge a diagnosis before the Corrector sees it.
    """

    actor: Actor
    validator: Validator
    corrector: Corrector
    verifiers: Sequence[tuple[str, Verifier]]
    gates: Sequence[Gate]
    weighter: Weighter
    scope: Scope = field(factory=Scope)
    vetters: Sequence[tuple[str, Any]] = ()

    @property
    def roles(self) -> tuple[Any, ...]:
        """Validator, Corrector and all verifiers."""
        return (self.validator, self.corrector, *(v for _, v in self.verifiers))

    @property
    def spent(self) -> str:
        """Why a role can do no more (a budget is spent), or ""."""
        return next(filter(None, (str(getattr(role, "spent", "")) for role in self.roles)), "")

    @property
    def usage(self) -> dict[str, float]:
        """Counters of the roles that keep some. Those that share an account give equal ones."""
        return {k: v for role in self.roles for k, v in getattr(role, "usage", {}).items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What roles have to say to a reader so far, each once."""
        return tuple(dict.fromkeys(n for role in self.roles for n in getattr(role, "notes", ())))

    async def repair(
        self, draft: Episode, key: RequestKey
    ) -> tuple[Rollout | None, list[Intervention]]:
        """Try to repair a failed rollout.

        Returns the repaired rollout if one attempt made it succeed, else None (the draft stays),
        and what happened on the way. A further attempt is a fresh sample of every role.
        """
        records: list[Intervention] = []
        for attempt in range(self.scope.attempts):
            if attempt and self.spent:
                break
            one = _Attempt(self, draft, key.child(attempt=attempt), attempt)
            try:
                repaired = await one.run()
            except InfrastructureError as error:
                one.fault(str(error))
                repaired = None
            finally:
                await one.close()
            if repaired is not None:
                used = (r.stage == "succeeded" for r in one.records)
                one.records = [evolve(r, trained=t) for r, t in zip(one.records, used, strict=True)]
            records += one.records
            if repaired is not None:
                return repaired, records
        return None, records


@define
class _Attempt:
    """One attempt at one rollout."""

    repairer: Repairer
    draft: Episode
    key: RequestKey
    attempt: int
    records: list[Intervention] = field(factory=list)
    _forks: list[Session] = field(factory=list)
    _corrections: int = 0

    async def run(self) -> Rollout | None:
        """Repair the first harmful turn; with scope "all", the later ones too."""
        session, current, start = self.draft.session, self.draft.rollout, 0
        assert session is not None
        while self._corrections < self.repairer.scope.corrections:
            found = await self._first_harmful(session, current, start)
            if found is None:
                return None
            turn = await self._corrected(found, session)
            if turn is None:
                return None
            try:
                session = await self.repairer.actor.fork(session, turn.index)
            except CannotFork as error:
                self._end("unforkable", str(error))
                return None
            self._forks.append(session)
            current = await self._resume(session, current, turn)
            self._settle(current)
            if current.success:
                return evolve(current, draft_outcome=self.draft.rollout.outcome)
            start = turn.index + 1
        return None

    # --- validate ---------------------------------------------------------------------------

    async def _first_harmful(
        self, session: Session, rollout: Rollout, start: int
    ) -> Intervention | None:
        unread: list[Diagnosis] = []
        for turn in rollout.turns[start:]:
            if self.repairer.scope.when == "before_step":
                turn = evolve(turn, observations=None)
            messages = messages_before(session, rollout.turns[: turn.index])
            record = await self._validate(turn, messages, session)
            if record.diagnosis is not None and record.diagnosis.harmful:
                return record
            if record.diagnosis is not None and not record.diagnosis.parsed:
                unread.append(record.diagnosis)
        looked = len(rollout.turns) - start
        reason = f"{len(unread)} of {looked} diagnoses unreadable" if unread else "no harmful turn"
        self.records.append(
            Intervention(
                rollout.task, rollout.index, self.attempt, "unflagged", reason,
                diagnosis=unread[0] if unread else None,
            )
        )  # fmt: skip
        return None

    async def _validate(
        self, turn: Turn, messages: Sequence[Message], session: Session
    ) -> Intervention:
        with blamed("evidence and tools of the environment"):
            evidence, tools = session.evidence(turn.index), tuple(session.tools)
        history = History(
            tuple(messages),
            turn.prompt_ids,
            tools,
            self.key.child(turn=turn.index),
            turn.policy_version,
        )
        validator = self.repairer.validator
        with asking("validator", validator):
            diagnosis = given(
                "validate", Diagnosis, await validator.validate(turn, history, evidence)
            )
        rollout = self.draft.rollout
        return Intervention(
            rollout.task, rollout.index, self.attempt, history=history, draft=turn,
            diagnosis=diagnosis,
        )  # fmt: skip

    # --- correct, verify, gate, weigh -------------------------------------------------------

    async def _corrected(self, record: Intervention, session: Session) -> Turn | None:
        """The flagged turn put right, or None. Appends the record of it."""
        self.records.append(record)
        draft, history, diagnosis = record.draft, record.history, record.diagnosis
        assert draft is not None
        assert history is not None
        assert diagnosis is not None
        with blamed("evidence and privileged facts of the environment"):
            evidence, privileged = session.evidence(draft.index), session.privileged()
        veto = await self._vetoed(diagnosis, draft, history, evidence, privileged)
        if veto:
            self._end("vetoed", veto)
            return None
        corrector = self.repairer.corrector
        try:
            with asking("corrector", corrector):
                correction = await corrector.correct(draft, diagnosis, history, history.tools)
                if correction is not None:
                    whole(given("correct", Correction, correction))
        except NoCorrection as none:
            self._end("uncorrected", str(none) or "no correction")
            return None
        if correction is None:
            self._end("uncorrected", "no correction")
            return None
        self._note(correction=correction)
        refusal = self._unusable(correction, draft) or await self._refused(
            correction, draft, history, evidence, privileged
        )
        if refusal:
            self._end("rejected", refusal)
            return None
        return await self._admitted(correction, draft, history)

    async def _vetoed(
        self,
        diagnosis: Diagnosis,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> str:
        """Why the diagnosis must not reach the Corrector, or "": it would carry the answer."""
        for name, vetter in self.repairer.vetters:
            with asking("veto", vetter):
                verdict = given(
                    "vet",
                    Verdict,
                    await vetter.vet(diagnosis, draft, history, evidence, privileged),
                )
            if not verdict.accepted:
                self._note(verdicts=(evolve(verdict, by=name),))
                return f"{name}: {verdict.reason}" if verdict.reason else name
        return ""

    def _unusable(self, correction: Correction, draft: Turn) -> str:
        """Refused before any judge sees it: an LLM judge is easily fooled by nothing at all."""
        stops = self.repairer.actor.renderer.stop_ids
        said = correction.message
        if not [i for i in correction.completion_ids if i not in stops]:
            return "empty"
        if not said.content.strip() and not said.tool_calls:
            return "empty: it says nothing and calls nothing"
        if correction.completion_ids[-1] not in stops:
            return "unfinished: no end-of-turn token"
        if (said.content, said.tool_calls) == (draft.message.content, draft.message.tool_calls):
            return "unchanged from the draft"
        return ""

    async def _refused(
        self,
        correction: Correction,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> str:
        """Why a verifier refused, or "" when all accepted."""
        for name, verifier in self.repairer.verifiers:
            with asking("verifier", verifier):
                verdict = given(
                    "verify",
                    Verdict,
                    await verifier.verify(correction, draft, history, evidence, privileged),
                )
            self._note(verdicts=(*self.records[-1].verdicts, evolve(verdict, by=name)))
            if not verdict.accepted:
                return f"{name}: {verdict.reason}" if verdict.reason else name
        return ""

    async def _admitted(self, correction: Correction, draft: Turn, history: History) -> Turn | None:
        """Score the correction at the ORIGINAL rollout prompt; gate it; weigh its tokens."""
        policy, ids = self.repairer.actor.policy, correction.completion_ids
        [logprobs_T] = await policy.score([history.prompt_ids], [ids], draft.policy_version)
        self._note(rollout_logprobs=logprobs_T)
        decisions: tuple[Decision, ...] = ()
        for gate in self.repairer.gates:
            with asking("gate", gate):
                decisions += (given("admit", Decision, gate.admit(self.records[-1])),)
        self._note(decisions=decisions)
        refused = [d for d in decisions if not d.admitted]
        if refused:
            self._end("gated", refused[0].reason)
            return None
        if correction.corrector_prompt_ids is not None:
            [numerator_T] = await policy.score(
                [correction.corrector_prompt_ids], [ids], draft.policy_version
            )
            self._note(corrector_logprobs=numerator_T)
        with asking("weighter", self.repairer.weighter):
            weights_T = tuple(map(float, self.repairer.weighter.weigh(self.records[-1])))
        if len(weights_T) != len(ids) or not all(math.isfinite(w) and w > 0 for w in weights_T):
            raise NumericsError(
                f"[weighter] gave {len(weights_T)} weights for {len(ids)} tokens: there must be "
                "one finite, positive weight a token"
            )
        self._note(weights=weights_T)
        self._corrections += 1
        accepted_by = tuple(name for name, _ in self.repairer.verifiers)
        return Turn(
            index=draft.index,
            prompt_ids=history.prompt_ids,
            completion_ids=ids,
            rollout_logprobs=logprobs_T,
            message=evolve(correction.message, token_ids=ids),
            policy_version=draft.policy_version,
            weights=weights_T,
            provenance=evolve(correction.provenance, kind="correction", verdicts=accepted_by),
        )

    # --- resume -----------------------------------------------------------------------------

    async def _resume(self, session: Session, before: Rollout, turn: Turn) -> Rollout:
        """Execute the correction in the fork and let the policy go on by itself."""
        actor = self.repairer.actor
        turn, done, truncated = await actor.execute(session, turn)
        so_far = evolve(before, turns=(*before.turns[: turn.index], turn))
        if done or truncated:
            return await actor.finish(session, so_far, so_far.turns, truncated)
        scope = self.repairer.scope
        attempt = 1 + self.attempt * scope.corrections + self._corrections
        key = self.key.child(role="agent", attempt=attempt)
        inline = scope.when == "before_step" and scope.scope == "all"

        async def revise(sampled: Turn, messages: Sequence[Message]) -> Turn | None:
            if self._corrections >= scope.corrections:
                return None
            record = await self._validate(sampled, messages, session)
            if record.diagnosis is None or not record.diagnosis.harmful:
                return None
            return await self._corrected(record, session)

        return await actor.play(session, so_far, key, revise if inline else None)

    # --- the record -------------------------------------------------------------------------

    def _note(self, **changes: Any) -> None:
        self.records[-1] = evolve(self.records[-1], **changes)

    def _end(self, stage: Stage, reason: str) -> None:
        self._note(stage=stage, reason=reason)

    def _settle(self, rollout: Rollout) -> None:
        """Give the corrections of this resumed rollout their outcome."""
        stage: Stage = "succeeded" if rollout.success else "failed"
        reason = "" if rollout.success else "the resumed rollout did not succeed"
        if rollout.success:
            # Every correction that the successful rollout went through helped to make it.
            self.records = [
                evolve(r, stage=stage, reason=reason, outcome=rollout.outcome, resumed=rollout)
                if r.weights is not None
                else r
                for r in self.records
            ]
            return
        self.records = [
            evolve(r, stage=stage, reason=reason, outcome=rollout.outcome, resumed=rollout)
            if r.weights is not None and r.outcome is None
            else r
            for r in self.records
        ]

    def fault(self, reason: str) -> None:
        """An infrastructure fault ended this attempt."""
        unfinished = [r.outcome is None and r.stage == "unflagged" for r in self.records]
        if any(unfinished):  # several, where a resumed rollout was corrected again
            self.records = [
                evolve(r, stage="faulted", reason=reason) if open_ else r
                for r, open_ in zip(self.records, unfinished, strict=True)
            ]
            return
        rollout = self.draft.rollout
        self.records.append(
            Intervention(rollout.task, rollout.index, self.attempt, "faulted", reason)
        )

    async def close(self) -> None:
        """Release the forks."""
        for session in self._forks:
            await release(session)
