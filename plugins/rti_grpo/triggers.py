"""When a group is intervened on: judged by raw successes, and never without a rollout."""

from __future__ import annotations

from attrs import frozen

from rti import Group, at_least, between, option


@frozen
class AllFailed:
    """Fires when every rollout of the group failed: one success means the policy can do it."""

    def fires(self, group: Group) -> bool:
        """Whether all failed."""
        return group.all_failed


@frozen
class Never:
    """Never fires: plain GRPO."""

    def fires(self, group: Group) -> bool:
        """No."""
        return False


@frozen
class Always:
    """Fires on every group, whatever its outcomes."""

    def fires(self, group: Group) -> bool:
        """Whether there is a rollout at all."""
        return bool(group.rollouts)


@frozen
class BelowRate:
    """Fires when the group's success rate is below `rate` and at least one rollout failed."""

    rate: float = option(0.5, "Success rate from which the policy is left alone.", between(0, 1))

    def fires(self, group: Group) -> bool:
        """Whether successes / rollouts < rate."""
        if not group.rollouts:
            return False
        successes = sum(rollout.success for rollout in group.rollouts)
        return successes / len(group.rollouts) < self.rate


@frozen
class Resample:
    """Never fires, but has groups sampled anew that all failed or all succeeded.

    DAPO's dynamic sampling (arXiv 2503.14476): such a group has no gradient, so its place is given
    to one on a further task, and again to the next, for at most `rounds` rounds. What is still of
    one outcome then stays, without a gradient. Dropped groups count in every metric of the step.
    """

    rounds: int = option(2, "Most rounds of further tasks a step.", at_least(1))

    def fires(self, group: Group) -> bool:
        """No."""
        return False

    def resample(self, group: Group) -> bool:
        """Whether all its rollouts failed, or all succeeded. Not if faults left none."""
        return len({rollout.success for rollout in group.rollouts}) == 1
