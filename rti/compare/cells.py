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
from rti.config import Config, dump_config, load_config
from rti.convert import did_you_mean, listed
from rti.errors import ConfigError, PluginError, RtiError
from rti.registry import Registry

EVENTS, CONFIG = "events.jsonl", "config.toml"
END_BYTES = 1 << 13
"""Of the end of a log, in which the last event of a finished run stands."""
_TURN, TURN_END = b'"event": "TurnRepaired"', 100
"""What a line of a repaired turn has near its end."""
LOG = "jsonl"
"""The reporter that writes it."""
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
        return self._end is not None

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
        assert self._end is not None
        return float(self._end["tokens"])

    @property
    def _end(self) -> dict[str, Any] | None:
        """`RunEnded` of a run that has come to its end: nothing follows it."""
        lines = tail(self.folder / EVENTS, END_BYTES)
        last = _event(lines[-1]) if lines else None
        return (
            last if last and (last["event"], last.get("status")) == ("RunEnded", "done") else None
        )


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
        first = next(c for c in cells if c.arm == name)
        _fits(first, resolved(first, registry), spec, registry)
    return [cell if cell.arm in rerun else _checked(cell, registry) for cell in cells]


def _fits(cell: Cell, config: Mapping[str, Any], spec: Spec, registry: Registry) -> None:
    """An arm must leave what the table is made of: a log, evaluations, families of all groups."""
    arm = cell.arm
    reporters = [row["use"] for row in config["reporter"]]
    if LOG not in reporters:
        raise ConfigError(
            f"[arms.{arm}] [reporter] use = {reporters}: the table is made from {EVENTS}, which "
            f"the reporter {LOG!r} writes. Add it."
        )
    if not config["eval"]["every"]:
        raise ConfigError(
            f"[arms.{arm}] [eval] every = 0: the table is made of evaluations. Set it, as in "
            "eval.every=20."
        )
    evaluated = config["eval"]["families"] or (_families(cell, registry) if spec.groups else [])
    for group, families in spec.groups.items():
        for family in families:
            if evaluated and family not in evaluated:
                raise ConfigError(
                    f"[compare] groups.{group}: the arm {arm!r} evaluates no family {family!r}."
                    f"{did_you_mean(family, evaluated)} There are: {listed(evaluated)}."
                )


def _families(cell: Cell, registry: Registry) -> list[str]:
    """Of the tasks that are evaluated; none where the environment must be bound to tell them."""
    config = _config(cell)
    try:
        tasks = registry.build(config.environment).tasks(config.eval.split)
    except RtiError:
        raise
    except Exception:  # foreign code, not bound: whatever it lacks, the run will say
        return []
    return list(dict.fromkeys(task.family for task in tasks))


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
    now = resolved(cell, registry)
    try:
        before = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no TOML, no UTF-8
        return f"its {CONFIG} cannot be read ({error})"
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
        ConfigError, PluginError: for a bad recipe, option or plug-in; it names the arm.
    """
    try:
        text = _dumped(cell, registry)
    except (ConfigError, PluginError) as error:
        raise type(error)(f"[arms.{cell.arm}] {error}") from error
    return tomllib.loads(text)


@lru_cache(maxsize=1024)
def _dumped(cell: Cell, registry: Registry) -> str:
    return dump_config(_config(cell), registry)


def _config(cell: Cell) -> Config:
    anywhere = {name: 1 for name in cell.services}  # where a service listens is no part of a run
    return load_config(cell.recipe, with_ports(cell.options, anywhere))


def events(folder: Path) -> list[dict[str, Any]]:
    """The events that a run has written so far, without its repaired turns: those are long.

    What is no event, as the line that a kill cut short, is left out.
    """
    path = folder / EVENTS
    if not path.is_file():
        return []
    with path.open("rb") as lines:
        found = (_event(line) for line in lines if _TURN not in line[-TURN_END:])
        return [event for event in found if event is not None]


def tail(path: Path, size: int) -> list[bytes]:
    """The whole lines in the last `size` bytes of a file; none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            begin = max(0, file.tell() - size)
            file.seek(begin)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return lines[bool(begin) : -1]  # the last one is cut, or empty; the first one may be cut


def last_events(folder: Path, size: int) -> list[dict[str, Any]]:
    """The events in the last `size` bytes of a run's log."""
    found = (_event(line) for line in tail(folder / EVENTS, size))
    return [event for event in found if event is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None
