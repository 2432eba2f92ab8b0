"""Runs → numbers: what each cell ended with, each arm over its seeds, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rti.compare.cells import Cell, events
from rti.compare.spec import ALL, Spec, pair_name
from rti.compare.stats import METHOD, mean_interval
from rti.convert import did_you_mean, listed

EDGE = 5
"""Steps at either end of a run whose mean stands for its beginning and its end."""
WATCHED = ("pass@G", "groups_all_failed", "mean_ppl", "made_up")
"""Training metrics of which beginning and end are kept."""


def cell_record(cell: Cell, spec: Spec) -> dict[str, Any]:
    """What a finished run came to: metrics of its last evaluation, curve, tokens, seconds."""
    said = events(cell.folder)
    evaluated = [e for e in said if e["event"] == "Evaluated"]
    ended = [e for e in said if e["event"] == "RunEnded"][-1]
    steps = [e["metrics"] for e in said if e["event"] == "StepDone"]
    first = metrics_of(evaluated[0], spec.groups) if evaluated else {}
    return {
        "arm": cell.arm,
        "seed": cell.seed,
        "folder": str(cell.folder),
        "metrics": metrics_of(evaluated[-1], spec.groups) if evaluated else {},
        "before": first,
        "curve": [[e["step"], metrics_of(e, spec.groups).get("pass@1")] for e in evaluated],
        "train": {
            name: [_mean(steps[:EDGE], name), _mean(steps[-EDGE:], name)]
            for name in WATCHED
            if any(name in row for row in steps)
        },
        "steps": ended["step"],
        "tokens": ended["tokens"],
        "seconds": ended["seconds"],
    }


def metrics_of(event: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The metrics of one evaluation.

    With `groups` of families those named pass are of the first group; those of every other group
    are there as "GROUP/pass@1". A family weighs as much as it has tasks; a group of which one was
    not measured has none. The overall ones stay as "all/pass@1".
    """
    found = {k: v for k, v in event["metrics"].items() if isinstance(v, int | float)}
    if not groups:
        return found
    passes = [name for name in found if name.startswith("pass")]
    found = {(f"{ALL}/{k}" if k in passes else k): v for k, v in found.items()}
    for place, (group, names) in enumerate(groups.items()):
        rows = [event["families"].get(name, {}) for name in names]
        weights = [row.get("tasks", 1.0) for row in rows]
        for metric in passes:
            if rows and all(metric in row for row in rows):
                total = math.fsum(w * row[metric] for w, row in zip(weights, rows, strict=True))
                found[metric if place == 0 else f"{group}/{metric}"] = total / math.fsum(weights)
    return found


def record(spec: Spec, cells: Sequence[Cell], made: Mapping[str, Any]) -> dict[str, Any]:
    """`compare.json`: arms, paired differences and cells, as far as there are finished runs.

    Args:
        spec: the compare file.
        cells: all cells.
        made: what goes in as it is: config, versions, seconds.
    """
    done = [cell for cell in cells if cell.done]
    rows = {cell.name: cell_record(cell, spec) for cell in done}
    arms = {name: _arm(name, spec, rows) for name in spec.arms}
    paired = {
        pair_name(one, other): difference
        for one, other in spec.all_pairs()
        if (difference := _paired(one, other, spec, rows))
    }
    notes = _never_measured(done, spec)
    return {
        "arms": arms, "paired": paired, "cells": rows, "notes": notes, "method": METHOD, **made
    }  # fmt: skip


def _never_measured(done: Sequence[Cell], spec: Spec) -> list[str]:
    """What to say of groups with a family that no evaluation knows."""
    known = dict.fromkeys(
        family
        for cell in done
        for event in events(cell.folder)
        if event["event"] == "Evaluated"
        for family in event["families"]
    )
    return [
        f"groups.{group} names {family!r}, which no evaluation has, so that the group has no "
        f"figures.{did_you_mean(family, list(known))} There are: {listed(list(known))}."
        for group, families in spec.groups.items()
        for family in families
        if known and family not in known
    ]


def _arm(name: str, spec: Spec, rows: Mapping[str, Any]) -> dict[str, Any]:
    seeds = [s for s in spec.seeds_of(name) if f"{name}-{s}" in rows]
    mine = [rows[f"{name}-{s}"] for s in seeds]
    flat = [{**r["metrics"], **{k: r[k] for k in ("steps", "tokens", "seconds")}} for r in mine]
    # A metric that some runs lack (made_up, where nothing was called) is over those that have it.
    names = dict.fromkeys(k for row in flat for k in row)
    found: dict[str, Any] = {"seeds": seeds, "planned": list(spec.seeds_of(name))}
    for metric in names:
        values = [row.get(metric) for row in flat]
        found[metric] = {**_spread([v for v in values if v is not None]), "seeds": values}
    return found


def _paired(one: str, other: str, spec: Spec, rows: Mapping[str, Any]) -> dict[str, Any]:
    values = {
        seed: rows[f"{one}-{seed}"]["metrics"]["pass@1"]
        - rows[f"{other}-{seed}"]["metrics"]["pass@1"]
        for seed in spec.seeds_of(one)
        if all("pass@1" in rows.get(f"{arm}-{seed}", {}).get("metrics", ()) for arm in (one, other))
    }
    if not values:
        return {}
    return {**_spread(list(values.values())), "seeds": list(values.values()), "of": list(values)}


def _spread(values: Sequence[float]) -> dict[str, Any]:
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return {"mean": None, "low": None, "high": None}
    mean, low, high = mean_interval(finite)
    return {"mean": mean, "low": low, "high": high}


def _mean(rows: Sequence[Mapping[str, float]], name: str) -> float | None:
    values = list(_present(rows, name))
    return math.fsum(values) / len(values) if values else None


def _present(rows: Sequence[Mapping[str, float]], name: str) -> Iterator[float]:
    for row in rows:
        value = row.get(name)
        if value is not None:
            yield value
