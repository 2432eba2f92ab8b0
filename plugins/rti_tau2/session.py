"""One live episode of τ²-bench: a policy at the desk, a customer, tau2's simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from attrs import define, field, frozen

from rti import (
    CannotFork,
    Evidence,
    InfrastructureError,
    Message,
    Privileged,
    RunError,
    Step,
    Tool,
    Turn,
)
from rti_tau2 import scoring
from rti_tau2.calls import UNREADABLE, readable, refusal
from rti_tau2.customer import OUT_OF_SCOPE, STOP, TRANSFER, Customer
from rti_tau2.simulator import Simulator
from rti_tau2.upstream import Upstream, deterministic


@frozen
class Setting:
    """What all sessions of one task share; nothing here changes during an episode."""

    upstream: Upstream
    domain: str
    task: Any = field(repr=False)
    system: str = field(repr=False)
    tools: tuple[Tool, ...] = field(repr=False)
    customer: Callable[[], Customer] = field(repr=False)
    max_errors: int = 10


@define(eq=False)
class Tau2Session:
    """A session of `Tau2Environment`. All work is done in the caller's thread, in milliseconds.

    `log` holds tau2's own messages, ready for its evaluator.
    """

    setting: Setting = field(repr=False)
    log: list[Any] = field(init=False, factory=list, repr=False)
    ended: str | None = field(init=False, default=None)
    """None, "user_stop" or "too_many_errors": tau2's termination reasons."""

    _simulator: Simulator = field(init=False, repr=False)
    _customer: Customer = field(init=False, repr=False)
    _opening: tuple[Message, ...] = field(init=False, repr=False)
    _turns: list[Message] = field(init=False, factory=list, repr=False)
    _steps: list[Step] = field(init=False, factory=list, repr=False)
    _marks: list[str] = field(init=False, factory=list, repr=False)
    """Hash of the log after the opening and after each turn."""
    _record: Any = field(init=False, factory=sha256, repr=False)
    _errors: int = field(init=False, default=0, repr=False)
    _calls: int = field(init=False, default=0, repr=False)
    _closed: bool = field(init=False, default=False, repr=False)

    @classmethod
    async def begun(cls, setting: Setting, customer: Customer | None = None) -> Tau2Session:
        """A session after the customer's first words.

        Raises:
            InfrastructureError: tau2 cannot set the task up, or the customer cannot speak.
        """
        session = cls(setting)
        try:
            session._simulator = Simulator.of(setting.domain, setting.task)
        except Exception as error:  # tau2 cannot set its own task up
            raise InfrastructureError(
                f"tau2 cannot start {setting.task.id!r}: {error!r}"
            ) from error
        session._customer = customer or setting.customer()
        session._note("assistant", content=setting.upstream.greeting)
        first = await session._customer.opening(session.log, session._hands)
        session._note("user", content=first)
        session._opening = (Message("system", setting.system), Message("user", first))
        session._marks.append(session._record.hexdigest())
        return session

    @property
    def opening(self) -> Sequence[Message]:
        """The policy document, then what the customer says first."""
        return self._opening

    @property
    def tools(self) -> Sequence[Tool]:
        """The agent's tools, then those on the customer's phone."""
        return self.setting.tools

    @property
    def turns(self) -> int:
        """How many turns have been executed."""
        return len(self._turns)

    async def step(self, turn: Turn) -> Step:
        """Run the turn's tool calls; without any, let the customer hear its text.

        A call that tau2 refuses (unknown tool, bad arguments) is an observation with `error`.
        The episode ends when the customer hangs up, or, as in tau2, after `max_errors` errors.

        Raises:
            InfrastructureError: tau2 itself crashed, or the customer has no answer.
            RunError: the session is over or closed.
        """
        return await self._execute(turn.message)

    async def _execute(self, message: Message) -> Step:
        if self._closed or self.ended:
            raise RunError(f"tau2: the session is {'closed' if self._closed else 'over'}")
        # What the policy made up may be of any shape; only its text and calls count from here on.
        observations = self._call(message) if message.tool_calls else await self._say(message)
        if self._errors >= self.setting.max_errors:  # whatever the customer said after the last
            self.ended = "too_many_errors"
        step = Step(observations, done=self.ended is not None)
        self._turns.append(message)
        self._steps.append(step)
        self._marks.append(self._record.hexdigest())
        return step

    def _call(self, message: Message) -> tuple[Message, ...]:
        calls = [(call.name, call.arguments) for call in message.tool_calls]
        results = self._use("assistant", calls, readable(message.content) or None)
        return tuple(
            Message("tool", result.content, tool_call_id=call.id, error=bool(result.error))
            for call, result in zip(message.tool_calls, results, strict=True)
        )

    async def _say(self, message: Message) -> tuple[Message, ...]:
        self._note("assistant", content=readable(message.content))
        reply = readable(await self._customer.answer(self.log, self._hands))
        self._note("user", content=reply)
        if STOP in reply or TRANSFER in reply or OUT_OF_SCOPE in reply:
            self.ended = "user_stop"
        return (Message("user", reply),)

    def _hands(
        self, calls: Sequence[tuple[str, Mapping[str, Any]]], words: str | None
    ) -> Sequence[str]:
        """The customer's: run its tools, and say what they printed."""
        return [result.content for result in self._use("user", calls, words)]

    def _use(
        self, who: str, calls: Sequence[tuple[str, Mapping[str, Any]]], content: str | None = None
    ) -> list[Any]:
        """Let `who` run tools, and note calls and results as tau2's orchestrator does."""
        module = self.setting.upstream.message
        wanted, results = [], []
        for name, arguments in calls:
            self._calls += 1
            number = f"call_{self._calls}"
            odd = refusal(name, arguments)
            # What cannot be written down is no argument of any tool, and is noted as none.
            given = {} if odd == UNREADABLE else dict(arguments)
            wanted.append(
                module.ToolCall(id=number, name=readable(name), arguments=given, requestor=who)
            )
            if not odd:
                results.append(self._run("get_response", wanted[-1]))
                continue
            results.append(
                module.ToolMessage(
                    id=number, content=f"Error: {odd}", requestor=who, role="tool", error=True
                )
            )
        self._run("sync_tools")
        self._note(who, content=content, tool_calls=wanted)
        for result in results:
            self._errors += bool(result.error)
            result.timestamp = self._stamp()
            self._append(result)
        return results

    def _run(self, what: str, *given: Any) -> Any:
        try:
            with deterministic(self._simulator.identifiers):
                return getattr(self._simulator.environment, what)(*given)
        except Exception as error:  # get_response turns the caller's mistakes into results itself
            raise InfrastructureError(f"tau2 crashed in {what}{given}: {error!r}") from error

    def _note(self, who: str, **parts: Any) -> None:
        module = self.setting.upstream.message
        kind = module.UserMessage if who == "user" else module.AssistantMessage
        self._append(kind(role=who, timestamp=self._stamp(), **parts))

    def _stamp(self) -> str:
        # tau2 sorts messages by this string: a counter keeps their order, and forks equal.
        return f"{len(self.log):06d}"

    def _append(self, message: Any) -> None:
        self.log.append(message)
        calls = getattr(message, "tool_calls", None) or []
        written = [
            message.role,
            message.content,
            getattr(message, "requestor", None),
            getattr(message, "error", None),
            [(call.id, call.name, call.arguments) for call in calls],
        ]
        self._record.update(json.dumps(written, default=str).encode())

    async def fork(self, k: int) -> Tau2Session:
        """A new session in which turns 0 … k−1 have been executed again.

        Simulator and scripted customers are deterministic; what a model said as the customer is
        said again, and its tool calls are made again. The whole record is compared.

        Raises:
            CannotFork: there were fewer than `k` turns, or a replayed turn came out differently.
        """
        if not 0 <= k <= len(self._turns):
            raise CannotFork(f"tau2: there is no turn {k}: {len(self._turns)} have been executed")
        answers = sum(not message.tool_calls for message in self._turns[:k])
        copy = await Tau2Session.begun(self.setting, self._customer.again(answers))
        for index, message in enumerate(self._turns[:k]):
            step = await copy._execute(message)
            if step != self._steps[index] or copy._marks[-1] != self._marks[index + 1]:
                raise CannotFork(f"tau2: turn {index} came out differently when replayed")
        return copy

    def state_digest(self) -> str:
        """Hash of both databases, the customer, and all that has been said and done.

        The record belongs to the state, because some tasks are judged by the actions taken.
        """
        state = (
            self._simulator.fingerprint(),
            self._customer.state(),
            self._simulator.identifiers.used,
            self._errors,
            self.ended,
            self._record.hexdigest(),
        )
        return sha256(repr(state).encode()).hexdigest()

    def evidence(self, k: int) -> Evidence:
        """What success means, how far the state is from it now, and turn `k`'s tool errors.

        It names assertions and tells whether they hold; it never tells their arguments, the gold
        actions, what must be told to the customer, or the injected faults.
        """
        criteria = self.setting.task.evaluation_criteria
        judged = self._reward()
        purpose = scoring.purpose(self.setting.task)
        errors = tuple(
            message.content
            for step in self._steps[k : k + 1]
            for message in step.observations
            if message.error
        )
        basis = tuple(basis.value for basis in criteria.reward_basis) if criteria else ()
        facts = {
            "purpose": purpose,
            "reward_basis": basis,
            "reward_breakdown": judged.breakdown,
            "assertions": judged.assertions,
            "wanted": tuple(scoring.wanted(self.setting.task)) if criteria else (),
            "ended": self.ended or "not yet",
            "tool_errors": errors,
        }
        lines = [
            f"Purpose of the task: {purpose}" if purpose else "",
            f"Success is judged by: {', '.join(basis)}." if basis else "",
            *(f"{b}: {'passed' if v else 'not passed'}." for b, v in judged.breakdown.items()),
            *(f"{name}: {'met' if met else 'not met'}." for name, met in judged.assertions),
            *(f"Wanted: {text}" for text in facts["wanted"]),
            "An episode counts only when the customer ended it. Ended: "
            + (f"{self.ended}." if self.ended else "not yet."),
            *(f"Tool error in this turn: {error}" for error in errors),
        ]
        return Evidence("\n".join(line for line in lines if line), facts)

    def privileged(self) -> Privileged:
        """Task id, ticket, scenario, injected faults, gold actions, arguments of assertions."""
        return Privileged(tuple(dict.fromkeys(scoring.privileged(self.setting.task))))

    def score(self) -> float:
        """tau2's reward, 0 or 1. As in tau2, 0 unless the customer has ended the episode."""
        return self._reward().value if self.ended == "user_stop" else 0.0

    def _reward(self) -> scoring.Reward:
        setting = self.setting
        return scoring.reward(
            setting.upstream, setting.domain, setting.task, self._simulator, self.log
        )

    async def close(self) -> None:
        """End the session: no further turn. Its score and evidence can still be read."""
        self._closed = True
