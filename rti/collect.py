"""Rollout, intervention, gate and weights without a trainer: tasks in, a batch out.

`rti`'s own engine is one caller of `Collector.collect`; engines that own their loop are others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from attrs import define, evolve

from rti.batch import build_batch
from rti.errors import RunError
from rti.interfaces import Objective, Trigger
from rti.intervene import Repairer
from rti.made_up import made_up_metrics
from rti.rollout import Actor, Episode
from rti.types import Batch, Group, Intervention, RequestKey, Rollout, Stage, Task


@define
class Collector:
    """Collects one batch: G rollouts a task, and repairs where a whole group failed."""

    actor: Actor
    trigger: Trigger
    repairer: Repairer
    objective: Objective
    seed: int = 0
    group_size: int = 8
    repairs_per_group: int = 4
    compose: Literal["replace", "append"] = "replace"

    async def collect(self, tasks: Sequence[Task], version: int, step: int = 0) -> Batch:
        """Roll out, intervene, compose the groups and put token advantages on them.

        Args:
            tasks: one group each.
            version: of the policy that is to sample; every number in the batch is from it.
            step: part of every request's key: another step draws other tokens.

        Raises:
            RunError: when the policy holds another version.
        """
        policy = self.actor.policy
        if policy.version != version:
            raise RunError(
                f"asked to collect with policy version {version}, but the policy holds version "
                f"{policy.version}: load the weights first"
            )
        usage, said, began = self._usage(), self.repairer.notes, time.perf_counter()
        episodes = await self._rollouts(tasks, step)
        spent = self.repairer.spent
        drafts = [_group(task, group) for task, group in zip(tasks, episodes, strict=True)]
        rolled_out = time.perf_counter()
        fired = [self.trigger.fires(group) for group in drafts]
        candidates = [
            episode
            for fires, group in zip(fired, episodes, strict=True)
            if fires and not spent
            for episode in self._candidates(group)
        ]
        outcomes = await policy.gather(
            [self.repairer.repair(e, self._key(step, e.rollout)) for e in candidates]
        )
        await policy.gather([e.close() for group in episodes for e in group])
        intervened = time.perf_counter()
        repaired = [rollout for rollout, _ in outcomes if rollout is not None]
        records = [record for _, made in outcomes for record in made]
        groups = [_compose(group, repaired, self.compose) for group in drafts]
        metrics = {
            **_group_metrics(drafts, groups, fired),
            **funnel(records, len(candidates)),
            **{name: now - usage.get(name, 0) for name, now in self._usage().items()},
            "seconds_rollout": rolled_out - began,
            "seconds_intervene": intervened - rolled_out,
        }
        batch = build_batch(
            groups, self.objective, self.actor.renderer.extends, version, records, metrics
        )
        stopped = f"No intervention: {spent}." if spent and any(fired) else ""
        news = [note for note in self.repairer.notes if note not in said]
        notes = (stopped, *_fault_notes(episodes, records), *news)
        return evolve(batch, notes=tuple(filter(None, notes)))

    def _usage(self) -> dict[str, float]:
        """Counters of the policy, and of roles that count for themselves."""
        return {**self.repairer.usage, **self.actor.policy.usage}

    async def _rollouts(self, tasks: Sequence[Task], step: int) -> list[list[Episode]]:
        size = self.group_size
        # The index goes into the key: a task that comes twice in a step is to be sampled twice.
        before: Counter[str] = Counter()
        places: list[Rollout] = []
        for task in tasks:
            first = before[task.id] * size
            places += [Rollout(task, i) for i in range(first, first + size)]
            before[task.id] += 1
        flat = await self.actor.policy.gather(
            [self.actor.episode(r.task, r.index, self._key(step, r)) for r in places]
        )
        return [flat[i : i + size] for i in range(0, len(flat), size)]

    def _key(self, step: int, rollout: Rollout) -> RequestKey:
        return RequestKey(self.seed, step, rollout.task.id, rollout.index)

    def _candidates(self, group: Sequence[Episode]) -> list[Episode]:
        """Failed rollouts to repair: the first ones, and never so many that none is left failed."""
        failed = [e for e in group if e.rollout.fault is None and not e.rollout.success]
        return failed[: min(self.repairs_per_group, len(failed) - 1)]


def _group(task: Task, episodes: Sequence[Episode]) -> Group:
    whole = [e.rollout for e in episodes if e.rollout.fault is None]
    return Group(task, tuple(whole), faults=len(episodes) - len(whole))


def _fault_notes(
    episodes: Sequence[Sequence[Episode]], records: Sequence[Intervention]
) -> Iterator[str]:
    """What infrastructure cost this step, with the commonest reason."""
    dropped = Counter(e.rollout.fault for group in episodes for e in group if e.rollout.fault)
    broken = Counter(r.reason for r in records if r.stage == "faulted")
    for what, reasons in (("rollouts dropped", dropped), ("repairs broken off", broken)):
        if reasons:
            worst, _ = reasons.most_common(1)[0]
            yield f"{reasons.total()} {what} for infrastructure: {worst.rstrip('.')}."


def _compose(group: Group, repaired: Sequence[Rollout], how: str) -> Group:
    """The group with its repaired rollouts, in place of their drafts or beside them."""
    drafts = {r.index for r in group.rollouts}  # a task may come twice in a step
    mine = {r.index: r for r in repaired if r.task.id == group.task.id and r.index in drafts}
    if not mine:
        return group
    if how == "replace":
        return evolve(group, rollouts=tuple(mine.get(r.index, r) for r in group.rollouts))
    return evolve(group, rollouts=(*group.rollouts, *mine.values()))


def _group_metrics(
    drafts: Sequence[Group], groups: Sequence[Group], fired: Sequence[bool]
) -> dict[str, float]:
    """Judged on the drafts, before intervention, except where the name says otherwise."""
    rollouts = [r for g in drafts for r in g.rollouts]
    turns = [t for r in rollouts for t in r.turns]
    return {
        "groups": float(len(drafts)),
        "groups_all_failed": float(sum(g.all_failed for g in drafts)),
        "groups_all_succeeded": float(
            sum(bool(g.rollouts) and all(r.success for r in g.rollouts) for g in drafts)
        ),
        "groups_fired": float(sum(fired)),
        "rollouts": float(len(rollouts)),
        "faults": float(sum(g.faults for g in drafts)),
        "pass@1": _mean([float(r.success) for r in rollouts]),
        "pass@G": _mean([float(any(r.success for r in g.rollouts)) for g in drafts if g.rollouts]),
        "outcome": _mean([r.outcome or 0.0 for r in rollouts]),
        "truncated": _mean([float(r.truncated) for r in rollouts]),
        "turns": len(turns) / max(1, len(rollouts)),
        "turns_out_of_tokens": _mean([float(t.finish == "length") for t in turns]),
        "rollouts_corrected": float(sum(r.corrected for g in groups for r in g.rollouts)),
        **made_up_metrics(rollouts),
    }


REACHED: Mapping[str, tuple[Stage, ...]] = {
    "flagged": ("vetoed", "uncorrected", "rejected", "gated", "unforkable", "failed", "succeeded"),
    "corrected": ("rejected", "gated", "unforkable", "failed", "succeeded"),
    "verified": ("gated", "unforkable", "failed", "succeeded"),
    "admitted": ("unforkable", "failed", "succeeded"),
    "succeeded": ("succeeded",),
}
"""For each step of the funnel, the stages of the records that came through it."""


def funnel(records: Sequence[Intervention], candidates: int) -> dict[str, float]:
    """How many records came how far, and the perplexities seen at the gate.

    `mean_ppl` is over corrections that reached the gate; it is absent when none did.
    """
    import torch

    from rti.ops import perplexity

    stages = Counter(r.stage for r in records)
    counts = {
        f"funnel/{name}": float(sum(stages[s] for s in through))
        for name, through in REACHED.items()
    }
    scored = [perplexity(torch.tensor(r.rollout_logprobs)) for r in records if r.rollout_logprobs]
    unread = Counter[str]()
    for record in records:
        judged = [("diagnosis", record.diagnosis), *(("verdict", v) for v in record.verdicts)]
        for name, answer in judged:
            if answer is not None and not answer.parsed:
                unread[name] += 1
                unread[f"{name}/{answer.problem or 'other'}"] += 1
        if record.stage == "uncorrected":
            kind = record.reason.partition(":")[0].replace(" ", "-")
            unread[f"correction/{kind[:40]}"] += 1
    return {
        "funnel/candidates": float(candidates),
        "funnel/attempts": float(len(records)),
        **counts,
        "funnel/trained": float(sum(r.trained for r in records)),
        "funnel/faulted": float(stages["faulted"]),
        "corrections_without_numerator": float(
            sum(r.weights is not None and r.corrector_logprobs is None for r in records)
        ),
        "funnel/vetoed": float(stages["vetoed"]),
        "unparsed/diagnosis": 0.0,
        "unparsed/verdict": 0.0,
        **{f"unparsed/{name}": float(n) for name, n in sorted(unread.items())},
        **({"mean_ppl": _mean(scored)} if scored else {}),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
