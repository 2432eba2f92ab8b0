"""The compare file: which arms, which seeds, what is prepared and served. TOML in, attrs out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, fields_dict, frozen

from rti.convert import did_you_mean, listed
from rti.errors import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
PREPARE, ALL = "prepare", "all"
"""Names that are taken: of the preparations, and of all families together."""


@frozen
class Service:
    """An `rti` sub-command that serves while arms that name it run, and where it says it is up."""

    command: tuple[str, ...]
    ready: str
    timeout_s: float = 120.0


@frozen
class Arm:
    """One row of the matrix: a recipe, options on top of it, and what it depends on."""

    recipe: str = ""
    set: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    tokens_of: str = ""
    seeds: tuple[int, ...] = ()


@frozen
class Spec:
    """A whole compare file. `file` is where it lies: recipes are relative to its folder."""

    file: Path
    arms: Mapping[str, Arm]
    seeds: tuple[int, ...]
    out: str
    baseline: str
    base: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()
    set: tuple[str, ...] = ()
    services: Mapping[str, Service] = field(factory=dict)
    source: Mapping[str, Any] = field(factory=dict, repr=False)

    def recipe(self, arm: str) -> Path:
        """The recipe of an arm."""
        return self.file.parent / (self.arms[arm].recipe or self.base)

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The seeds of an arm: its own, or everyone's."""
        return self.arms[arm].seeds or self.seeds

    def all_pairs(self) -> list[tuple[str, str]]:
        """Every arm against the baseline, then the pairs that were asked for; none twice."""
        against = [(arm, self.baseline) for arm in self.arms if arm != self.baseline]
        return list(dict.fromkeys([*against, *self.pairs]))


def read_spec(file: str | Path) -> Spec:
    """Read a compare file.

    Raises:
        ConfigError: for a file that cannot be read, an unknown key, or a name that stands for
            nothing.
    """
    path = Path(file)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}. Name a compare file (TOML).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no TOML: {error}") from error
    _keys(table, ("compare", "arms", "services"), f"{path}")
    head = _table(table.get("compare"), "[compare]")
    known = [n for n in fields_dict(Spec) if n not in ("file", "arms", "services", "source")]
    _keys(head, known, "[compare]")
    services = {
        name: _service(name, _table(row, f"[services.{name}]"))
        for name, row in _table(table.get("services", {}), "[services]").items()
    }
    arms = {
        name: _arm(name, _table(row, f"[arms.{name}]"))
        for name, row in _table(table.get("arms"), "[arms]").items()
    }
    spec = Spec(
        path,
        arms,
        _seeds(head.get("seeds"), "[compare] seeds"),
        _text(head.get("out"), "[compare] out"),
        _text(head.get("baseline"), "[compare] baseline"),
        _text(head.get("base", ""), "[compare] base", empty=True),
        tuple((a, b) for a, b in _rows(head.get("pairs", []), "[compare] pairs", 2)),
        {
            name: _texts(row, f"[compare] groups.{name}")
            for name, row in _table(head.get("groups", {}), "[compare] groups").items()
        },
        _rows(head.get("prepare", []), "[compare] prepare"),
        _texts(head.get("set", []), "[compare] set"),
        services,
        table,
    )
    _check(spec)
    return spec


def pair_name(one: str, other: str) -> str:
    """How the difference of two arms is called."""
    return f"{one}-{other}"


def _check(spec: Spec) -> None:
    """Names must stand for something, dependencies must end somewhere."""
    if not spec.arms:
        raise ConfigError(f"{spec.file}: no arms. Add one: [arms.NAME].")
    for name in (*spec.arms, *spec.services, *spec.groups):
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} names a folder or a column: letters, digits, '.', '_' and '-' only, and "
                "a letter or digit first."
            )
    for name in spec.arms:
        if name == PREPARE or name.startswith(f"{PREPARE}-"):
            raise ConfigError(f"[arms.{name}]: that is what preparations are called. Rename it.")
    if ALL in spec.groups:
        raise ConfigError(
            f"[compare] groups.{ALL}: that is what all families are called. Rename it."
        )
    pairs = [(name, "[compare] pairs") for pair in spec.pairs for name in pair]
    for name, where in [(spec.baseline, "[compare] baseline"), *pairs]:
        _one_of(name, spec.arms, where)
    by_name: dict[str, tuple[str, str]] = {}
    for pair in spec.all_pairs():
        if by_name.setdefault(pair_name(*pair), pair) != pair:
            raise ConfigError(
                f"[compare]: the pairs {by_name[pair_name(*pair)]} and {pair} are both called "
                f"{pair_name(*pair)!r}. Rename an arm."
            )
    for name, arm in spec.arms.items():
        where = f"[arms.{name}]"
        if not (arm.recipe or spec.base):
            raise ConfigError(f"{where} recipe: there is none, and no [compare] base either.")
        for service in arm.services:
            _one_of(service, spec.services, f"{where} services")
        if arm.tokens_of:
            _one_of(arm.tokens_of, spec.arms, f"{where} tokens_of")
            other = spec.arms[arm.tokens_of]
            if other.tokens_of:
                raise ConfigError(
                    f"{where} tokens_of = {arm.tokens_of!r}: that arm takes its tokens from "
                    f"{other.tokens_of!r} itself. Name an arm that stands by itself."
                )
            lacking = [s for s in spec.seeds_of(name) if s not in spec.seeds_of(arm.tokens_of)]
            if lacking:
                raise ConfigError(
                    f"{where} tokens_of = {arm.tokens_of!r}: that arm does not run on seed "
                    f"{lacking[0]}."
                )


def _arm(name: str, row: Mapping[str, Any]) -> Arm:
    where = f"[arms.{name}]"
    _keys(row, list(fields_dict(Arm)), where)
    return Arm(
        _text(row.get("recipe", ""), f"{where} recipe", empty=True),
        _texts(row.get("set", []), f"{where} set"),
        _texts(row.get("services", []), f"{where} services"),
        _text(row.get("tokens_of", ""), f"{where} tokens_of", empty=True),
        _seeds(row["seeds"], f"{where} seeds") if "seeds" in row else (),
    )


def _service(name: str, row: Mapping[str, Any]) -> Service:
    where = f"[services.{name}]"
    _keys(row, list(fields_dict(Service)), where)
    timeout = row.get("timeout_s", 120.0)
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout <= 0:
        raise ConfigError(f"{where} timeout_s = {timeout!r}: must be a number of seconds above 0.")
    command = _texts(row.get("command"), f"{where} command")
    ready = _text(row.get("ready"), f"{where} ready")
    if not ready.startswith(("http://", "https://")):
        raise ConfigError(f"{where} ready = {ready!r}: must be a URL that answers once it is up.")
    return Service(command, ready, float(timeout))


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: must be a table; it is {value!r}.")
    return value


def _keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(
                f"{where} has no {key!r}.{did_you_mean(key, list(known))} There are: "
                f"{listed(list(known))}."
            )


def _one_of(name: str, known: Mapping[str, Any], where: str) -> None:
    if name not in known:
        raise ConfigError(
            f"{where}: there is no {name!r}.{did_you_mean(name, list(known))} There are: "
            f"{listed(list(known))}."
        )


def _text(value: Any, where: str, empty: bool = False) -> str:
    if not isinstance(value, str) or not (empty or value.strip()):
        raise ConfigError(f"{where} = {value!r}: must be a text.")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise ConfigError(f"{where} = {value!r}: must be a list of texts.")
    return tuple(value)


def _rows(value: Any, where: str, length: int = 0) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} = {value!r}: must be a list of lists of texts.")
    rows = tuple(_texts(row, f"{where}[{i}]") for i, row in enumerate(value))
    for i, row in enumerate(rows):
        if not row or (length and len(row) != length):
            raise ConfigError(f"{where}[{i}] = {list(row)}: must hold {length or 'some'} texts.")
    return rows


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    fits = isinstance(value, list) and all(type(x) is int and x >= 0 for x in value)
    if not fits or not value or len(set(value)) != len(value):
        raise ConfigError(f"{where} = {value!r}: must be a list of different whole numbers.")
    return tuple(value)
