"""The short-cut world behind the Environment protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from attrs import define, frozen

from rti import (
    ConfigError,
    Evidence,
    Message,
    Policy,
    Renderer,
    Session,
    Task,
    Tool,
    ToolCall,
    above,
    at_least,
    option,
)
from rti_pocket.session import WordSession, list_tasks
from rti_pocket.shortcut_world import (
    DESK_VERBS,
    FAMILIES,
    NAV_VERBS,
    ShortcutTask,
    expert,
    make_task,
    react,
)
from rti_pocket.world import SPLITS, Action, Reply

_VALUE = {"type": "object", "properties": {"value": {"type": "string"}}}
_VERB_DOC = {
    "search": "Search a place, optionally `in` a city.",
    "route": "Give the route to a place by its id.",
    "read": "Read a customer's code in the case.",
    "ask": "Ask the customer to read the code.",
    "close": "Close the case with its code.",
    "check": "Look up what has become of something stale.",
}


@frozen
class ShortcutEnvironment:
    """A world in which to give the rubric's id at once always succeeds, and teaches the wrong.

    Its rubric names the final id on purpose (`leaks_by_design`).
    """

    leaks_by_design: ClassVar[bool] = True
    prompts: ClassVar[str] = "rti_pocket"
    """The package that holds the role prompts that fit this environment's grammar."""

    seed: int = option(0, "Seed of the task lists.", at_least(0))
    train_tasks: int = option(600, "Training tasks a family.", above(0))
    test_tasks: int = option(24, "Held-out tasks a family.", above(0))
    threshold: float = option(1.0, "Lowest outcome that is a success.", above(0))

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of "train", "test" or "warm-start": family after family, the hard ones first."""
        if split not in SPLITS:
            raise ConfigError(
                f"[environment] pocket-shortcut has no split {split!r}; it has {', '.join(SPLITS)}."
            )
        count = self.test_tasks if split == "test" else self.train_tasks
        return list_tasks(make_task, FAMILIES, self.seed, split, count)

    async def start(self, task: Task) -> ShortcutSession:
        """A fresh episode."""
        return ShortcutSession(task.data["task"])

    async def probe(self, policy: Policy, renderer: Renderer) -> dict[str, float]:
        """Perplexity of fixed first turns on hard tasks: of the right one, and of a leak."""
        from rti_pocket.shortcut_probe import probe_perplexity

        return await probe_perplexity(policy, renderer)

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        """ "gold" plays the expert, "noop" says something harmless and does nothing."""
        if name == "gold":
            return _gold
        return _noop if name == "noop" else None


def _gold(session: Session) -> Message:
    assert isinstance(session, ShortcutSession)
    verb, value = expert(session.task, session.seen)
    return Message("assistant", "good .", tool_calls=(ToolCall(verb, {"value": value}),))


def _noop(session: Session) -> Message:
    return Message("assistant", "done now .")


@define
class ShortcutSession(WordSession[ShortcutTask]):
    """One episode of the short-cut world."""

    def react(self, action: Action | None) -> Reply:
        """What the world answers; only `check` depends on what was seen."""
        return react(self.task, action, self.seen)

    @property
    def tools(self) -> Sequence[Tool]:
        """The verbs of the domain."""
        verbs = DESK_VERBS if self.task.desk else NAV_VERBS
        return [Tool(verb, _VERB_DOC[verb], _VALUE) for verb in verbs]

    def evidence(self, k: int) -> Evidence:
        """The rubric: the steps that the task needs, and the final id."""
        return Evidence(self.task.rubric)
