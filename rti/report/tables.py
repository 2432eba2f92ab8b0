"""Tables: every run in a row; the arms with their intervals; paired differences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rti.compare.output import columns, signed
from rti.compare.stats import METHOD
from rti.report.curves import interval, short
from rti.report.log import RunLog, mean, number
from rti.report.source import Source

STATUS = {
    "done": "done",
    "interrupted": "interrupted",
    "failed": "failed",
    "open": "no end on record",
}


def run_table(source: Source, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """One row a run: where it stands, how it does at its last evaluation, what it spent."""
    logs = [cell.log for cell in source.cells if cell.log]
    names = pass_metrics(logs)
    # ARM-SEED says what the columns arm and seed say.
    named = source.kind == "run" or any(c.name != f"{c.arm}-{c.seed}" for c in source.cells)
    head = (["run"] if named else []) + (["arm"] if source.kind == "compare" else [])
    head += ["seed", "status", "steps"]
    # All metrics of the headline's tasks; of the others the first.
    columns = [
        (label, families, metric)
        for i, (label, families) in enumerate(groups.items())
        for metric in (names if i == 0 else names[:1])
    ]
    titles = [
        f"{metric} {label or ('all' if len(groups) > 1 else '')}".strip()
        for label, _, metric in columns
    ]
    titles += ["repairs trained on", "tokens", "time"]
    rows = []
    for cell in source.cells:
        log = cell.log
        if log is None:
            known = {"run": cell.name, "arm": cell.arm, "seed": _text(cell.seed), "status": "gone"}
            rows.append([_cell(known.get(h, "–")) for h in head] + [_cell("–")] * len(titles))
            continue
        seed = cell.seed if cell.seed is not None else log.seed
        words = {
            "run": cell.name,
            "arm": cell.arm,
            "seed": _text(seed),
            "status": STATUS[log.status],
            "steps": steps(log),
        }
        row = [_cell(words[h]) for h in head]
        row += [_change(log, families, metric) for _, families, metric in columns]
        row += [
            _cell(f"{sum(look.trained for look in log.looks):,}"),
            _cell(f"{log.tokens:,.0f}"),
            _cell("–" if log.seconds is None else duration(log.seconds)),
        ]
        rows.append(row)
    return {"head": [*head, *titles], "text": len(head), "rows": rows}


def pass_metrics(logs: Sequence[RunLog]) -> list[str]:
    """pass@1, pass@k, pass^k as they were evaluated, in that order."""
    found = {n for log in logs for at in log.evaluations for n in at.metrics if _K.fullmatch(n)}
    return sorted(found, key=lambda n: (n[4] == "^", int(n[5:])))


_K = re.compile(r"pass[@^]\d+")


def steps(log: RunLog) -> str:
    """Steps done, of those planned; with a token budget the plan says nothing."""
    run = log.config.get("run")
    budget = number(run.get("token_budget")) if isinstance(run, Mapping) else None
    return f"{log.done} of {log.planned}" if log.planned and not budget else str(log.done)


def _change(log: RunLog, families: Sequence[str], metric: str) -> dict[str, str]:
    if not log.evaluations:
        return _cell("–")
    first, last = (log.evaluations[i].value(metric, families) for i in (0, -1))
    if first is None or last is None:
        return _cell("–")
    return _cell(f"{last:.3f}", "" if len(log.evaluations) == 1 else f"from {first:.3f}")


def _cell(text: str, small: str = "") -> dict[str, str]:
    """A cell of a table: what is in it, and what stands small below."""
    return {"text": text, "small": small}


def arm_table(source: Source, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The arms as compare.json has them; without it, from the runs that are here."""
    stored = source.results.get("arms")
    found = stored if isinstance(stored, Mapping) else _arms(source, groups)
    arms = {str(name): row for name, row in found.items() if isinstance(row, Mapping)}
    names = [n for n in columns({"arms": arms}) if any(_estimate(a.get(n)) for a in arms.values())]
    rows = [
        {"arm": arm, "cells": [_cell(_seeds(row)), *(_shown(row.get(n), n) for n in names)]}
        for arm, row in arms.items()
    ]
    method = source.results.get("method")
    return {
        "head": ["seeds", *("time" if n == "seconds" else n for n in names)],
        "rows": rows,
        "method": method if isinstance(method, str) else METHOD,
    }


def _seeds(row: Mapping[str, Any]) -> str:
    """How many seeds are done, of how many planned."""
    done, planned = row.get("seeds"), row.get("planned")
    if not isinstance(done, list):
        done = next((e["seeds"] for e in row.values() if _estimate(e) and "seeds" in e), None)
    if not isinstance(done, list):
        return "–"
    whole = not isinstance(planned, list) or len(done) == len(planned)
    return str(len(done)) if whole else f"{len(done)} of {len(planned or ())}"


def pair_table(source: Source) -> list[dict[str, Any]]:
    """Paired differences of compare.json: name, metric, mean and interval."""
    stored = source.results.get("paired")
    found = []
    for name, entry in stored.items() if isinstance(stored, Mapping) else ():
        inner = {"": entry} if _estimate(entry) else entry
        for metric, value in inner.items() if isinstance(inner, Mapping) else ():
            estimate = _estimate(value)
            if estimate is None:
                continue
            low, high = estimate["low"], estimate["high"]
            band = "–" if low is None or high is None else f"{signed(low)} to {signed(high)}"
            words = {"mean": signed(estimate["mean"]), "band": band}
            named = _minus(str(name), source.arms)
            found.append({"name": named, "metric": str(metric), **estimate, "words": words})
    return found


def _minus(name: str, arms: Sequence[str]) -> str:
    """ "rti-grpo" as a difference; arms have hyphens of their own, so both sides must be arms."""
    for arm in arms:
        other = name.removeprefix(f"{arm}-")
        if other != name and other in arms:
            return f"{arm} − {other}"
    return name


def _arms(source: Source, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The same form as in compare.json, of the last evaluation that each run has."""
    arms: dict[str, Any] = {}
    for arm in source.arms:
        logs = [log for log in source.logs(arm) if log.evaluations]
        row: dict[str, Any] = {"seeds": [log.seed for log in logs], "planned": source.of(arm)}
        for label, families in groups.items():
            for metric in pass_metrics(logs):
                last = [log.evaluations[-1].value(metric, families) for log in logs]
                name = f"{label}/{metric}" if label else metric
                row[name] = _over([v for v in last if v is not None])
        made_up = [log.evaluations[-1].metrics.get("made_up") for log in logs]
        row["made_up"] = _over([v for v in made_up if v is not None])
        row["tokens"] = _over([log.tokens for log in logs])
        row["seconds"] = _over([log.seconds for log in logs if log.seconds is not None])
        arms[arm] = {name: value for name, value in row.items() if value is not None}
    return arms


def _over(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    low, high = interval(values) or (None, None)
    return {"mean": mean(values), "low": low, "high": high, "seeds": list(values)}


def _estimate(entry: Any) -> dict[str, Any] | None:
    """mean, low, high and how many seeds; None for what is no estimate."""
    if not isinstance(entry, Mapping):
        return None
    middle = number(entry.get("mean"))
    if middle is None:
        return None
    seeds = entry.get("seeds")
    many = len(seeds) if isinstance(seeds, list | dict) else number(seeds)
    ends = {k: number(entry.get(k)) for k in ("low", "high")}
    return {
        "mean": short(middle),
        **{k: None if v is None else short(v) for k, v in ends.items()},
        "seeds": int(many) if many else None,
    }


def _shown(entry: Any, name: str) -> dict[str, str]:
    """An estimate as text: the mean, and its interval."""
    estimate = _estimate(entry)
    if estimate is None:
        return _cell("–")
    write = _writer(name)
    low, high = estimate["low"], estimate["high"]
    band = "" if low is None or high is None else f"{write(low)} to {write(high)}"
    if name in ("tokens", "seconds"):  # what was spent is no estimate of anything
        band = ""
    return _cell(write(estimate["mean"]), band)


def _writer(name: str) -> Callable[[float], str]:
    if name.endswith("seconds"):
        return duration
    if "tokens" in name or name.endswith("made_up_values"):
        return lambda v: _signed(f"{v:,.0f}")
    return lambda v: _signed(f"{v:.3f}" if abs(v) < 10 else f"{v:,.1f}")


def _signed(text: str) -> str:
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    """Seconds for people: 42 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    sign, whole = ("−", -whole) if whole < 0 else ("", whole)
    if whole < 60:
        return f"{sign}{whole} s"
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02} s"
    return f"{sign}{whole // 3600} h {whole % 3600 // 60:02} min"


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
