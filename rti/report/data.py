"""Everything that the page shows, as plain data: lists, tables, numbers, text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rti
from rti.report import counts, tables
from rti.report.curves import of_steps, window
from rti.report.funnel import funnel, unread
from rti.report.log import RunLog, mean
from rti.report.plots import Groups, learning, made_up, pass_G, ppl
from rti.report.source import Cell, Source

EDGE = 5
"""Steps averaged for "at first" and "at last" of what is measured every step."""
WORDS = 1000
"""Most steps whose words are listed; a longer run has them in events.jsonl."""


def page_data(source: Source) -> dict[str, Any]:
    """The page's data, transcripts aside."""
    logs = source.logs()
    groups = _groups(source)
    width = window(max((log.done for log in logs), default=1))
    single = source.kind == "run"
    inside = {arm: _inside(source.logs(arm)) for arm in source.arms}
    return {
        "kind": source.kind,
        "title": source.title,
        "rti": rti.__version__,
        "notes": [*source.notes, *(note for cell in source.cells for note in _notes(cell, single))],
        "facts": _run_facts(logs[0]) if single else _compare_facts(source, logs),
        "tiles": _tiles(logs[0]) if single else [],
        "arms": list(source.arms),
        "runs": [_run_words(cell) for cell in source.cells],
        "window": width,
        "learning": learning(source, groups),
        "passG": pass_G(source, width),
        "ppl": ppl(source, width),
        "madeUp": made_up(source, width),
        "inside": {arm: found for arm, found in inside.items() if found["funnel"] or found["ppl"]},
        "spent": {arm: counts.spent(source.logs(arm)) for arm in source.arms if source.logs(arm)},
        "armTable": None if single else tables.arm_table(source, groups),
        "pairs": tables.pair_table(source),
        "runTable": tables.run_table(source, groups),
        "words": _step_words(logs[0]) if single else [],
    }


def _groups(source: Source) -> Groups:
    """Families by name of their group, as [compare] groups has them; {"": ()} is all tasks."""
    config = source.results.get("config")
    config = config if isinstance(config, Mapping) else {}
    inner = config.get("compare", config)
    found = inner.get("groups") if isinstance(inner, Mapping) else None
    if not isinstance(found, Mapping):
        return {"": ()}
    named = {str(k): [str(f) for f in v] for k, v in found.items() if isinstance(v, list) and v}
    return {**named, "": ()} if named else {"": ()}


def _notes(cell: Cell, single: bool) -> list[str]:
    """What a reader must know of a run before believing its numbers."""
    log, name = cell.log, "" if single else f"{cell.name}: "
    if log is None:
        return []
    notes = []
    if log.status == "open":
        notes.append(
            f"{name}This run has no end on record: it is still going, or was killed. Last event: "
            f"{log.last or 'without a time'}."
        )
    elif log.status != "done":
        ended = "failed" if log.status == "failed" else "was interrupted"
        why = f": {log.reason.rstrip('.')}" if log.reason else ""
        notes.append(f"{name}This run {ended} after {log.done} steps{why}.")
    if log.cut:
        notes.append(f"{name}The last line of events.jsonl was cut short and is left out.")
    if log.unread:
        lines = "1 line" if log.unread == 1 else f"{log.unread} lines"
        notes.append(f"{name}{lines} of events.jsonl could not be read and are left out.")
    if not log.steps:
        notes.append(f"{name}No step is done yet.")
    return notes


def _run_words(cell: Cell) -> dict[str, Any]:
    environment = cell.log.plugins.get("environment", "") if cell.log else ""
    return {"name": cell.name, "arm": cell.arm, "environment": environment}


def _run_facts(log: RunLog) -> list[list[str]]:
    facts = [["status", tables.STATUS[log.status]]]
    facts += [["steps", tables.steps(log)], ["seed", "–" if log.seed is None else str(log.seed)]]
    model = log.config.get("model")
    path = str(model.get("path", "")) if isinstance(model, Mapping) else ""
    if path:
        facts.append(["model", path.rstrip("/").rpartition("/")[2]])
    shown = ("environment", "trigger", "validator", "corrector", "veto", "verifier", "gate",
             "weighter", "objective")  # fmt: skip
    facts += [[name, log.plugins[name]] for name in shown if log.plugins.get(name)]
    versions = log.started.get("versions")
    if isinstance(versions, Mapping):
        facts.append(["versions", ", ".join(f"{k} {v}" for k, v in versions.items())])
    return facts


def _compare_facts(source: Source, logs: Sequence[RunLog]) -> list[list[str]]:
    done = sum(log.status == "done" for log in logs)
    seeds = sorted({cell.seed for cell in source.cells if cell.seed is not None})
    facts = [
        ["arms", ", ".join(source.arms)],
        ["seeds", ", ".join(map(str, seeds)) or "–"],
        ["runs", f"{len(source.cells)}, {done} of them done"],
        ["tokens", f"{sum(log.tokens for log in logs):,.0f}"],
        ["time", f"{tables.duration(sum(log.seconds or 0 for log in logs))} of all runs together"],
    ]
    versions = source.results.get("versions")
    if isinstance(versions, Mapping):
        facts.append(["versions", ", ".join(f"{k} {v}" for k, v in versions.items())])
    return facts


def _tiles(log: RunLog) -> list[dict[str, str]]:
    """The few numbers to read first: how it was, how it is."""
    tiles = []
    if log.evaluations:
        first, last = log.evaluations[0].metrics, log.evaluations[-1].metrics
        for name in (*tables.pass_metrics([log])[:1], "probe_ppl"):
            if name in first and name in last:
                words = {"probe_ppl": "PPL of the fixed probe"}.get(name, f"{name}, held out")
                form = "{:.2f}" if "ppl" in name else "{:.3f}"
                tiles.append(_tile(words, form.format(first[name]), form.format(last[name])))
    failed = list(of_steps(log, "groups_all_failed").values())
    groups = list(of_steps(log, "groups").values())
    if failed and groups:
        edge = min(EDGE, max(1, len(failed) // 2))
        when = f"first and last {edge} steps" if edge > 1 else "first and last step"
        words = f"groups all failed, of {mean(groups):.3g} ({when})"
        before, after = mean(failed[:edge]), mean(failed[-edge:])
        tiles.append(_tile(words, f"{before:.1f}", f"{after:.1f}"))
    trained = sum(look.trained for look in log.looks)
    if log.looks:
        tiles.append(
            _tile(f"repairs trained on, of {len(log.looks):,} looks told", "", f"{trained:,}")
        )
    tiles.append(_tile("tokens sampled and scored", "", f"{log.tokens:,.0f}"))
    if log.seconds is not None:
        tiles.append(_tile("time", "", tables.duration(log.seconds)))
    return tiles


def _tile(words: str, first: str, last: str) -> dict[str, str]:
    return {"words": words, "first": first, "last": last}


def _step_words(log: RunLog) -> list[list[Any]]:
    return [[step.step, step.words] for step in log.steps[:WORDS] if step.words]


def _inside(logs: Sequence[RunLog]) -> dict[str, Any]:
    return {
        "funnel": funnel(logs),
        "unread": unread(logs),
        "ppl": counts.perplexities(logs),
        "weights": counts.token_weights(logs),
    }
