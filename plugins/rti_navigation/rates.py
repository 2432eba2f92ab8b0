"""What the scripted policies come to, and what sessions cost: measured, never written down."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from rti import Message, Session, Task, Turn
from rti_navigation.environment import NavigationEnvironment
from rti_navigation.session import NavigationSession
from rti_navigation.tasks import FAMILIES
from rti_navigation.world import build

Agent = Callable[[Session], Message]


@frozen
class Played:
    """One finished episode. `right` counts the places that the last route had right."""

    family: str
    solved: bool
    places: int
    right: int
    turns: int


@frozen
class Rate:
    """A share of a number of trials."""

    hits: int
    trials: int

    @property
    def share(self) -> float:
        """Hits a trial."""
        return self.hits / self.trials if self.trials else math.nan

    def interval(self, z: float = 1.959964) -> tuple[float, float]:
        """The 95 % interval of Wilson."""
        if not self.trials:
            return math.nan, math.nan
        n, p = self.trials, self.share
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)


async def episode(environment: NavigationEnvironment, task: Task, agent: Agent) -> Session:
    """Play a task to its end."""
    session = await environment.start(task)
    for index in range(environment.max_turns):
        message = agent(session)
        step = await session.step(Turn(index, (0,), (0,), (0.0,), message))
        if step.done or step.truncated:
            break
    return session


async def play(environment: NavigationEnvironment, task: Task, agent: Agent) -> Played:
    """Play a task, and count what was right."""
    session = await episode(environment, task, agent)
    assert isinstance(session, NavigationSession)
    last = next((c for c in reversed(session.calls) if c.name == "direction"), None)
    stops = session.setting.journey.stops
    chosen = last.stops if last else ()
    right = sum(a.id == b for a, b in zip(stops, chosen, strict=False) if a.id)
    solved = session.score() >= environment.threshold
    await session.close()
    return Played(task.family, solved, len(stops), right, session.turns)


def solved(played: Sequence[Played], family: str = "") -> Rate:
    """Tasks that were solved: all, or those of a family."""
    counted = [p for p in played if family in ("", p.family)]
    return Rate(sum(p.solved for p in counted), len(counted))


def resolved(played: Sequence[Played]) -> Rate:
    """Places that the last route had right, of all that exist in tasks that have a route."""
    counted = [p for p in played if p.family != "missing"]
    return Rate(sum(p.right for p in counted), sum(p.places for p in counted))


def table(results: dict[str, list[Played]]) -> list[str]:
    """The results in Markdown."""
    lines = [
        f"| policy | tasks solved | 95 % | places right | turns | {' | '.join(FAMILIES)} |",
        "|---|---|---|---|---|" + "---|" * len(FAMILIES),
    ]
    for name, played in results.items():
        rate = solved(played)
        low, high = rate.interval()
        turns = sum(p.turns for p in played) / len(played)
        families = [solved(played, family) for family in FAMILIES]
        cells = [
            name,
            f"{rate.share:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{resolved(played).share:.1%}",
            f"{turns:.1f}",
            *(f"{r.hits}/{r.trials}" for r in families),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def record(results: dict[str, list[Played]]) -> dict[str, Any]:
    """The results as plain data."""
    return {
        name: {
            "tasks": len(played),
            "solved": solved(played).share,
            "interval": solved(played).interval(),
            "places_right": resolved(played).share,
            "families": {f: [solved(played, f).hits, solved(played, f).trials] for f in FAMILIES},
        }
        for name, played in results.items()
    }


@frozen
class Costs:
    """What all sessions of a process share: seconds of one core, and memory."""

    world_s: float
    world_mb: float
    tasks_s: float
    tasks: int


def costs(seed: int) -> Costs:
    """Make the cities and the tasks of a split. Time and memory are taken apart."""
    began = time.process_time()
    build.__wrapped__(seed, "train")
    world_s = time.process_time() - began
    began = time.process_time()
    tasks = NavigationEnvironment(seed=seed).tasks("train")
    tasks_s = time.process_time() - began
    tracemalloc.start()
    try:
        world = build.__wrapped__(seed, "train")
        world_mb = tracemalloc.get_traced_memory()[0] / 2**20
        del world
    finally:
        tracemalloc.stop()
    return Costs(world_s, world_mb, tasks_s, len(tasks))
