"""A whole compare: what is to be done, doing it, and the record of what came out."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from attrs import frozen

from rti.checkpoint import WRITING, clean, write_text
from rti.compare.cells import EVENTS, Cell, cells_of, resolved
from rti.compare.output import as_csv, markdown
from rti.compare.preparing import Preparation, mark, preparations, prepared
from rti.compare.schedule import Job, run_jobs
from rti.compare.services import Services
from rti.compare.spec import Spec
from rti.compare.summary import record
from rti.engine import versions
from rti.errors import ConfigError, RunError
from rti.registry import Registry

RESULT = "compare"
LOCK = "compare.lock"


@frozen
class Plan:
    """The cells and preparations of a compare, with what is done already."""

    spec: Spec
    registry: Registry
    cells: tuple[Cell, ...]
    preparations: tuple[Preparation, ...]
    done: frozenset[str]
    """Names of what is done, and is not to be done anew."""
    anew: tuple[Cell, ...] = ()
    """Cells whose stored runs are thrown away first."""


def plan(spec: Spec, registry: Registry, rerun: Sequence[str] = ()) -> Plan:
    """What there is to do, with all runs of the arms in `rerun`. It touches nothing.

    An arm that takes its tokens from one in `rerun` is run anew too: it was stopped at the tokens
    of runs that will no longer be there.

    Raises:
        ConfigError: for a bad recipe or option of any arm, an arm in `rerun` that is none, or a
            stored run of another config.
    """
    if Path(spec.out).exists() and not Path(spec.out).is_dir():
        raise ConfigError(f"[compare] out = {spec.out!r}: name a folder; that is a file.")
    for name in rerun:
        if name not in spec.arms:
            raise ConfigError(f"--rerun {name}: there is no such arm in {spec.file}.")
    # First those that wait for others: a kill between two removals must leave none of them behind.
    followers = [name for name, arm in spec.arms.items() if arm.tokens_of in rerun]
    anew_arms = list(dict.fromkeys([*followers, *rerun]))
    cells, before = cells_of(spec, registry, anew_arms), preparations(spec)
    marks = prepared(spec)
    anew = tuple(c for name in anew_arms for c in cells if c.arm == name)
    done = {p.name for p in before if p.words in marks}
    done |= {c.name for c in cells if c not in anew and c.done}
    return Plan(spec, registry, tuple(cells), tuple(before), frozenset(done), anew)


def carry_out(made: Plan, at_once: int, tell: Callable[[Sequence[Job]], None]) -> dict[str, Any]:
    """Run what is not done yet, and return the record. It is written after every finished run.

    Raises:
        RunError: when something failed; the rest was finished first.
        ConfigError: when another compare is at work in the same folder.
    """
    spec, services = made.spec, Services(made.spec, made.registry.words)
    with _alone(Path(spec.out)):
        clean(Path(spec.out))
        for cell in made.anew:
            _remove(cell.folder)
        made = plan(spec, made.registry)  # another compare may have done something since
        jobs = list(_jobs(made, services))
        try:
            failed = run_jobs(jobs, at_once, set(made.done), tell)
        finally:
            services.close()
        found = write(made)
    if failed:
        raise RunError(
            f"{len(failed)} of {len(jobs)} failed; the others are done, and the next `rti compare` "
            "goes on from there.\n" + "\n".join(f"{j.name} {j.failure}" for j in failed)
        )
    return found


def write(made: Plan) -> dict[str, Any]:
    """Write compare.json, compare.csv and compare.md of the runs that are done."""
    spec, place = made.spec, Path(made.spec.out)
    first = {name: next(c for c in made.cells if c.arm == name) for name in spec.arms}
    config = {
        **spec.source,
        "resolved": {name: resolved(cell, made.registry) for name, cell in first.items()},
    }
    found = record(spec, made.cells, {"config": config, "versions": versions()})
    found["seconds"] = math.fsum(row["seconds"] for row in found["cells"].values())
    save(found, place / RESULT)
    return found


def save(found: dict[str, Any], stem: Path) -> None:
    """Write the record as STEM.json, STEM.csv and STEM.md, each atomically."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_strict(found), indent=1, allow_nan=False) + "\n"
    write_text(stem.with_name(f"{stem.name}.json"), text)
    write_text(stem.with_name(f"{stem.name}.csv"), as_csv(found))
    write_text(stem.with_name(f"{stem.name}.md"), markdown(found))


def _jobs(made: Plan, services: Services) -> Iterator[Job]:
    """Preparations and runs that are not done, seed after seed.

    Each seed's runs stand behind the next seed's preparations, so that no core waits for those.
    """
    before = {c.name: _prepared_for(c, made.preparations) for c in made.cells}
    by_name = {c.name: c for c in made.cells}
    begun = set(made.done)
    runs: list[Job] = []
    for _, of_seed in groupby(made.cells, key=lambda c: c.seed):
        late, runs = runs, []
        for cell in (c for c in of_seed if c.name not in made.done):
            for p in made.preparations:
                if p.name in before[cell.name] and p.name not in begun:
                    begun.add(p.name)
                    yield _preparing(p, made)
            waits = (*before[cell.name], *([cell.after] if cell.after else ()))
            words = partial(_words, cell, by_name.get(cell.after), services, made.registry)
            job = Job(
                cell.name, words, cell.log, waits, partial(write, made), partial(_lacks, cell)
            )
            runs.append(job)
        yield from late
    yield from runs


def _lacks(cell: Cell) -> str:
    return "" if cell.done else f"ended without a word of it in {cell.folder / EVENTS}"


def _remove(folder: Path) -> None:
    """Out of sight first: a kill in the middle of it must not leave what looks like a run."""
    if not folder.exists():
        return
    try:
        going = Path(tempfile.mkdtemp(dir=folder.parent, prefix=WRITING))
        folder.rename(going / folder.name)
        shutil.rmtree(going)
    except OSError as error:
        raise RunError(
            f"{folder} cannot be thrown away ({error}). Remove it by hand and run this again."
        ) from error


def _preparing(p: Preparation, made: Plan) -> Job:
    log = Path(made.spec.out) / f"{p.name}.log"
    words = [*made.registry.words, *p.words]
    return Job(p.name, lambda: words, log, finished=partial(mark, made.spec, p.words))


def _words(cell: Cell, other: Cell | None, services: Services, registry: Registry) -> list[str]:
    ports = services.need(cell.services)
    return [*registry.words, *cell.words(ports, other.tokens if other is not None else 0)]


def _prepared_for(cell: Cell, before: Sequence[Preparation]) -> tuple[str, ...]:
    return tuple(p.name for p in before if p.seed in (None, cell.seed))


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Two compares in one folder would write into each other's runs."""
    import fcntl

    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / LOCK).open("a")
    except OSError as error:
        raise ConfigError(
            f"[compare] out = {str(place)!r}: {error.strerror}. Name a folder that can be written "
            "into."
        ) from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"[compare] out = {str(place)!r}: another rti compare is at work there. Wait for "
                "it, or choose another folder."
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _strict(value: Any) -> Any:
    """NaN and infinities (δ = inf, say) as null and text: strict JSON knows neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {str(k): _strict(v) for k, v in value.items()}
    return [_strict(v) for v in value] if isinstance(value, list | tuple) else value
