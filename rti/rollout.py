"""Task → rollout: the agent's turns in an environment, one request to the policy at a time."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from attrs import define, evolve, frozen

from rti.errors import InfrastructureError, RtiError
from rti.interfaces import Environment, Policy, Renderer, Session
from rti.types import Message, RequestKey, Rollout, SamplingParams, Task, Tool, Turn

T = TypeVar("T")
CLOSE_SECONDS = 30.0
"""What a session may take to close before it is left to itself."""
Revise = Callable[[Turn, Sequence[Message]], Awaitable[Turn | None]]
"""Looks at a sampled turn and the messages before it: another turn in its place, or None."""


@frozen
class Limits:
    """How long a rollout may get, and how long its environment may take."""

    max_turns: int = 8
    max_new_tokens: int = 256
    max_context: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    timeout_s: float = 120.0
    retries: int = 1


@define
class Episode:
    """A rollout and the session it was lived in, kept open so that it can be forked."""

    rollout: Rollout
    session: Session | None = None

    async def close(self) -> None:
        """Release the session."""
        if self.session is not None:
            session, self.session = self.session, None
            await release(session)


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Around a call into the environment: its crash is an infrastructure fault, no failure."""
    try:
        yield
    except RtiError:
        raise
    except Exception as error:  # an environment is third-party code: anything may come
        raise InfrastructureError(f"{what} crashed: {type(error).__name__}: {error}") from error


async def release(session: Session) -> None:
    """Close a session. Its crash in there must not cost the run what the session has given."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await session.close()
    except Exception as error:  # an environment is third-party code: anything may come
        warnings.warn(f"closing a session crashed: {type(error).__name__}: {error}", stacklevel=2)


def speaks(policy: Policy) -> bool:
    """Whether a policy answers in messages and has no tokens."""
    return hasattr(policy, "reply")


def messages_before(session: Session, turns: Sequence[Turn]) -> list[Message]:
    """The conversation after the opening and these turns, what was observed included."""
    with blamed("the opening of the environment"):
        messages = list(session.opening)
    for turn in turns:
        messages += [turn.message, *(turn.observations or ())]
    return messages


@define
class Actor:
    """Plays the agent: renders, samples, steps the environment."""

    policy: Policy
    renderer: Renderer
    environment: Environment
    limits: Limits

    async def episode(self, task: Task, index: int, key: RequestKey) -> Episode:
        """Play `task` from its start. A fault is retried, then recorded in `rollout.fault`."""
        fault = ""
        for _ in range(self.limits.retries + 1):
            session: Session | None = None
            try:
                session = await self._guard(self.environment.start(task), "starting the task")
                return Episode(await self.play(session, Rollout(task, index), key), session)
            except InfrastructureError as error:
                fault = str(error)
                if session is not None:
                    await release(session)
        return Episode(Rollout(task, index, fault=fault))

    async def play(
        self, session: Session, so_far: Rollout, key: RequestKey, revise: Revise | None = None
    ) -> Rollout:
        """Go on from `so_far` to the end of the episode and score it.

        Raises:
            InfrastructureError: when environment or policy fail for reasons of their own.
        """
        turns = list(so_far.turns)
        messages = messages_before(session, turns)
        done = truncated = False
        while not (done or truncated) and len(turns) < self.limits.max_turns:
            turn = await self._next(session, messages, len(turns), key)
            if turn is None:
                truncated = True
                break
            if turn.observations is None:  # else its calls were refused before the environment
                if revise is not None:
                    turn = await revise(turn, messages) or turn
                turn, done, truncated = await self.execute(session, turn)
            turns.append(turn)
            messages += [turn.message, *(turn.observations or ())]
        return await self.finish(session, so_far, turns, truncated or not done)

    async def execute(self, session: Session, turn: Turn) -> tuple[Turn, bool, bool]:
        """Step the environment: the turn with its observations, done, truncated."""
        step = await self._guard(session.step(turn), f"turn {turn.index} of the environment")
        return evolve(turn, observations=step.observations), step.done, step.truncated

    async def fork(self, session: Session, k: int) -> Session:
        """The state before turn `k`, in a session of its own.

        Raises:
            CannotFork: when the environment cannot go back there.
        """
        return await self._guard(session.fork(k), f"forking before turn {k}")

    async def finish(
        self, session: Session, so_far: Rollout, turns: Sequence[Turn], truncated: bool
    ) -> Rollout:
        """The rollout with its outcome."""

        async def score() -> float:
            return session.score()

        outcome = await self._guard(score(), "scoring")
        return evolve(
            so_far,
            turns=tuple(turns),
            messages=tuple(messages_before(session, turns)),
            outcome=outcome,
            success=outcome >= self.environment.threshold,
            truncated=truncated,
        )

    async def _next(
        self, session: Session, messages: Sequence[Message], index: int, key: RequestKey
    ) -> Turn | None:
        """The policy's next turn; None when the conversation leaves no room for one."""
        limits, key = self.limits, key.child(turn=index)
        with blamed("listing the environment's tools"):
            tools = tuple(session.tools)
        params = SamplingParams(limits.max_new_tokens, limits.temperature, limits.top_p)
        if speaks(self.policy):
            return await self._hear(messages, tools, params, key)
        prompt = self.renderer.prompt(messages, tools)
        if limits.max_context and len(prompt) + limits.max_new_tokens > limits.max_context:
            return None
        [completion] = await self.policy.sample([prompt], params, [key], self.renderer.stop_ids)
        return Turn(
            index=index,
            prompt_ids=prompt,
            completion_ids=completion.token_ids,
            rollout_logprobs=completion.logprobs,
            message=self.renderer.parse(completion.token_ids),
            policy_version=completion.policy_version,
            finish=completion.finish,
        )

    async def _hear(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        params: SamplingParams,
        key: RequestKey,
    ) -> Turn | None:
        """The next turn of a policy that speaks in messages. It has no tokens: none is trained."""
        said = await self.policy.reply(messages, tools, params, key)  # type: ignore[attr-defined]
        if said is None:
            return None
        return Turn(
            index=key.turn,
            prompt_ids=(),
            completion_ids=(),
            rollout_logprobs=(),
            message=said.message,
            policy_version=self.policy.version,
            finish=said.finish,
            observations=said.refused or None,
        )

    async def _guard(self, work: Awaitable[T], what: str) -> T:
        """Await the environment; whatever goes wrong there is an infrastructure fault."""
        with blamed(what):
            try:
                async with asyncio.timeout(self.limits.timeout_s):
                    return await work
            except TimeoutError as error:
                raise InfrastructureError(
                    f"{what} took longer than {self.limits.timeout_s:g} s ([rollout] timeout_s)"
                ) from error
