"""The pocket environment: telecom desk and navigation behind the Environment protocol."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from attrs import define, field, frozen

from rti import (
    CannotFork,
    ConfigError,
    Evidence,
    Message,
    Policy,
    Privileged,
    Renderer,
    Session,
    Step,
    Task,
    Tool,
    ToolCall,
    Turn,
    above,
    at_least,
    option,
)
from rti_pocket.world import (
    DESK_VERBS,
    FAMILIES,
    MAX_TURNS,
    NAV_VERBS,
    SPLITS,
    Action,
    PocketTask,
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
        return _tasks(self.seed, split, count)

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


@lru_cache(maxsize=16)
def _tasks(seed: int, split: str, count: int) -> tuple[Task, ...]:
    tasks = []
    for family in FAMILIES:
        rng = random.Random(f"{seed}/{split}/{family}")
        for i in range(count):
            data = {"task": make_task(rng, family, split)}
            tasks.append(Task(f"{family}-{split}-{i}", family, split, data))
    return tuple(tasks)


def _gold(session: Session) -> Message:
    assert isinstance(session, PocketSession)
    verb, value = expert(session.task, session.seen)
    call = ToolCall(verb, {"value": value} if value else {})
    return Message("assistant", "gold .", tool_calls=(call,))


def _noop(session: Session) -> Message:
    return Message("assistant", "sorry .")


@define
class PocketSession:
    """One episode. Its state is its observations: the world depends on nothing else."""

    task: PocketTask
    seen: list[str] = field(factory=list)
    reward: int = 0
    done: bool = False
    _marks: list[int] = field(factory=list)
    """Number of observations before each turn, for forks."""

    @property
    def opening(self) -> Sequence[Message]:
        """What the world says first."""
        return (Message("system", self.task.system), Message("user", self.task.user))

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

    async def step(self, turn: Turn) -> Step:
        """Execute a turn. One without an action ends the episode."""
        self._marks.append(len(self.seen))
        call = turn.message.tool_calls[0] if turn.message.tool_calls else None
        action: Action | None = None
        if call is not None:
            action = call.name, str(call.arguments.get("value", ""))
        reply = react(self.task, action)
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

    async def fork(self, k: int) -> PocketSession:
        """The state before turn `k`."""
        if not 0 <= k <= len(self._marks):
            raise CannotFork(f"turn {k}: this episode has {len(self._marks)} turns")
        kept = self._marks[k] if k < len(self._marks) else len(self.seen)
        return PocketSession(self.task, self.seen[:kept], marks=self._marks[:k])

    def state_digest(self) -> str:
        """Hash of task, observations and end."""
        state = repr((self.task, self.seen, self.reward, self.done, self._marks))
        return hashlib.sha256(state.encode()).hexdigest()

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

    def privileged(self) -> Privileged:
        """The final id."""
        return Privileged((self.task.gold,) if self.task.gold else ())

    def score(self) -> float:
        """1 for the right ending, 0 for any other."""
        return float(self.reward)

    async def close(self) -> None:
        """Nothing to release."""
