"""A run as its events tell it, ready for counting.

Texts stay on the disk: a run of a large model has hundreds of megabytes of them, and a report shows
a few. A `Look` knows where its line is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

Numbers = Mapping[str, float]
Status = Literal["done", "interrupted", "failed", "open"]


@frozen
class Step:
    """A `StepDone`: `step` counts from 0, its rollouts are by the policy after `step` steps."""

    step: int
    metrics: Numbers = field(repr=False)
    words: str = ""


@frozen
class Evaluation:
    """An `Evaluated`: after `step` steps."""

    step: int
    metrics: Numbers = field(repr=False)
    families: Mapping[str, Numbers] = field(repr=False)

    def value(self, metric: str, families: Sequence[str] = ()) -> float | None:
        """A metric over all tasks, or over those of some families; None where one lacks it.

        A family weighs as much as it has tasks, as in `rti compare`.
        """
        if not families:
            return self.metrics.get(metric)
        rows = [self.families.get(family, {}) for family in families]
        if not all(metric in row for row in rows):
            return None
        weights = [row.get("tasks", 1.0) for row in rows]
        total = math.fsum(w * row[metric] for w, row in zip(weights, rows, strict=True))
        return total / math.fsum(weights)


@frozen
class Look:
    """A `TurnRepaired` without its texts; `place` is where they are: (offset, bytes)."""

    step: int
    task: str
    family: str
    rollout: int
    attempt: int
    turn: int | None
    stage: str
    reason: str
    perplexity: float | None
    threshold: float | None
    weights: tuple[float, ...] = field(repr=False)
    outcome: float | None
    trained: bool
    place: tuple[int, int] = field(repr=False)


@frozen
class RunLog:
    """A run as its events tell it."""

    folder: Path
    started: Mapping[str, Any] = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    evaluations: tuple[Evaluation, ...] = field(repr=False)
    looks: tuple[Look, ...] = field(repr=False)
    status: Status
    reason: str = ""
    seconds: float | None = None
    tokens: float = 0.0
    last: str = ""
    """Time of the last event, as it stands there."""
    cut: bool = False
    """Whether the last line was cut short."""
    unread: int = 0
    """Whole lines that are no events."""
    config: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def planned(self) -> int:
        """Steps that the run was to take; 0 when that is not on record."""
        return int(number(self.started.get("steps")) or 0)

    @property
    def done(self) -> int:
        """Steps taken."""
        return max([s.step + 1 for s in self.steps], default=0)

    @property
    def seed(self) -> int | None:
        """The seed, where it is on record."""
        value = number(self.started.get("seed"))
        return None if value is None else int(value)

    @property
    def plugins(self) -> Mapping[str, str]:
        """Plug-ins by section, as the run named them."""
        named = self.started.get("plugins")
        return {str(k): str(v) for k, v in named.items()} if isinstance(named, Mapping) else {}


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def mean(values: Sequence[float]) -> float:
    """The mean; of nothing it is NaN."""
    return math.fsum(values) / len(values) if values else math.nan
