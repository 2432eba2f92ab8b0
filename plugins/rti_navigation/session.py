"""One live episode: a user's request, a map API, and a final answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from attrs import define, field, frozen

from rti import (
    CannotFork,
    Evidence,
    Message,
    Privileged,
    RunError,
    Step,
    Task,
    Tool,
    ToolCall,
    Turn,
)
from rti_navigation import judging
from rti_navigation.api import TOOLS, MapApi
from rti_navigation.judging import Called, Trial
from rti_navigation.tasks import Journey
from rti_navigation.wording import SYSTEM
from rti_navigation.world import World

MOST_CALLS = 8
"""Tool calls that are run in one turn."""


@frozen
class Setting:
    """What all sessions of one task share; nothing here changes during an episode."""

    task: Task
    journey: Journey
    world: World = field(repr=False)
    max_turns: int = 24


@define(eq=False)
class NavigationSession:
    """A session of `NavigationEnvironment`.

    The API has no state, so that the state is what was called and what was answered. Arguments are
    kept as the API understood them, never as they came.
    """

    setting: Setting
    calls: tuple[Called, ...] = ()
    """All calls so far."""
    answer: str | None = None
    """The final answer: the first turn without a tool call."""
    _marks: tuple[int, ...] = field(default=(), repr=False)
    """Number of calls before each turn, for forks."""
    _closed: bool = field(init=False, default=False, repr=False)

    @property
    def opening(self) -> Sequence[Message]:
        """The rules, and what the user wants."""
        journey = self.setting.journey
        return (Message("system", SYSTEM[journey.language]), Message("user", journey.user))

    @property
    def tools(self) -> Sequence[Tool]:
        """The map API."""
        return TOOLS

    @property
    def api(self) -> MapApi:
        """The map API, in the user's language."""
        return MapApi(self.setting.world, self.setting.journey.language)

    @property
    def turns(self) -> int:
        """How many turns have been executed."""
        return len(self._marks)

    async def step(self, turn: Turn) -> Step:
        """Run the turn's calls; a turn without any is the final answer and ends the episode.

        Raises:
            RunError: the session is over or closed.
        """
        if self._closed or self.answer is not None:
            raise RunError(f"navigation: the session is {'closed' if self._closed else 'over'}")
        self._marks = (*self._marks, len(self.calls))
        calls = turn.message.tool_calls
        if not calls:
            self.answer = turn.message.content
            return Step(done=True)
        said = tuple(self._observe(number, call) for number, call in enumerate(calls))
        return Step(said, truncated=self.turns >= self.setting.max_turns)

    def _observe(self, number: int, call: ToolCall) -> Message:
        if number >= MOST_CALLS:
            error = {"code": "TOO_MANY_CALLS", "message": f"At most {MOST_CALLS} calls a turn."}
            return _said({"error": error}, call, error=True)
        answer = self.api.call(call.name, call.arguments)
        name = call.name if isinstance(call.name, str) else ""
        self.calls = (*self.calls, Called(self.turns - 1, name, answer))
        return _said(answer.result, call, error=bool(answer.code))

    async def fork(self, k: int) -> NavigationSession:
        """The state before turn `k`.

        Raises:
            CannotFork: there were fewer than `k` turns.
        """
        if not 0 <= k <= self.turns:
            raise CannotFork(f"navigation: no turn {k}: {self.turns} have been executed")
        if k == self.turns:
            return NavigationSession(self.setting, self.calls, self.answer, self._marks)
        return NavigationSession(self.setting, self.calls[: self._marks[k]], None, self._marks[:k])

    def state_digest(self) -> str:
        """Hash of the task, all calls with their answers, and the final answer."""
        state = (
            self.setting.task.id,
            self._marks,
            [(c.name, c.answer.arguments, c.answer.result) for c in self.calls],
            self.answer,
        )
        return sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()

    def evidence(self, k: int) -> Evidence:
        """What success means and how far it is reached, in words and as facts; no id, no number."""
        return judging.evidence(self._trial, k)

    def privileged(self) -> Privileged:
        """Ids and locations of the right places, and what the right answer says."""
        return Privileged(judging.privileged(self._trial))

    def score(self) -> float:
        """1 for the right route and the right answer, or for saying rightly that there is none."""
        return float(judging.solved(self._trial))

    @property
    def _trial(self) -> Trial:
        setting = self.setting
        return Trial(setting.journey, setting.world, self.calls, self.answer, self.turns)

    async def close(self) -> None:
        """End the session: no further turn. Its score and evidence can still be read."""
        self._closed = True


def _said(result: Mapping[str, Any], call: ToolCall, error: bool) -> Message:
    text = json.dumps(result, ensure_ascii=False)
    return Message("tool", text, tool_call_id=call.id, error=error)
