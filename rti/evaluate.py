"""Evaluation: the policy alone, n trials a task. It never intervenes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import field, frozen

from rti.errors import ConfigError, RunError
from rti.made_up import final_ids
from rti.metrics import summarise
from rti.rollout import Actor
from rti.types import RequestKey, Rollout, Task

EVALUATION = -1
"""The step in the keys of evaluation: the same draws at every evaluation of a run, so that what
changes between two of them is the policy."""

AT_ONCE = 256
"""Most sessions alive together. A fixed number: who shares a batch must not depend on load."""


@frozen
class Trial:
    """One rollout of an evaluation, in numbers. With a `fault` it counts as nothing but that."""

    task: str
    trial: int
    success: bool = False
    outcome: float = 0.0
    turns: int = 0
    truncated: bool = False
    final_ids: int = 0
    made_up: int = 0
    fault: str | None = None

    @classmethod
    def of(cls, rollout: Rollout) -> Trial:
        """What stays of a rollout."""
        if rollout.fault is not None:
            return cls(rollout.task.id, rollout.index, fault=rollout.fault)
        made_up = [flag for _, flag in final_ids(rollout.messages)]
        return cls(
            rollout.task.id,
            rollout.index,
            rollout.success,
            float(rollout.outcome or 0.0),
            len(rollout.turns),
            rollout.truncated,
            len(made_up),
            sum(made_up),
        )


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
    trials: tuple[Trial, ...] = field(default=(), repr=False)
    """All of them, task by task, those with a fault too."""

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
    actor: Actor,
    tasks: Sequence[Task],
    trials: int,
    seed: int,
    ks: Sequence[int] = (),
    *,
    at_once: int = AT_ONCE,
    done: Iterable[Trial] = (),
    finished: Callable[[Trial], None] | None = None,
) -> Evaluation:
    """Play every task `trials` times, in portions of at most `at_once` rollouts.

    Args:
        actor: the policy in its environment.
        tasks: what is played.
        trials: rollouts a task.
        seed: of all draws.
        ks: the k of pass@k and pass^k; by default 1 and `trials`.
        at_once: most sessions alive together. Portions are cut from the whole list, so that who
            shares a batch does not depend on what is done already.
        done: trials that are played already and stay as they are.
        finished: is told of each trial when it ends.

    Raises:
        RunError: when nothing was measured, or the policy's budget is spent.
    """
    ks = tuple(ks) or tuple(sorted({1, trials}))
    known = {(t.task, t.trial): t for t in done}

    async def one(task: Task, index: int) -> None:
        episode = await actor.episode(task, index, RequestKey(seed, EVALUATION, task.id, index))
        await episode.close()
        trial = Trial.of(episode.rollout)
        if trial.fault is not None and (spent := getattr(actor.policy, "spent", "")):
            raise RunError(f"[eval] stopped: {spent}.")
        known[trial.task, trial.trial] = trial
        if finished is not None:
            finished(trial)

    pairs = [(task, index) for task in tasks for index in range(trials)]
    size = at_once // trials * trials or at_once
    for start in range(0, len(pairs), size):
        missing = [p for p in pairs[start : start + size] if (p[0].id, p[1]) not in known]
        if missing:
            await actor.policy.gather([one(*pair) for pair in missing])
    return summary([known[t.id, i] for t, i in pairs], tasks, trials, ks, actor.policy.version)


def summary(
    trials: Sequence[Trial], tasks: Sequence[Task], each: int, ks: Sequence[int], version: int
) -> Evaluation:
    """Trials → numbers. `each` is how many a task was to have.

    Raises:
        RunError: when every trial met an infrastructure fault.
    """
    whole = [t for t in trials if t.fault is None]
    if not whole:
        raise RunError(
            f"[eval] all {len(trials)} rollouts met an infrastructure fault, the last one: "
            f"{trials[-1].fault if trials else 'there were no tasks'}. Nothing was measured."
        )
    successes: dict[str, list[bool]] = {task.id: [] for task in tasks}
    for trial in whole:
        successes[trial.task].append(trial.success)
    families = {task.id: task.family for task in tasks}
    rows = {task: tuple(row) for task, row in successes.items()}
    by_family: dict[str, list[tuple[bool, ...]]] = defaultdict(list)
    for task_id, row in rows.items():
        by_family[families[task_id]].append(row)
    faults = len(trials) - len(whole)
    metrics = {
        **_summary(list(rows.values()), ks),
        "outcome": sum(t.outcome for t in whole) / len(whole),
        "truncated": sum(t.truncated for t in whole) / len(whole),
        "turns": sum(t.turns for t in whole) / len(whole),
        "faults": float(faults),
        "tasks": float(len(tasks)),
        "trials": float(each),
        **_made_up(whole),
    }
    return Evaluation(
        version,
        rows,
        families,
        faults,
        metrics,
        {f: {**_summary(r, ks), "tasks": float(len(r))} for f, r in by_family.items()},
        tuple(trials),
    )


def faults_of(trials: Sequence[Trial]) -> dict[str, int]:
    """How often each infrastructure fault was met, by its words."""
    return dict(Counter(t.fault for t in trials if t.fault is not None))


def _made_up(whole: Sequence[Trial]) -> dict[str, float]:
    """As `rti.made_up.made_up_metrics`, from the counts of each trial."""
    values, made_up = sum(t.final_ids for t in whole), sum(t.made_up for t in whole)
    counted = {"made_up_values": float(values)}
    return {"made_up": made_up / values, **counted} if values else counted


def _summary(rows: Sequence[Sequence[bool]], ks: Sequence[int]) -> dict[str, float]:
    """pass@k and pass^k; for each k over the tasks with at least k whole trials, if any."""
    found: dict[str, float] = {}
    for k in ks:
        enough = [row for row in rows if len(row) >= k]
        if enough:
            found |= summarise(enough, (k,))
    return found
