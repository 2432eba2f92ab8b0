"""What `rti report` was pointed at: one run, a finished compare, or the folders of one that is not.

A compare is read from `compare.json`; without it, from run folders named ARM-SEED.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from rti.convert import listed
from rti.errors import ConfigError, RunError
from rti.report.log import RunLog, number
from rti.report.reading import CONFIG, EVENTS, read_run

COMPARE = "compare.json"


@frozen
class Cell:
    """One run in its arm. `log` is None when only `curve`, out of compare.json, is left of it."""

    name: str
    arm: str
    seed: int | None
    log: RunLog | None = None
    curve: tuple[tuple[float, float], ...] = field(default=(), repr=False)


@frozen
class Source:
    """What a report is made of."""

    kind: Literal["run", "compare"]
    title: str
    cells: tuple[Cell, ...]
    out: Path
    """Where the report goes unless another place is named."""
    results: Mapping[str, Any] = field(factory=dict, repr=False)
    """compare.json, {} without one."""
    notes: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, in order."""
        return tuple(dict.fromkeys(cell.arm for cell in self.cells))

    def of(self, arm: str) -> list[Cell]:
        """The runs of an arm."""
        return [cell for cell in self.cells if cell.arm == arm]

    def logs(self, arm: str | None = None) -> list[RunLog]:
        """The runs that are here, of one arm or all."""
        return [c.log for c in self.cells if c.log and arm in (None, c.arm)]


def read_source(path: Path) -> Source:
    """Read a run's folder (or its events.jsonl), or a compare's (or its compare.json).

    Raises:
        ConfigError: when `path` is neither.
        RunError: when it is, but holds nothing to report.
    """
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or folder.")
    if path.is_file():
        if path.name == EVENTS:
            return _run(path.parent)
        if path.suffix == ".json":
            return _compare(path)
        raise ConfigError(f"{path}: name a run's folder, or a compare's with its {COMPARE}.")
    if (path / EVENTS).is_file():
        return _run(path)
    if (path / COMPARE).is_file():
        return _compare(path / COMPARE)
    inside = _runs_in(path)
    if inside:
        return _folders(path, inside)
    if (path / CONFIG).is_file():
        raise RunError(
            f"{path} is a run without {EVENTS}: it has not begun yet, or its config left out the "
            "reporter 'jsonl'."
        )
    above = path.parent.parent
    hint = f" Did you mean the run {above}?" if (above / EVENTS).is_file() else ""
    raise ConfigError(
        f"{path} is neither a run ({EVENTS}) nor a compare ({COMPARE}, or runs in it); it holds "
        f"{listed(sorted(p.name for p in path.iterdir())[:8])}.{hint}"
    )


def _run(folder: Path) -> Source:
    log = read_run(folder)
    name = folder.resolve().name
    arm = re.sub(r"-\d+$", "", name) or name
    cell = Cell(name, arm, log.seed, log)
    return Source("run", name, (cell,), folder / "report.html")


def _runs_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if (p / EVENTS).is_file())


def _folders(path: Path, folders: list[Path]) -> Source:
    cells, notes = [], [f"There is no {COMPARE} yet: arms are read from the names of folders."]
    for folder in folders:
        try:
            log = read_run(folder)
        except RunError as error:
            notes.append(str(error))
            continue
        arm = re.sub(r"-\d+$", "", folder.name) or folder.name
        cells.append(Cell(folder.name, arm, log.seed, log))
    if not cells:
        raise RunError(f"{path}: no run in there can be read. {' '.join(notes[1:])}")
    cells.sort(key=lambda c: (c.arm, c.seed or 0))
    return Source(
        "compare", path.resolve().name, tuple(cells), path / "report.html", notes=tuple(notes)
    )


def _compare(path: Path) -> Source:
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error}).") from error
    if not isinstance(results, dict) or not isinstance(results.get("arms"), dict):
        raise ConfigError(
            f"{path}: no result of `rti compare`: it has no table 'arms'. Name a run's folder, or "
            f"a compare's with its {COMPARE}."
        )
    stored = results.get("cells")
    entries = {str(k): v for k, v in stored.items()} if isinstance(stored, dict) else {}
    names = tuple(map(str, results["arms"]))
    cells, notes = list[Cell](), list[str]()
    for name, entry in {**entries, **_unfinished(results["arms"], entries, path.parent)}.items():
        cell, note = _cell(name, entry, path.parent, names)
        cells += [cell] if cell is not None else []
        notes += [note] if note else []
    if not cells:
        raise RunError(f"{path}: names no run that can be read. {' '.join(notes)}".rstrip())
    rank = {arm: place for place, arm in enumerate(names)}
    cells.sort(key=lambda c: (rank.get(c.arm, len(rank)), c.seed or 0))
    stem = path.stem if path.name != COMPARE else "report"
    title = path.resolve().parent.name if path.name == COMPARE else path.stem
    out = path.with_name(f"{stem}.html")
    return Source("compare", title, tuple(cells), out, results, tuple(notes))


def _unfinished(
    arms: Mapping[str, Any], known: Mapping[str, Any], home: Path
) -> dict[str, Mapping[str, Any]]:
    """Planned runs that have begun, but that compare.json does not list: they are not done."""
    found: dict[str, Mapping[str, Any]] = {}
    for arm, row in arms.items():
        planned = row.get("planned") if isinstance(row, Mapping) else None
        for seed in planned if isinstance(planned, list) else ():
            name = f"{arm}-{seed}"
            if name not in known and (home / name / EVENTS).is_file():
                found[name] = {"arm": arm, "seed": seed}
    return found


def _cell(
    name: str, entry: Any, home: Path, arms: tuple[str, ...]
) -> tuple[Cell | None, str | None]:
    """A cell "ARM-SEED" with its events, or with its curve alone; and what to say of it."""
    if not isinstance(entry, Mapping):
        return None, f"{name}: not a table in {COMPARE}."
    # The longest arm that fits: "grpo-equal-tokens-101" belongs to no arm "grpo".
    fitting = [arm for arm in arms if name.startswith(f"{arm}-")]
    arm = str(entry.get("arm") or max(fitting, key=len, default=re.sub(r"-\d+$", "", name)))
    digits = re.search(r"-(\d+)$", name)
    seed = number(entry.get("seed"))
    at = int(seed) if seed is not None else int(digits[1]) if digits else None
    points = entry.get("curve")
    curve = tuple(
        (float(p[0]), float(p[1]))
        for p in (points if isinstance(points, list) else [])
        if isinstance(p, list) and len(p) == 2 and None not in map(number, p)
    )
    folder = _folder(str(entry.get("folder") or name), name, home)
    if folder is None:
        note = f"{name}: its folder is not here, so that only its curve is shown."
        return (Cell(name, arm, at, None, curve), note) if curve else (None, note)
    try:
        return Cell(name, arm, at, read_run(folder), curve), None
    except RunError as error:
        return (Cell(name, arm, at, None, curve) if curve else None), str(error)


def _folder(named: str, name: str, home: Path) -> Path | None:
    """A cell's folder: beside compare.json, or where that says.

    Beside it first: where a copy lies, the place that it names is another compare's.
    """
    places = (home / name, home / Path(named).name, home / named, Path(named))
    return next((p for p in places if (p / EVENTS).is_file()), None)
