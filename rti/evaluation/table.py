"""Several results side by side: methods as rows, benchmarks as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rti.convert import did_you_mean, listed
from rti.errors import ConfigError
from rti.evaluation.identity import differences
from rti.evaluation.record import FORMAT, LEVEL, names_of

RESULT = "eval.json"
SAME = ("environment", "tasks")
"""Sections of an identity that make a benchmark: a column holds results on the same tasks only."""
ALIKE = ("trials", "temperature", "max_turns", "seed")
"""What may differ within a column, and is said under the table where it does."""


@frozen
class Result:
    """One record, and what it is called in the table."""

    name: str
    place: str
    record: Mapping[str, Any]

    @property
    def benchmark(self) -> str:
        """The column."""
        return str(self.record["benchmark"])


def read_results(words: Sequence[str]) -> list[Result]:
    """The results that the command line names: a folder or a file, with NAME= in front or not.

    Raises:
        ConfigError: for one that is no result, two in one cell, or two of different tasks in one
            column.
    """
    results = [_read(word) for word in words]
    first: dict[str, Result] = {}
    cells: dict[tuple[str, str], Result] = {}
    for result in results:
        other = first.setdefault(result.benchmark, result)
        for section in SAME:
            found = differences(
                {section: other.record["identity"].get(section, {})},
                {section: result.record["identity"].get(section, {})},
            )
            if found:
                raise ConfigError(
                    f"--table: {other.place} and {result.place} are both of {result.benchmark}, "
                    f"but not on the same tasks: {'; '.join(found)}. Set them in two tables."
                )
        twin = cells.setdefault((result.name, result.benchmark), result)
        if twin is not result:
            raise ConfigError(
                f"--table: {twin.place} and {result.place} are both {result.name!r} on "
                f"{result.benchmark}: name one of them, as in --table 'ours={result.place}'."
            )
    return results


def as_table(results: Sequence[Result], metric: str = "pass@1") -> dict[str, Any]:
    """Rows, columns, cells and footnotes of one metric.

    Raises:
        ConfigError: when a result lacks the metric.
    """
    for result in results:
        known = names_of(result.record)
        if metric not in known:
            raise ConfigError(
                f"--metric {metric}: {result.place} has none.{did_you_mean(metric, known)} It has: "
                f"{listed(known)}."
            )
    columns = list(dict.fromkeys(r.benchmark for r in results))
    rows = {
        name: {
            r.benchmark: {
                "value": r.record["metrics"][metric],
                "interval": r.record["intervals"][metric],
                "tasks": r.record["counted"][metric],
                "trials": r.record["trials"],
                "faults": sum(r.record["faults"].values()),
                "result": r.place,
            }
            for r in results
            if r.name == name
        }
        for name in dict.fromkeys(r.name for r in results)
    }
    notes = [note for column in columns for note in _notes(column, results, metric)]
    return {"metric": metric, "columns": columns, "rows": rows, "notes": notes}


def as_markdown(table: Mapping[str, Any]) -> str:
    """The table with what must be known to read it."""
    lines = [
        f"**{table['metric']}** in %, with {LEVEL:.0%} bootstrap intervals over tasks",
        "",
        f"| method | {' | '.join(map(_plain, table['columns']))} |",
        f"|---|{'---:|' * len(table['columns'])}",
    ]
    for name, cells in table["rows"].items():
        shown = [_cell(cells[c]) if c in cells else "–" for c in table["columns"]]
        lines.append(f"| {' | '.join((_plain(name), *shown))} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table["notes"]), ""])


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


def _cell(cell: Mapping[str, Any]) -> str:
    low, high = cell["interval"]
    return f"{cell['value']:.1%} [{low * 100:.1f}, {high * 100:.1f}]".replace("%", "")


def _notes(column: str, results: Sequence[Result], metric: str) -> list[str]:
    """n, k and tasks of a column, what its results do not have in common, what was left out."""
    here = [r for r in results if r.benchmark == column]
    notes = []
    for key in ALIKE:
        by_value: dict[Any, list[str]] = {}
        for r in here:
            by_value.setdefault(r.record[key], []).append(r.name)
        if key == "trials":
            n = " or ".join(map(str, by_value))
            tasks = len(here[0].record["tasks"])
            notes.append(f"{column}: {tasks} tasks, n = {n} trials each")
        if len(by_value) > 1:
            said = "; ".join(f"{v} ({', '.join(names)})" for v, names in by_value.items())
            notes.append(f"{column}: results differ in {key}: {said}")
    for r in here:
        lost = sum(r.record["faults"].values())
        if lost:
            fewer = len(r.record["tasks"]) - r.record["counted"][metric]
            notes.append(
                f"{column}, {r.name}: {lost} trials lost to infrastructure faults are left out"
                + (f", and with them {fewer} tasks of too few trials" if fewer else "")
            )
    versions = {json.dumps(r.record["versions"], sort_keys=True) for r in here}
    if len(versions) > 1:
        notes.append(f"{column}: made with different versions, see each result's `versions`")
    return notes


def _read(word: str) -> Result:
    name, equals, place = word.partition("=")
    if not equals or Path(word).exists():
        name, place = "", word
    path = Path(place)
    path = path / RESULT if path.is_dir() else path
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--table {word}: {path}: {error.strerror}. Name what `rti eval --out FOLDER` wrote; "
            "an evaluation that was cut short has no result until it is run again."
        ) from error
    except ValueError as error:
        raise ConfigError(f"--table {word}: {path} is no JSON: {error}.") from error
    if not isinstance(record, dict) or "identity" not in record or "benchmark" not in record:
        raise ConfigError(f"--table {word}: {path} is no result of `rti eval --out FOLDER`.")
    if record.get("format") != FORMAT:
        raise ConfigError(
            f"--table {word}: {path} has format {record.get('format')}, this version of rti reads "
            f"{FORMAT}."
        )
    return Result(name or str(record["method"]), str(path), record)
