"""One live episode of τ²-bench: a policy at the desk, a scripted customer, tau2's simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

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
from rti_tau2.customer import STOP, TRANSFER, Customer, Scenario
from rti_tau2.telecom import TelecomCustomer
from rti_tau2.upstream import Identifiers, Upstream, deterministic

CUSTOMERS = {"telecom": TelecomCustomer}


@frozen
class Setting:
    """What all sessions of one task share; nothing here changes during an episode."""

    upstream: Upstream
    domain: str
    task: Any = field(repr=False)
    system: str = field(repr=False)
    tools: tuple[Tool, ...] = field(repr=False)
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

    _environment: Any = field(init=False, repr=False)
    _customer: Customer = field(init=False, repr=False)
    _opening: tuple[Message, ...] = field(init=False, repr=False)
    _turns: list[Message] = field(init=False, factory=list, repr=False)
    _steps: list[Step] = field(init=False, factory=list, repr=False)
    _identifiers: Identifiers = field(init=False, factory=Identifiers, repr=False)
    _record: Any = field(init=False, factory=sha256, repr=False)
    _errors: int = field(init=False, default=0, repr=False)
    _calls: int = field(init=False, default=0, repr=False)
    _closed: bool = field(init=False, default=False, repr=False)

    def __attrs_post_init__(self) -> None:
        setting = self.setting
        state = setting.task.initial_state
        try:
            with deterministic(self._identifiers):
                self._environment = setting.upstream.registry.get_env_constructor(setting.domain)()
                self._environment.set_state(
                    state.initialization_data if state else None,
                    state.initialization_actions if state else None,
                    list((state.message_history if state else None) or []),
                )
        except Exception as error:  # tau2 cannot set its own task up
            raise InfrastructureError(
                f"tau2 cannot start {setting.task.id!r}: {error!r}"
            ) from error
        self._customer = CUSTOMERS[setting.domain](Scenario.of(setting.task))
        first = self._customer.opening()
        self._opening = (Message("system", setting.system), Message("user", first))
        self._note("assistant", content=setting.upstream.greeting)
        self._note("user", content=first)

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
            InfrastructureError: tau2 itself crashed.
            RunError: the session is over or closed.
        """
        return self._execute(turn.message)

    def _execute(self, message: Message) -> Step:
        if self._closed or self.ended:
            raise RunError(f"tau2: the session is {'closed' if self._closed else 'over'}")
        # What the policy made up may be of any shape; only its text and calls count from here on.
        observations = self._call(message) if message.tool_calls else self._say(message)
        if self.ended is None and self._errors >= self.setting.max_errors:
            self.ended = "too_many_errors"
        step = Step(observations, done=self.ended is not None)
        self._turns.append(message)
        self._steps.append(step)
        return step

    def _call(self, message: Message) -> tuple[Message, ...]:
        calls = [(call.name, dict(call.arguments)) for call in message.tool_calls]
        results = self._use("assistant", calls, message.content or None)
        return tuple(
            Message("tool", result.content, tool_call_id=call.id, error=bool(result.error))
            for call, result in zip(message.tool_calls, results, strict=True)
        )

    def _say(self, message: Message) -> tuple[Message, ...]:
        self._note("assistant", content=message.content)

        def use(name: str, arguments: Mapping[str, Any]) -> str:
            return cast(str, self._use("user", [(name, dict(arguments))])[0].content)

        reply = self._customer.answer(message.content, use)
        self._note("user", content=reply)
        if STOP in reply or TRANSFER in reply:
            self.ended = "user_stop"
        return (Message("user", reply),)

    def _use(
        self, who: str, calls: Sequence[tuple[str, dict[str, Any]]], content: str | None = None
    ) -> list[Any]:
        """Let `who` run tools, and note calls and results as tau2's orchestrator does."""
        module = self.setting.upstream.message
        wanted = []
        for name, arguments in calls:
            self._calls += 1
            wanted.append(
                module.ToolCall(
                    id=f"call_{self._calls}", name=name, arguments=arguments, requestor=who
                )
            )
        try:
            with deterministic(self._identifiers):
                results = [self._environment.get_response(call) for call in wanted]
                self._environment.sync_tools()
        except Exception as error:  # get_response turns the caller's mistakes into results itself
            raise InfrastructureError(f"tau2 crashed in {calls}: {error!r}") from error
        self._note(who, content=content, tool_calls=wanted)
        for result in results:
            self._errors += bool(result.error)
            result.timestamp = self._stamp()
            self._append(result)
        return results

    def _note(self, who: str, **parts: Any) -> None:
        module = self.setting.upstream.message
        kind = module.UserMessage if who == "user" else module.AssistantMessage
        self._append(kind(role=who, timestamp=self._stamp(), **parts))

    def _stamp(self) -> str:
        # tau2 sorts messages by this string: a counter keeps their order, and forks equal.
        return f"{len(self.log):06d}"

    def _append(self, message: Any) -> None:
        self.log.append(message)
        self._record.update(message.model_dump_json().encode())

    async def fork(self, k: int) -> Tau2Session:
        """A new session in which turns 0 … k−1 have been executed again.

        Simulator and customer are deterministic, so the copy is exact; observations are compared.

        Raises:
            CannotFork: there were fewer than `k` turns, or a replayed turn came out differently.
        """
        if not 0 <= k <= len(self._turns):
            raise CannotFork(f"tau2: there is no turn {k}: {len(self._turns)} have been executed")
        copy = Tau2Session(self.setting)
        for index, (message, step) in enumerate(zip(self._turns[:k], self._steps, strict=False)):
            if copy._execute(message) != step:
                raise CannotFork(f"tau2: turn {index} came out differently when replayed")
        return copy

    def state_digest(self) -> str:
        """Hash of both databases, the customer, and all that has been said and done.

        The record belongs to the state, because some tasks are judged by the actions taken.
        """
        environment = self._environment
        state = (
            environment.get_db_hash(),
            environment.get_user_db_hash(),
            self._customer.state(),
            self._identifiers.used,
            self._errors,
            self.ended,
            self._record.hexdigest(),
        )
        return sha256(repr(state).encode()).hexdigest()

    def evidence(self, k: int) -> Evidence:
        """What success means, how far the state is from it now, and turn `k`'s tool errors.

        It names assertions and tells whether they hold; it never tells their arguments, the gold
        actions or the injected faults.
        """
        criteria = self.setting.task.evaluation_criteria
        judged = self._reward()
        purpose = self.setting.task.description.purpose if self.setting.task.description else None
        errors = tuple(
            message.content
            for step in self._steps[k : k + 1]
            for message in step.observations
            if message.error
        )
        basis = tuple(basis.value for basis in criteria.reward_basis) if criteria else ()
        facts = {
            "purpose": purpose or "",
            "reward_basis": basis,
            "reward_breakdown": judged.breakdown,
            "assertions": judged.assertions,
            "ended": self.ended or "not yet",
            "tool_errors": errors,
        }
        lines = [
            f"Purpose of the task: {purpose}" if purpose else "",
            f"Success is judged by: {', '.join(basis)}." if basis else "",
            *(f"{b}: {'passed' if v else 'not passed'}." for b, v in judged.breakdown.items()),
            *(f"{name}: {'met' if met else 'not met'}." for name, met in judged.assertions),
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
        return scoring.reward(self.setting.upstream, self.setting.task, self._environment, self.log)

    async def close(self) -> None:
        """End the session: no further turn. Its score and evidence can still be read."""
        self._closed = True
