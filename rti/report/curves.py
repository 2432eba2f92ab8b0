"""Curves over training: aligned over the seeds of an arm, smoothed, with a band.

The band is the interval of `rti.compare.stats`, Student's t over seeds, at each step on its own.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from rti.compare.stats import mean_interval
from rti.report.log import RunLog, mean

POINTS = 300
"""Most points of a curve: longer runs are averaged over so many pieces."""
SMOOTHED = 30
"""A curve of every step is averaged over a window of a 1/30 of the run, so that it can be read."""

Points = Mapping[float, float]
"""x → value, of one seed."""


@frozen
class Line:
    """One line of a plot: means, and where there are several seeds a band around them."""

    arm: str
    label: str
    points: Points = field(repr=False)
    low: Points = field(factory=dict, repr=False)
    high: Points = field(factory=dict, repr=False)
    seeds: int = 1
    faint: bool = False
    dashed: bool = False
    dots: bool = False
    colour: int = 0


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % t interval of the mean; None for fewer than two values."""
    _, low, high = mean_interval(values)
    return None if low is None or high is None else (low, high)


def line(
    arm: str,
    label: str,
    seeds: Sequence[Points],
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
    every: bool = True,
    colour: int = 0,
    faint: bool = False,
    dashed: bool = False,
    dots: bool = False,
) -> Line | None:
    """The mean over seeds, with its band; None when no seed has any value.

    It is drawn where all seeds have a value: where one has ended, the rest are another sample. With
    `every` False, for what is not measured at every step, half of them are enough for the mean.
    """
    given = [points for points in seeds if points]
    if not given:
        return None
    at: dict[float, list[float]] = {}
    for points in given:
        for x, value in points.items():
            at.setdefault(x, []).append(value)
    needed = len(given) if every else (len(given) + 1) // 2
    at = {x: v for x, v in at.items() if len(v) >= needed}
    bands = {x: interval(v) for x, v in at.items() if len(v) == len(given)}
    kept = {x: band for x, band in bands.items() if band is not None}
    return Line(
        arm=arm,
        label=label,
        points={x: mean(at[x]) for x in sorted(at)},
        low={x: max(within[0], kept[x][0]) for x in sorted(kept)},
        high={x: min(within[1], kept[x][1]) for x in sorted(kept)},
        seeds=len(given),
        faint=faint,
        dashed=dashed,
        dots=dots,
        colour=colour,
    )


def plot(lines: Iterable[Line | None]) -> dict[str, Any] | None:
    """Lines on one x axis, as the page wants them; None when there is nothing to draw."""
    drawn = [found for found in lines if found is not None]
    if not drawn:
        return None
    xs = sorted({x for found in drawn for x in found.points})
    return {
        "x": [short(x) for x in xs],
        "lines": [
            {
                "arm": found.arm,
                "label": found.label,
                "colour": found.colour,
                "seeds": found.seeds,
                "faint": found.faint,
                "dashed": found.dashed,
                "dots": found.dots or len(found.points) == 1,
                "mean": _column(found.points, xs),
                "low": _column(found.low, xs) if found.low else None,
                "high": _column(found.high, xs) if found.high else None,
            }
            for found in drawn
        ],
    }


def of_steps(log: RunLog, metric: str) -> dict[float, float]:
    """A metric of every step that has it; x is the steps done before it."""
    return {float(s.step): s.metrics[metric] for s in log.steps if metric in s.metrics}


def of_evaluations(log: RunLog, metric: str, families: Sequence[str] = ()) -> dict[float, float]:
    """A metric of every evaluation: of all tasks, or the mean over some families."""
    found = {float(at.step): at.value(metric, families) for at in log.evaluations}
    return {step: value for step, value in found.items() if value is not None}


def over_tokens(log: RunLog, points: Points) -> dict[float, float]:
    """A curve over steps as one over the tokens spent until then; {} without a token counter."""
    spent = {float(s.step + 1): s.metrics["tokens"] for s in log.steps if "tokens" in s.metrics}
    spent[0.0] = 0.0
    return {spent[x]: value for x, value in points.items() if x in spent} if len(spent) > 1 else {}


def resample(points: Points, grid: Sequence[float]) -> dict[float, float]:
    """Linear interpolation at the places of a grid that lie between the curve's ends."""
    xs, found = sorted(points), {}
    for x in grid:
        after = bisect.bisect_left(xs, x)
        if after < len(xs) and xs[after] == x:
            found[x] = points[x]
        elif 0 < after < len(xs):
            left, right = xs[after - 1], xs[after]
            part = (x - left) / (right - left)
            found[x] = points[left] + part * (points[right] - points[left])
    return found


def window(steps: int) -> int:
    """Steps that a smoothed curve is averaged over, for a run of so many."""
    return max(1, round(steps / SMOOTHED))


def smooth(points: Points, at: Sequence[float], width: int) -> dict[float, float]:
    """Running mean around each x of `at`, over `width` steps; nothing where they have no value."""
    near = {x: [v for other, v in points.items() if abs(other - x) <= width / 2] for x in at}
    return {x: mean(values) for x, values in near.items() if values}


def thin(points: Points, most: int = POINTS) -> dict[float, float]:
    """Means over equal stretches when there are more than `most` points."""
    return together([points], most)[0]


def together(seeds: Sequence[Points], most: int = POINTS) -> list[dict[float, float]]:
    """`thin` for the seeds of an arm: on the same stretches, so that they stay aligned."""
    xs = sorted({x for points in seeds for x in points})
    if len(xs) <= most:
        return [dict(points) for points in seeds]
    size = math.ceil(len(xs) / most)
    pieces = [xs[i : i + size] for i in range(0, len(xs), size)]
    return [
        {
            piece[len(piece) // 2]: mean([points[x] for x in piece if x in points])
            for piece in pieces
            if any(x in points for x in piece)
        }
        for points in seeds
    ]


def short(value: float) -> float | int:
    """Five digits: what a screen shows, at a third of the bytes."""
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def _column(points: Points, xs: Sequence[float]) -> list[float | int | None]:
    return [short(points[x]) if x in points else None for x in xs]
