"""Rollout, intervention, gate and weights without a trainer: tasks in, a batch out.

`rti`'s own engine is one caller of `Collector.collect`; engines that own their loop are others.
What an objective wants of a teacher (`rti.teacher`) is added on the way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from attrs import define, evolve

from rti.batch import build_batch, demonstrations
from rti.counting import funnel, group_metrics, teacher_metrics
from rti.errors import RunError
from rti.interfaces import Objective, Trigger
from rti.intervene import Repairer
from rti.rollout import Actor, Episode
from rti.teacher import DEMONSTRATIONS, LOGPROBS, Teacher, missing, needed
from rti.types import Batch, Group, Intervention, RequestKey, Rollout, Task

Further = Callable[[int], Sequence[Task]]
"""The tasks of resampling round 1, 2, …: one for each place of the step, in the same order."""


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
    teacher: Teacher | None = None

    def prepare(self) -> None:
        """Load the teacher, if the objective learns from one. A run does so before it begins.

        Raises:
            ConfigError: when there is none, or it cannot be used.
        """
        if needed(self.objective):
            if self.teacher is None:
                raise missing(self.objective)
            self.teacher.actor  # noqa: B018 - loaded when it is first asked for

    async def collect(
        self, tasks: Sequence[Task], version: int, step: int = 0, further: Further | None = None
    ) -> Batch:
        """Roll out, intervene, compose the groups and put token advantages on them.

        Args:
            tasks: one group each.
            version: of the policy that is to sample; every number in the batch is from it.
            step: part of every request's key: another step draws other tokens.
            further: tasks for a trigger that resamples; without them it does not.

        Raises:
            RunError: when the policy holds another version.
            ConfigError: when the objective needs a teacher and there is none.
        """
        policy = self.actor.policy
        if policy.version != version:
            raise RunError(
                f"asked to collect with policy version {version}, but the policy holds version "
                f"{policy.version}: load the weights first"
            )
        self.prepare()
        usage, said, began = self._usage(), self.repairer.notes, time.perf_counter()
        episodes, dropped = await self._sampled(tasks, step, further)
        spent = self.repairer.spent
        drafts = [_group(group) for group in episodes]
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
        composed = [_compose(group, repaired, self.compose) for group in drafts]
        groups = await self._taught(composed, step)
        metrics = {
            **group_metrics([*map(_group, dropped), *drafts], groups, fired),
            **funnel(records, len(candidates)),
            "groups_resampled": float(len(dropped)),
            "seconds_rollout": rolled_out - began,
            "seconds_intervene": intervened - rolled_out,
        }
        batch = build_batch(
            groups, self.objective, self.actor.renderer.extends, version, records, metrics
        )
        aux = await self._aux(batch)
        spending = {name: now - usage.get(name, 0) for name, now in self._usage().items()}
        if self.teacher is not None:
            spending["seconds_teacher"] = time.perf_counter() - intervened
        stopped = f"No intervention: {spent}." if spent and any(fired) else ""
        news = [note for note in self.repairer.notes if note not in said]
        notes = (stopped, *_fault_notes(dropped + episodes, records), *news)
        return evolve(
            batch,
            metrics={**batch.metrics, **teacher_metrics(batch, aux), **spending},
            aux=aux,
            notes=tuple(filter(None, notes)),
        )

    def _usage(self) -> dict[str, float]:
        """Counters of the policy, of roles and an environment that count, and of the teacher."""
        taught = self.teacher.usage if self.teacher is not None else {}
        lived = getattr(self.actor.environment, "usage", {})
        return {**lived, **self.repairer.usage, **self.actor.policy.usage, **taught}

    # --- rollouts ---------------------------------------------------------------------------

    async def _sampled(
        self, tasks: Sequence[Task], step: int, further: Further | None
    ) -> tuple[list[list[Episode]], list[list[Episode]]]:
        """A group of episodes for each place, and those that others took the place of."""
        before: Counter[str] = Counter()
        episodes = await self._rollouts(tasks, step, before)
        dropped: list[list[Episode]] = []
        resample = getattr(self.trigger, "resample", None)
        if resample is None or further is None:
            return episodes, dropped
        for number in range(1, getattr(self.trigger, "rounds", 0) + 1):
            places = [i for i, group in enumerate(episodes) if resample(_group(group))]
            if not places:
                break
            dropped += [episodes[i] for i in places]
            await self.actor.policy.gather([e.close() for i in places for e in episodes[i]])
            others = further(number)
            fresh = await self._rollouts([others[i] for i in places], step, before)
            for i, group in zip(places, fresh, strict=True):
                episodes[i] = group
        return episodes, dropped

    async def _rollouts(
        self, tasks: Sequence[Task], step: int, before: Counter[str]
    ) -> list[list[Episode]]:
        """The policy's rollouts of each task; `before` counts how often a task came already."""
        size = self._by_policy
        # The index goes into the key: a task that comes twice in a step is to be sampled twice.
        places: list[Rollout] = []
        for task in tasks:
            first = before[task.id] * self.group_size
            places += [Rollout(task, i) for i in range(first, first + size)]
            before[task.id] += 1
        flat = await self.actor.policy.gather(
            [self.actor.episode(r.task, r.index, self._key(step, r)) for r in places]
        )
        return [flat[i : i + size] for i in range(0, len(flat), size)]

    @property
    def _by_policy(self) -> int:
        """Rollouts of a group that the policy samples: all, or all but the teacher's one."""
        return self.group_size - (DEMONSTRATIONS in self.objective.needs)

    def _key(self, step: int, rollout: Rollout) -> RequestKey:
        return RequestKey(self.seed, step, rollout.task.id, rollout.index)

    def _candidates(self, group: Sequence[Episode]) -> list[Episode]:
        """Failed rollouts to repair: the first ones, and never so many that none is left failed."""
        failed = [e for e in group if e.rollout.fault is None and not e.rollout.success]
        return failed[: min(self.repairs_per_group, len(failed) - 1)]

    # --- the teacher ------------------------------------------------------------------------

    async def _taught(self, groups: Sequence[Group], step: int) -> Sequence[Group]:
        """The groups with a rollout of the teacher's each, if the objective asks for them."""
        if self.teacher is None:
            return groups
        await self.teacher.begin_step()
        if DEMONSTRATIONS not in self.objective.needs:
            return groups
        return await self.teacher.join(groups, self.group_size, partial(self._key, step))

    async def _aux(self, batch: Batch) -> dict[str, Any]:
        """What the objective needs that is known here, one float a token."""
        needs = self.objective.needs
        aux: dict[str, Any] = {}
        if DEMONSTRATIONS in needs:
            aux[DEMONSTRATIONS] = demonstrations(batch.samples)
        if LOGPROBS in needs and self.teacher is not None:
            aux[LOGPROBS] = await self.teacher.logprobs(batch.samples)
        return aux


def _group(episodes: Sequence[Episode]) -> Group:
    whole = [e.rollout for e in episodes if e.rollout.fault is None]
    return Group(episodes[0].rollout.task, tuple(whole), faults=len(episodes) - len(whole))


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
