"""What is run once before arms: warm starts, say. Done is what left a mark after success."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from rti.checkpoint import write_text
from rti.compare.spec import PREPARE, Spec

MARKS = "prepared.json"


@frozen
class Preparation:
    """One `rti` sub-command; `seed` is None where it is run once for all seeds."""

    name: str
    words: tuple[str, ...]
    seed: int | None = None


def preparations(spec: Spec) -> list[Preparation]:
    """All of them, those for all seeds first."""
    seeds = dict.fromkeys(s for name in spec.arms for s in spec.seeds_of(name))
    found: list[Preparation] = []
    for number, words in enumerate(spec.prepare, start=1):
        here = [w.replace("{out}", spec.out) for w in words]
        if not any("{seed}" in w for w in here):
            found.append(Preparation(f"{PREPARE}-{number}", tuple(here)))
            continue
        for seed in seeds:
            own = tuple(w.replace("{seed}", str(seed)) for w in here)
            found.append(Preparation(f"{PREPARE}-{number}-{seed}", own, seed))
    return sorted(found, key=lambda p: p.seed is not None)


def prepared(spec: Spec) -> set[tuple[str, ...]]:
    """The commands that have been run with success, in this OUT."""
    try:
        rows = json.loads((Path(spec.out) / MARKS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return {tuple(row) for row in rows}


def mark(spec: Spec, words: Sequence[str]) -> None:
    """Note that a command has been run with success."""
    rows = sorted({*prepared(spec), tuple(words)})
    write_text(Path(spec.out) / MARKS, json.dumps(rows, indent=1) + "\n")
