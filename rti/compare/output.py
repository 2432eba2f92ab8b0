"""The table of a compare: for the console, as Markdown, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEADLINE = ("pass@", "pass^")


def columns(record: Mapping[str, Any]) -> list[str]:
    """The metrics worth a column: pass@k and pass^k of the headline, pass@1 of other groups."""
    names = dict.fromkeys(k for arm in record["arms"].values() for k in arm)
    shown = [n for n in names if n.startswith(HEADLINE)]
    shown += [n for n in names if n.endswith("/pass@1") and not n.startswith("all/")]
    return [*shown, *(n for n in ("made_up", "tokens", "seconds") if n in names)]


def arm_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A header, then a row an arm: name, seeds done, metrics with intervals."""
    shown = columns(record)
    yield ("arm", "seeds", *shown)
    for name, arm in record["arms"].items():
        done, planned = len(arm["seeds"]), len(arm["planned"])
        count = str(done) if done == planned else f"{done} of {planned}"
        yield (name, count, *(_cell(arm.get(metric), metric) for metric in shown))


def pair_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A header, then a row a pair: the difference in pass@1 and its interval."""
    yield ("difference in pass@1", "seeds", "mean", "95 % interval")
    for name, pair in record["paired"].items():
        ends = "none: one seed"
        if pair["low"] is not None:
            ends = f"{signed(pair['low'])} to {signed(pair['high'])}"
        yield (name, str(len(pair["of"])), signed(pair["mean"]), ends)


def markdown(record: Mapping[str, Any]) -> str:
    """Both tables, and how they were made."""
    parts = [_markdown(list(arm_rows(record)))]
    if record["paired"]:
        parts.append(_markdown(list(pair_rows(record))))
    return "\n\n".join([*parts, *record["notes"], record["method"]]) + "\n"


def as_csv(record: Mapping[str, Any]) -> str:
    """One line a run: arm, seed, and every metric of its last evaluation."""
    rows = record["cells"].values()
    names = list(dict.fromkeys(k for row in rows for k in row["metrics"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["arm", "seed", *names, "steps", "tokens", "seconds"])
    for row in rows:
        own = [row["metrics"].get(name, "") for name in names]
        writer.writerow(
            [row["arm"], row["seed"], *own, row["steps"], row["tokens"], row["seconds"]]
        )
    return out.getvalue()


def blocks(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[list[tuple[str, ...]]]:
    """A wide table as several that fit, so that no name is cut and no number wrapped.

    Each has the first column, and as many others as there is room for: one at least.
    """
    room = [max(map(len, column)) + 3 for column in zip(*rows, strict=True)]
    first = 1
    while first < len(room):
        end, used = first + 1, room[0] + room[first]
        while end < len(room) and used + room[end] <= width:
            used += room[end]
            end += 1
        yield [(row[0], *row[first:end]) for row in rows]
        first = end


def signed(value: float) -> str:
    """With its sign, so that it reads as a difference."""
    return f"{value:+.3f}".replace("-", "−")


def _cell(row: Mapping[str, Any] | None, metric: str) -> str:
    """Mean ± half of the interval, which is symmetric; the mean alone of what was spent.

    Where some runs lack the metric, of how many it is.
    """
    if row is None or row["mean"] is None:
        return ""
    if metric in ("tokens", "seconds"):
        return f"{row['mean']:,.0f}"
    whole, count = len(row["seeds"]), sum(v is not None for v in row["seeds"])
    of = "" if count == whole else f" ({count} of {whole})"
    if row["low"] is None:
        return f"{row['mean']:.3f}{of}"
    return f"{row['mean']:.3f} ± {row['high'] - row['mean']:.3f}{of}"


def _markdown(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in body]
    return "\n".join(lines)
