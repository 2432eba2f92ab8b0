"""The pocket environment: telecom desk and navigation behind the Environment protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

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
from rti_pocket.world import (
    DESK_VERBS,
    FAMILIES,
    NAV_VERBS,
    SPLITS,
    Action,
    PocketTask,
    Reply,
    expert,
    make_task,
    react,
)

_VALUE = {"type": "object", "properties": {"value": {"type": "string"}}}
_VERB_DOC = {
    "call": "Run one of the desk's own tools.",
    "ask": "Ask the customer to run one of theirs, or to reboot.",
    "close": "Close the case with its code.",
    "transfer": "Hand over to a colleague.",
    "search": "Search a place, optionally `in` a city.",
    "route": "Give the route to a place by its id.",
}


@frozen
class PocketEnvironment:
    """Two small text worlds with an easy and a hard side; outcomes by rule.

    Its rubric names the final id on purpose (`leaks_by_design`), so that leaks can be studied.
    """

    leaks_by_design: ClassVar[bool] = True
    prompts: ClassVar[str] = "rti_pocket"
    """The package that holds the role prompts that fit this environment's grammar."""

    seed: int = option(0, "Seed of the task lists.", at_least(0))
    train_tasks: int = option(600, "Training tasks a family.", above(0))
    test_tasks: int = option(48, "Held-out tasks a family.", above(0))
    threshold: float = option(1.0, "Lowest outcome that is a success.", above(0))

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of "train", "test" or "warm-start": family after family, the hard ones first."""
        if split not in SPLITS:
            raise ConfigError(
                f"[environment] pocket has no split {split!r}; it has {', '.join(SPLITS)}."
            )
        count = self.test_tasks if split == "test" else self.train_tasks
        return list_tasks(make_task, FAMILIES, self.seed, split, count)

    async def start(self, task: Task) -> PocketSession:
        """A fresh episode."""
        return PocketSession(task.data["task"])

    async def probe(self, policy: Policy, renderer: Renderer) -> dict[str, float]:
        """Perplexity of fixed right turns at the points where the habit goes wrong."""
        from rti_pocket.probe import probe_perplexity

        return await probe_perplexity(policy, renderer)

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        """ "gold" plays the expert, "noop" says something harmless and does nothing."""
        if name == "gold":
            return _gold
        return _noop if name == "noop" else None


def _gold(session: Session) -> Message:
    assert isinstance(session, PocketSession)
    verb, value = expert(session.task, session.seen)
    call = ToolCall(verb, {"value": value} if value else {})
    return Message("assistant", "gold .", tool_calls=(call,))


def _noop(session: Session) -> Message:
    return Message("assistant", "sorry .")


@define
class PocketSession(WordSession[PocketTask]):
    """One episode at the desk or on the map."""

    def react(self, action: Action | None) -> Reply:
        """What the world answers; it depends on the task and the action alone."""
        return react(self.task, action)

    @property
    def tools(self) -> Sequence[Tool]:
        """The verbs of the domain, then the desk's listed tools with their owners."""
        verbs = DESK_VERBS if self.task.desk else NAV_VERBS
        actions = [Tool(verb, _VERB_DOC[verb], _VALUE) for verb in verbs]
        listed = [
            Tool(name, owner="user" if owner == "user" else "agent")
            for name, owner in self.task.tools
        ]
        return (*actions, *listed)

    def evidence(self, k: int) -> Evidence:
        """The rubric, which names the final id (see `leaks_by_design`), and facts for rules.

        Handing over is right where a desk has no tool for it (A3). Only an exact match is a place
        that was asked for; in B2 the nearest one will do, so nothing is said of it there.
        """
        task = self.task
        facts: dict[str, Any] = {}
        if task.desk:
            facts["handoff"] = {"tools": ["transfer"], "allowed": task.family == "A3"}
            facts["directions"] = {"foreign-tool": "ask user to run {tool}"}
        elif task.family != "B2":
            facts["exact_match"] = {"name": task.name, "search": ["search"], "commit": ["route"]}
            again = f"must search {task.name} in {task.city}"
            facts["directions"] = {"no-exact-match": again}
        return Evidence(task.rubric, facts)
