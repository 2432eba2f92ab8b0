"""Evaluation: the policy alone, n trials a task. It never intervenes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from rti.errors import ConfigError, RunError
from rti.made_up import made_up_metrics
from rti.metrics import summarise
from rti.rollout import Actor
from rti.types import RequestKey, Task

EVALUATION = -1
"""The step in the keys of evaluation: the same draws at every evaluation of a run, so that what
changes between two of them is the policy."""

AT_ONCE = 256
"""Most sessions alive together. A fixed number: who shares a batch must not depend on load."""


@frozen
class Evaluation:
    """What came out: successes a task and trial, and what was left out."""

    policy_version: int
    successes: Mapping[str, tuple[bool, ...]]
    """Task id → one bool a trial. A trial with an infrastructure fault is left out."""
    families: Mapping[str, str]
    """Task id → family."""
    faults: int
    metrics: Mapping[str, float]
    by_family: Mapping[str, Mapping[str, float]]

    def subset(self, families: Sequence[str], ks: Sequence[int]) -> dict[str, float]:
        """pass@k and pass^k over the tasks of some families."""
        rows = [row for task, row in self.successes.items() if self.families[task] in families]
        return _summary(rows, ks)


def pick_tasks(tasks: Sequence[Task], families: Sequence[str], most: int) -> list[Task]:
    """The first tasks of each wanted family, `most` in all, shared evenly between families.

    Raises:
        ConfigError: for a family that no task has.
    """
    known = list(dict.fromkeys(t.family for t in tasks))
    for family in families:
        if family not in known:
            raise ConfigError(
                f"[eval] families: no task is of family {family!r}; there are {', '.join(known)}."
            )
    wanted = [t for t in tasks if not families or t.family in families]
    if not wanted:
        raise ConfigError("the split has no tasks: see [eval] split and [rollout] split.")
    if not most or most >= len(wanted):
        return wanted
    turn: dict[str, int] = defaultdict(int)
    order = []
    for task in wanted:
        order.append((turn[task.family], task))
        turn[task.family] += 1
    chosen = {id(task) for _, task in sorted(order, key=lambda item: item[0])[:most]}
    return [task for task in wanted if id(task) in chosen]


async def evaluate(
    actor: Actor, tasks: Sequence[Task], trials: int, seed: int, ks: Sequence[int] = ()
) -> Evaluation:
    """Play every task `trials` times.

    `ks` are the k of pass@k and pass^k; by default 1 and `trials`.
    """
    ks = tuple(ks) or tuple(sorted({1, trials}))

    async def one(task: Task, trial: int) -> Any:
        episode = await actor.episode(task, trial, RequestKey(seed, EVALUATION, task.id, trial))
        await episode.close()
        return episode.rollout

    rollouts = []
    some = max(1, AT_ONCE // trials)
    for start in range(0, len(tasks), some):
        rollouts += await actor.policy.gather(
            [one(t, i) for t in tasks[start : start + some] for i in range(trials)]
        )
    whole = [r for r in rollouts if r.fault is None]
    if not whole:
        raise RunError(
            f"[eval] all {len(rollouts)} rollouts met an infrastructure fault, the last one: "
            f"{rollouts[-1].fault if rollouts else 'there were no tasks'}. Nothing was measured."
        )
    successes: dict[str, list[bool]] = {task.id: [] for task in tasks}
    for rollout in whole:
        successes[rollout.task.id].append(rollout.success)
    families = {task.id: task.family for task in tasks}
    rows = {task: tuple(row) for task, row in successes.items()}
    by_family: dict[str, list[tuple[bool, ...]]] = defaultdict(list)
    for task_id, row in rows.items():
        by_family[families[task_id]].append(row)
    metrics = {
        **_summary(list(rows.values()), ks),
        "outcome": sum(r.outcome or 0.0 for r in whole) / max(1, len(whole)),
        "truncated": sum(r.truncated for r in whole) / max(1, len(whole)),
        "turns": sum(len(r.turns) for r in whole) / max(1, len(whole)),
        "faults": float(len(rollouts) - len(whole)),
        "tasks": float(len(tasks)),
        "trials": float(trials),
        **made_up_metrics(whole),
    }
    return Evaluation(
        actor.policy.version,
        rows,
        families,
        len(rollouts) - len(whole),
        metrics,
        {f: {**_summary(r, ks), "tasks": float(len(r))} for f, r in by_family.items()},
    )


def _summary(rows: Sequence[Sequence[bool]], ks: Sequence[int]) -> dict[str, float]:
    """pass@k and pass^k; for each k over the tasks with at least k whole trials, if any."""
    found: dict[str, float] = {}
    for k in ks:
        enough = [row for row in rows if len(row) >= k]
        if enough:
            found |= summarise(enough, (k,))
    return found
