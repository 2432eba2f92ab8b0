"""What the worlds of words share: an episode, its forks, and lists of tasks fixed by a seed."""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Protocol, Self, TypeVar

from attrs import define, field

from rti import CannotFork, Evidence, Message, Privileged, Step, Task, Tool, Turn
from rti_pocket.world import MAX_TURNS, Action, Reply


class WorldTask(Protocol):
    """What every world's tasks have: what is said first, and the hidden truth."""

    @property
    def system(self) -> str:
        """The system message."""
        ...

    @property
    def user(self) -> str:
        """What the user wants."""
        ...

    @property
    def gold(self) -> str:
        """The final id; empty where none is wanted."""
        ...


T = TypeVar("T", bound=WorldTask)


@define
class WordSession(ABC, Generic[T]):
    """One episode. Its state is its observations: the world depends on nothing else."""

    task: T
    seen: list[str] = field(factory=list)
    reward: int = 0
    done: bool = False
    _marks: list[int] = field(factory=list)
    """Number of observations before each turn, for forks."""

    @abstractmethod
    def react(self, action: Action | None) -> Reply:
        """What the world answers to an action, in the state that `seen` tells."""

    @property
    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """What can be called."""

    @abstractmethod
    def evidence(self, k: int) -> Evidence:
        """What the Validator and the Verifier may see at turn `k`."""

    @property
    def opening(self) -> Sequence[Message]:
        """What the world says first."""
        return (Message("system", self.task.system), Message("user", self.task.user))

    async def step(self, turn: Turn) -> Step:
        """Execute a turn. One without an action ends the episode."""
        self._marks.append(len(self.seen))
        call = turn.message.tool_calls[0] if turn.message.tool_calls else None
        action: Action | None = None
        if call is not None:
            action = call.name, str(call.arguments.get("value", ""))
        reply = self.react(action)
        if reply.observation is None:
            self.reward, self.done = reply.reward, True
            return Step(done=True)
        self.seen.append(reply.observation)
        over = len(self._marks) >= MAX_TURNS
        self.done = over
        said = Message(
            "tool", reply.observation, tool_call_id=call.id if call else None, error=reply.error
        )
        return Step((said,), done=False, truncated=over)

    async def fork(self, k: int) -> Self:
        """The state before turn `k`."""
        if not 0 <= k <= len(self._marks):
            raise CannotFork(f"turn {k}: this episode has {len(self._marks)} turns")
        kept = self._marks[k] if k < len(self._marks) else len(self.seen)
        return type(self)(self.task, self.seen[:kept], marks=self._marks[:k])

    def state_digest(self) -> str:
        """Hash of task, observations and end."""
        state = repr((self.task, self.seen, self.reward, self.done, self._marks))
        return hashlib.sha256(state.encode()).hexdigest()

    def privileged(self) -> Privileged:
        """The final id."""
        return Privileged((self.task.gold,) if self.task.gold else ())

    def score(self) -> float:
        """1 for the right ending, 0 for any other."""
        return float(self.reward)

    async def close(self) -> None:
        """Nothing to release."""


@lru_cache(maxsize=32)
def list_tasks(
    make: Callable[[random.Random, str, str], WorldTask],
    families: Sequence[str],
    seed: int,
    split: str,
    count: int,
) -> tuple[Task, ...]:
    """`count` tasks a family, family after family; equal seeds give equal tasks."""
    tasks = []
    for family in families:
        rng = random.Random(f"{seed}/{split}/{family}")
        for i in range(count):
            data = {"task": make(rng, family, split)}
            tasks.append(Task(f"{family}-{split}-{i}", family, split, data))
    return tuple(tasks)
