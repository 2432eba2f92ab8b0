"""The plots over training: learning curves, pass@G, perplexities, made-up values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rti.report import tables
from rti.report.curves import (
    POINTS,
    Line,
    line,
    of_evaluations,
    of_steps,
    over_tokens,
    plot,
    resample,
    smooth,
    together,
)
from rti.report.log import RunLog
from rti.report.source import Source

GRID = 50
"""Pieces of the axis of tokens."""

Groups = Mapping[str, Sequence[str]]


def learning(source: Source, groups: Groups) -> list[dict[str, Any]]:
    """Every view of the learning curves: a metric over some tasks, a line an arm."""
    logs = source.logs()
    metrics = tables.pass_metrics(logs)
    families = list(dict.fromkeys(f for log in logs for at in log.evaluations for f in at.families))
    sets: dict[str, Sequence[str]] = {
        name or "all tasks": chosen for name, chosen in groups.items()
    }
    sets |= {family: [family] for family in families}
    views = []
    for metric in metrics:
        if source.kind == "run" and len(families) > 1:
            lines = _families(logs[0], metric, families)
            views.append(_view(metric, "all, and each family", "steps", lines))
        for name, chosen in sets.items():
            views.append(_view(metric, name, "steps", _arm_lines(source, metric, chosen)))
            if source.kind == "compare" and name not in families:
                lines = _token_lines(source, metric, chosen)
                views.append(_view(metric, name, "tokens", lines))
    stored = [
        line(arm, arm, [dict(c.curve) for c in source.of(arm)], within=(0, 1), dots=True, colour=i)
        for i, arm in enumerate(source.arms)
    ]
    if any(not cell.log for cell in source.cells) and any(stored):
        name = next((name for name in groups if name), "all tasks")
        views.insert(0, _view("pass@1", f"{name}, as compared", "steps", stored))
    return [view for view in views if view["plot"]]


def _view(metric: str, tasks: str, over: str, lines: Sequence[Line | None]) -> dict[str, Any]:
    return {"metric": metric, "tasks": tasks, "over": over, "plot": plot(lines)}


def _families(log: RunLog, metric: str, families: Sequence[str]) -> list[Line | None]:
    every = line("", "all tasks", [of_evaluations(log, metric)], dots=True, colour=-1)
    return [every] + [
        line("", family, [of_evaluations(log, metric, [family])], colour=i)
        for i, family in enumerate(families)
    ]


def _arm_lines(source: Source, metric: str, families: Sequence[str]) -> list[Line | None]:
    return [
        line(
            arm,
            arm if source.kind == "compare" else metric,
            together([of_evaluations(log, metric, families) for log in source.logs(arm)]),
            within=(0, 1),
            dots=True,
            colour=i,
        )
        for i, arm in enumerate(source.arms)
    ]


def _token_lines(source: Source, metric: str, families: Sequence[str]) -> list[Line | None]:
    """The same against tokens spent, on one grid: seeds evaluate at different counts."""
    curves = [
        [over_tokens(log, of_evaluations(log, metric, families)) for log in source.logs(arm)]
        for arm in source.arms
    ]
    most = max((x for arm in curves for points in arm for x in points), default=0.0)
    grid = [most * i / GRID for i in range(GRID + 1)]
    return [
        line(arm, arm, [resample(p, grid) for p in curves[i]], within=(0, 1), colour=i)
        for i, arm in enumerate(source.arms)
    ]


def _stepwise(
    source: Source,
    metric: str,
    label: str,
    width: int,
    *,
    within: tuple[float, float],
    first: int = 0,
) -> list[Line | None]:
    """A metric of every step, smoothed, a line an arm; of a single run the steps as well."""
    single, lines = source.kind == "run", list[Line | None]()
    for i, arm in enumerate(source.arms):
        name, colour = (label, first) if single else (f"{arm} · {label}".rstrip(" ·"), i)
        logs = source.logs(arm)
        raw = together([of_steps(log, metric) for log in logs])
        if single and width > 1:
            lines.append(line(arm, f"{name}, each step", raw, colour=colour, faint=True))
        at = [sorted(xs) for xs in together([{float(s.step): 0.0 for s in g.steps} for g in logs])]
        wide = max(width, *(_gap(xs) for xs in at)) if at else width
        smoothed = [smooth(points, xs, wide) for points, xs in zip(raw, at, strict=True)]
        lines.append(line(arm, name, smoothed, within=within, every=False, colour=colour))
    return lines


def _gap(xs: Sequence[float]) -> int:
    return round((xs[-1] - xs[0]) / (len(xs) - 1)) if len(xs) > POINTS // 2 else 1


def pass_G(source: Source, width: int) -> dict[str, Any] | None:
    """pass@G before intervention; of a run pass@1 beside it."""
    share = (0.0, 1.0)
    label = "pass@G" if source.kind == "run" else ""
    lines = _stepwise(source, "pass@G", label, width, within=share)
    if source.kind == "run":
        lines += _stepwise(source, "pass@1", "pass@1", width, within=share, first=1)
    return plot(lines)


def ppl(source: Source, width: int) -> dict[str, Any] | None:
    """Mean PPL of intervened turns, and the PPL of the fixed probe."""
    span, single = (1.0, float("inf")), source.kind == "run"
    lines = _stepwise(source, "mean_ppl", "intervened turns", width, within=span)
    for i, arm in enumerate(source.arms):
        label, colour = ("fixed probe", 1) if single else (f"{arm} · fixed probe", i)
        probes = [of_evaluations(log, "probe_ppl") for log in source.logs(arm)]
        lines.append(line(arm, label, probes, within=span, colour=colour, dashed=True, dots=True))
    return plot(lines)


def made_up(source: Source, width: int) -> dict[str, Any] | None:
    """Share of final values that nothing had shown: in training, and held out."""
    share, single = (0.0, 1.0), source.kind == "run"
    lines = _stepwise(source, "made_up", "in training", width, within=share)
    for i, arm in enumerate(source.arms):
        label, colour = ("held out", 1) if single else (f"{arm} · held out", i)
        held = [of_evaluations(log, "made_up") for log in source.logs(arm)]
        lines.append(line(arm, label, held, within=share, colour=colour, dashed=True, dots=True))
    return plot(lines)
