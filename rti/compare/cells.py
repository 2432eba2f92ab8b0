"""Cells of the matrix: one arm at one seed is one run. What it is to be, and whether it is done."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rti.compare.spec import Spec
from rti.config import dump_config, load_config
from rti.errors import ConfigError
from rti.registry import Registry

EVENTS, CONFIG = "events.jsonl", "config.toml"
NO_END = 100_000
"""Steps of a run that its token budget ends."""
FREE = {"run": ("out", "token_budget", "steps"), "teacher": ("base_url",)}
"""What may differ between a stored run and the file: where things lie, and where a budget ends."""


@frozen
class Cell:
    """One run: its folder, its recipe, its options. `{teacher.port}` stays in until it starts."""

    arm: str
    seed: int
    folder: Path
    log: Path
    recipe: Path
    options: tuple[str, ...] = field(repr=False)
    services: tuple[str, ...] = ()
    after: str = ""
    """The name of the cell whose tokens this one is to spend."""

    @property
    def name(self) -> str:
        """arm-seed."""
        return f"{self.arm}-{self.seed}"

    @property
    def done(self) -> bool:
        """Whether the run has come to its end."""
        return any(e["event"] == "RunEnded" and e["status"] == "done" for e in events(self.folder))

    def words(self, ports: Mapping[str, int], budget: float = 0) -> list[str]:
        """The `rti` command line that begins the run or goes on with it."""
        options = with_ports(self.options, ports)
        if budget:
            options.append(f"run.token_budget={budget:.0f}")
        sets = [word for option in options for word in ("--set", option)]
        return ["train", str(self.recipe), "--resume", *sets]

    @property
    def tokens(self) -> float:
        """What the finished run has spent."""
        return float([e for e in events(self.folder) if e["event"] == "RunEnded"][-1]["tokens"])


def with_ports(texts: Sequence[str], ports: Mapping[str, int]) -> list[str]:
    """`{NAME.port}` replaced by the port of a service, where it is known."""
    done = list(texts)
    for name, port in ports.items():
        done = [text.replace(f"{{{name}.port}}", str(port)) for text in done]
    return done


def filled(text: str, spec: Spec, seed: int) -> str:
    """`{out}` and `{seed}` replaced."""
    return text.replace("{out}", spec.out).replace("{seed}", str(seed))


def cells_of(spec: Spec, registry: Registry, rerun: Sequence[str] = ()) -> list[Cell]:
    """All cells, seed after seed, those that others wait for first.

    Raises:
        ConfigError: for a bad recipe or option of any arm, or a stored run of another config, if
            its arm is not in `rerun`.
    """
    order = sorted(spec.arms, key=lambda name: bool(spec.arms[name].tokens_of))
    seeds = dict.fromkeys(s for name in spec.arms for s in spec.seeds_of(name))
    cells = [
        _cell(spec, name, seed) for seed in seeds for name in order if seed in spec.seeds_of(name)
    ]
    for name in spec.arms:  # a bad option of the last arm must not be found after hours
        resolved(next(c for c in cells if c.arm == name), registry)
    return [cell if cell.arm in rerun else _checked(cell, registry) for cell in cells]


def _cell(spec: Spec, name: str, seed: int) -> Cell:
    arm, place = spec.arms[name], Path(spec.out)
    folder = place / f"{name}-{seed}"
    options = [
        *(filled(text, spec, seed) for text in (*spec.set, *arm.set)),
        f"run.out={folder}",
        f"run.seed={seed}",
    ]
    if arm.tokens_of:
        options.append(f"run.steps={NO_END}")
    return Cell(
        name, seed, folder, place / f"{name}-{seed}.log", spec.recipe(name), tuple(options),
        arm.services, f"{arm.tokens_of}-{seed}" if arm.tokens_of else "",
    )  # fmt: skip


def _checked(cell: Cell, registry: Registry) -> Cell:
    found = difference(cell, registry)
    if found:
        raise ConfigError(
            f"{cell.folder} holds a run of another config: {found}. Choose another [compare] out, "
            f"or run the arm anew with --rerun {cell.arm}."
        )
    return cell


def difference(cell: Cell, registry: Registry) -> str:
    """In what a stored run differs from what the file says now; "" where it does not, or is none.

    Where it lies, and where a service listens, may differ.
    """
    path = cell.folder / CONFIG
    if not path.is_file():
        return ""
    before, now = tomllib.loads(path.read_text(encoding="utf-8")), resolved(cell, registry)
    for table in (before, now):
        for section, names in FREE.items():
            free = names if section != "run" or cell.after else ("out",)
            table[section] = {k: v for k, v in table.get(section, {}).items() if k not in free}
    for section in {**before, **now}:
        if before.get(section) != now.get(section):
            return f"[{section}] was {before.get(section)}, it is {now.get(section)}"
    return ""


def resolved(cell: Cell, registry: Registry) -> dict[str, Any]:
    """The cell's whole config, all defaults written out.

    Raises:
        ConfigError: for a bad recipe or option; it names the arm.
    """
    try:
        text = _dumped(cell, registry)
    except ConfigError as error:
        raise ConfigError(f"[arms.{cell.arm}] {error}") from error
    return tomllib.loads(text)


@lru_cache(maxsize=1024)
def _dumped(cell: Cell, registry: Registry) -> str:
    anywhere = {name: 1 for name in cell.services}  # where a service listens is no part of a run
    return dump_config(load_config(cell.recipe, with_ports(cell.options, anywhere)), registry)


def events(folder: Path) -> list[dict[str, Any]]:
    """The events that a run has written so far; the line that a kill cut short is left out."""
    path = folder / EVENTS
    if not path.is_file():
        return []
    found = []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
