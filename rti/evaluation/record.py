"""An evaluation as a record (JSON) and as a page (Markdown), with what it takes to repeat it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rti.assemble import Examination
from rti.config import PluginSection, resolve_config
from rti.convert import default_of
from rti.engine import describe
from rti.evaluate import Evaluation, faults_of
from rti.metrics import bootstrap_interval, by_task
from rti.options import options_of
from rti.rollout import speaks
from rti.types import Task

FORMAT = 1
LEVEL = 0.95
RESAMPLES = 1000
METHOD = (
    "pass@k = 1 − C(n−c, k)/C(n, k) and pass^k = C(c, k)/C(n, k) of n whole trials with c "
    "successes, all-of-k: the first k trials all succeeded; each a mean over the tasks that have "
    f"at least k whole trials. Intervals: {LEVEL:.0%}, percentile bootstrap over tasks, "
    f"{RESAMPLES} resamples. Trials lost to an infrastructure fault are left out and counted, "
    "never taken for failures."
)


def default_ks(trials: int) -> tuple[int, ...]:
    """1, 2, 4, … and the number of trials itself."""
    return tuple(sorted({trials, *(2**i for i in range(trials.bit_length()))}))


def as_record(
    made: Examination,
    result: Evaluation,
    tasks: Sequence[Task],
    versions: Sequence[Mapping[str, str]],
    identity: Mapping[str, Any],
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Everything about an evaluation. `versions` are those of each start of it."""
    config = resolve_config(made.config, made.registry)
    at, ks = config.eval, default_ks(config.eval.trials)
    rows = result.successes
    matrix: dict[str, list[bool | None]] = {t.id: [] for t in tasks}
    for trial in result.trials:
        matrix[trial.task].append(None if trial.fault is not None else trial.success)
    numbers = _numbers(list(rows.values()), ks, config.run.seed)
    return {
        "format": FORMAT,
        "method": _method(made, checkpoint),
        "benchmark": f"{_benchmark(made)}/{at.split}",
        "environment": config.environment.use,
        "split": at.split,
        "trials": at.trials,
        "ks": list(ks),
        "temperature": at.temperature,
        "max_turns": config.rollout.max_turns,
        "seed": config.run.seed,
        "model": None if speaks(made.policy) else config.model.path,
        "policy": describe(made.policy) or config.policy.use,
        "checkpoint": str(checkpoint) if checkpoint else None,
        "policy_version": result.policy_version,
        "versions": dict(versions[-1]),
        "earlier_versions": [dict(v) for v in _distinct(versions) if v != versions[-1]],
        "identity": dict(identity),
        "metrics": {**result.metrics, **numbers["values"]},
        "intervals": numbers["intervals"],
        "counted": numbers["counted"],
        "families": {
            family: {
                **values,
                **_numbers(
                    [rows[t] for t, f in result.families.items() if f == family],
                    ks,
                    config.run.seed,
                )["values"],
            }
            for family, values in result.by_family.items()
        },
        "per_task": {t.id: _of_task(t, matrix[t.id], ks) for t in tasks},
        "tasks": matrix,
        "task_families": dict(result.families),
        "faults": faults_of(result.trials),
        "usage": {k: v for k, v in _usage(made).items() if math.isfinite(v)},
        "notes": list(getattr(made.policy, "notes", ())),
        "about": METHOD,
    }


def _usage(made: Examination) -> Mapping[str, float]:
    return {**getattr(made.environment, "usage", {}), **made.policy.usage}


def _numbers(rows: Sequence[Sequence[bool]], ks: Sequence[int], seed: int) -> dict[str, Any]:
    """Means over tasks, their intervals, and over how many tasks each is."""
    found: dict[str, Any] = {"values": {}, "intervals": {}, "counted": {}}
    for k in ks:
        enough = [row for row in rows if len(row) >= k]
        if not enough:
            continue
        for name, values in by_task(enough, (k,)).items():
            found["values"][name] = math.fsum(values) / len(values)
            found["intervals"][name] = list(
                bootstrap_interval(values, seed=seed, resamples=RESAMPLES, level=LEVEL)
            )
            found["counted"][name] = len(enough)
    return found


def _of_task(task: Task, row: Sequence[bool | None], ks: Sequence[int]) -> dict[str, Any]:
    whole = [success for success in row if success is not None]
    enough = [k for k in ks if k <= len(whole)]
    values = by_task([whole], enough) if enough else {}
    return {
        "family": task.family,
        "n": len(whole),
        "c": sum(whole),
        "faults": len(row) - len(whole),
        **{name: value for name, [value] in values.items()},
    }


def _method(made: Examination, checkpoint: Path | None) -> str:
    """What a table calls this policy, unless it is told another name."""
    if checkpoint is not None:
        run = checkpoint.parent.parent.name if checkpoint.parent.name == "checkpoints" else ""
        return "/".join(filter(None, (run, checkpoint.name)))
    named = getattr(made.policy, "identity", {}).get("model")
    return str(named or made.config.model.path or describe(made.policy) or made.config.policy.use)


def _benchmark(made: Examination) -> str:
    """The environment's own name for what it plays; else the config's, with unusual options."""
    own = getattr(made.environment, "benchmark", "")
    section = made.registry.resolve(made.config.environment)
    return str(own) if own else " ".join((section.use, *_unusual(made, section)))


def _unusual(made: Examination, section: PluginSection) -> Iterable[str]:
    options = options_of(made.registry.get(section.kind, section.use))
    for name, value in section.options.items():
        if value != default_of(options[name]):
            yield f"{name}={value}"


def _distinct(versions: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for each in versions:
        if each not in found:
            found.append(each)
    return found


# --- for people -------------------------------------------------------------------------------


def names_of(record: Mapping[str, Any]) -> list[str]:
    """The metrics of a record that are means over tasks, in the order of their k."""
    return list(record["counted"])


def as_text(record: Mapping[str, Any]) -> str:
    """For a terminal: a row a family, then all; all-of-k stays in the files."""
    names = [n for n in names_of(record) if n.startswith("pass")]
    rows = [["family", "tasks", *names], *_family_rows(record, names)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{record['method']} on {record['benchmark']}", ""]
    lines += [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    found = record["intervals"].get("pass@1")
    if found:
        lines.append(f"\npass@1 {_interval(record['metrics']['pass@1'], found)} over tasks")
    lines += ["", *_facts(record)]
    return "\n".join(lines)


def as_markdown(record: Mapping[str, Any]) -> str:
    """The page: all tasks, families, each task, and what it rests on."""
    names = names_of(record)
    lines = [f"# {record['method']} on {record['benchmark']}", ""]
    lines += _table(
        ["metric", "mean over tasks [95 %]", "tasks"],
        [
            [n, _interval(record["metrics"][n], record["intervals"][n]), str(record["counted"][n])]
            for n in names
        ],
    )
    if len(record["families"]) > 1:
        lines += ["", "## Families", ""]
        lines += _table(["family", "tasks", *names], _family_rows(record, names))
    lines += ["", "## Tasks", ""]
    lines += _table(
        ["task", "n", "c", *names, "trials"],
        [
            [
                task,
                str(row["n"]),
                str(row["c"]),
                *(_number(row.get(n)) for n in names),
                "".join(".x✓"[0 if s is None else 1 + s] for s in record["tasks"][task]),
            ]
            for task, row in record["per_task"].items()
        ],
    )
    lines += ["", "A trial is ✓ a success, x a failure, . lost to an infrastructure fault.", ""]
    lines += ["## What it rests on", "", *(f"- {fact}" for fact in _facts(record))]
    lines += [f"- {record['about']}", ""]
    return "\n".join(lines)


def _family_rows(record: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    rows = []
    for family, metrics in record["families"].items():
        count = sum(f == family for f in record["task_families"].values())
        rows.append([family, str(count), *(_number(metrics.get(n)) for n in names)])
    every = (_number(record["metrics"].get(n)) for n in names)
    return [*rows, ["all", str(len(record["tasks"])), *every]]


def _facts(record: Mapping[str, Any]) -> list[str]:
    """n, k, what was left out, versions: without these a number says nothing."""
    m = record["metrics"]
    lines = [
        f"{len(record['tasks'])} tasks, n = {record['trials']} rollouts each at temperature "
        f"{record['temperature']:g}, at most {record['max_turns']} turns, seed {record['seed']}: "
        f"{m['turns']:.1f} turns a rollout, {m['truncated']:.0%} truncated",
        f"policy {record['policy']}, version {record['policy_version']}",
        _faults(record),
        "versions: " + ", ".join(f"{k} {v}" for k, v in record["versions"].items()),
    ]
    if record["earlier_versions"]:
        changed = "; ".join(
            ", ".join(f"{k} {v}" for k, v in each.items()) for each in record["earlier_versions"]
        )
        lines.append(f"some trials were made with other versions: {changed}")
    lines += [f"{name} {value:.3f}" for name, value in m.items() if "ppl" in name]
    return [*lines, *record["notes"]]


def _faults(record: Mapping[str, Any]) -> str:
    lost = sum(record["faults"].values())
    if not lost:
        return "0 rollouts left out for infrastructure faults: n is as planned for every task"
    fewer = {t: row["n"] for t, row in record["per_task"].items() if row["faults"]}
    shown = ", ".join(f"{task} n = {n}" for task, n in list(fewer.items())[:5])
    more = f" and {len(fewer) - 5} more" if len(fewer) > 5 else ""
    worst = max(record["faults"], key=record["faults"].__getitem__)
    return (
        f"{lost} rollouts left out for infrastructure faults, in {len(fewer)} tasks ({shown}"
        f"{more}); most often: {worst}"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|---|{'---:|' * (len(head) - 1)}",
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows),
    ]


def _interval(value: float, bounds: Sequence[float]) -> str:
    return f"{value:.3f} [{bounds[0]:.3f}, {bounds[1]:.3f}]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
