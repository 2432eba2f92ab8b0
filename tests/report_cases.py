"""Runs for the tests of reports.

`data/report` holds four short runs, as `rti train` wrote them: recipes/pocket-rti.toml and
pocket-grpo.toml with `run.steps=3`, `eval.every=1`, two tasks of each family, seeds 3 and 4.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rti.compare.stats import METHOD, mean_interval
from rti.compare.summary import metrics_of

RUNS = Path(__file__).parent / "data" / "report"
GROUPS = {"hard": ("AH", "BH"), "easy": ("A1", "A2", "A3", "B1", "B2", "B3")}

Events = list[dict[str, Any]]


def events(run: Path) -> Events:
    """All events of a run."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text("utf-8").splitlines()]


def write(folder: Path, records: Iterable[dict[str, Any]]) -> Path:
    """A run's folder with these events."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    (folder / "events.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def changed(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """The run rti-3 with every event changed."""
    return write(folder, map(change, events(RUNS / "rti-3")))


def long_run(folder: Path, steps: int) -> Path:
    """A made-up run: the three steps of a real one, over and over, with other task numbers."""
    said = events(RUNS / "rti-3")
    by_step = [
        [e for e in said if e["event"] in ("TurnRepaired", "StepDone") and e["step"] == s]
        for s in range(3)
    ]
    evaluated = [e for e in said if e["event"] == "Evaluated"]
    made: Events = [{**said[0], "steps": steps}, evaluated[0]]
    for step in range(steps):
        for event in by_step[step % 3]:
            task = f"{event['task']}-{step}" if "task" in event else None
            made.append({**event, "step": step, **({"task": task} if task else {})})
        if (step + 1) % 10 == 0:
            made.append({**evaluated[-1], "step": step + 1})
    return write(folder, [*made, {**said[-1], "step": steps}])


def compare(folder: Path) -> Path:
    """A compare's folder: the four runs, and compare.json in the form that `rti compare` has."""
    arms: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    for arm in ("grpo", "rti"):
        rows = []
        for seed in (3, 4):
            place = Path(shutil.copytree(RUNS / f"{arm}-{seed}", folder / f"{arm}-{seed}"))
            said = events(place)
            ended = said[-1]
            every = [metrics_of(e, GROUPS) for e in said if e["event"] == "Evaluated"]
            spent = {name: ended[name] for name in ("tokens", "seconds")}
            rows.append({**every[-1], **spent})
            cells[f"{arm}-{seed}"] = {
                "arm": arm,
                "seed": seed,
                "folder": str(place),
                "curve": [[step, m["pass@1"]] for step, m in enumerate(every)],
            }
        spreads = {n: {**_spread([r[n] for r in rows]), "seeds": [3, 4]} for n in rows[0]}
        arms[arm] = {"seeds": [3, 4], "planned": [3, 4], **spreads, "rows": rows}
    differences = [
        one["pass@1"] - other["pass@1"]
        for one, other in zip(arms["rti"].pop("rows"), arms["grpo"].pop("rows"), strict=True)
    ]
    found = {
        "arms": arms,
        "paired": {"rti-grpo": {**_spread(differences), "seeds": differences, "of": [3, 4]}},
        "cells": cells,
        "method": METHOD,
        "config": {"compare": {"groups": GROUPS, "seeds": [3, 4]}},
        "versions": {"rti-rl": "0.1.0"},
    }
    (folder / "compare.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


def _spread(values: list[float]) -> dict[str, float | None]:
    mean, low, high = mean_interval(values)
    return {"mean": mean, "low": low, "high": high}


def embedded(page: Path) -> Any:
    """The data of a page."""
    text = page.read_text(encoding="utf-8")
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])
