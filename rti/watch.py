"""A warning while there is time: the share of made-up final ids (`rti.made_up`) has climbed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from attrs import define, field

# How WINDOW and DEVIATIONS were chosen. The standard error below takes ids as independent draws.
# Those of one group are alike: in real runs the variance of a step's share was 0.9 to 3.4 times
# what independent draws give, so an error may be 1.9 times as large, and 7 of them are 3.7 true
# ones. That many, since every step is one more chance to be wrong. Simulated at 3.5 times the
# variance, with 24 to 96 ids a step and shares from 0 to .5, level runs of 200 steps are warned of
# in less than 1 of 100, and jumps from 0 to .3 or climbs from .05 to .6 are told within 10 steps of
# having risen. Windows of 5 steps do not get both: what keeps them silent misses the jump.
WINDOW = 10
"""Steps whose final ids are counted together, at the run's beginning and now."""
MARGIN = 0.1
"""A share must rise by more than this to be worth a warning, and again by as much for another."""
DEVIATIONS = 7.0
"""… and by more than so many standard errors of the difference of the two shares."""

Count = tuple[float, float]
"""Ids that were made up, and all."""


@define
class Watch:
    """Says when the share of made-up final ids has climbed, step by step.

    Compared are the last `WINDOW` steps with the first ones; after a warning, with the first ones
    behind it. Few ids give a large standard error, so that chance does not fire it.

    Args:
        run: its folder, for the way to the repairs that the warning names.
    """

    run: str = "RUN"
    _first: list[Count] = field(factory=list, init=False)
    _last: deque[Count] = field(factory=lambda: deque(maxlen=WINDOW), init=False)

    def step(self, metrics: Mapping[str, float]) -> str:
        """Take a step's metrics; the warning if there is one, else ""."""
        values = metrics.get("made_up_values") or 0.0
        self._last.append(((metrics.get("made_up") or 0.0) * values, values))
        if len(self._first) < WINDOW:
            self._first.append(self._last[-1])
            return ""
        before, now = _total(self._first), _total(self._last)
        if not climbed(before, now):
            return ""
        self._first.clear()
        return (
            f"Final ids that nothing in the conversation showed: {_share(now):.0%} of the last "
            f"{WINDOW} steps', up from {_share(before):.0%}. Corrections may be teaching answers "
            f"instead of steps: read some (`rti report {self.run}`, or TurnRepaired in "
            "events.jsonl), and look at [verifier] and [veto]."
        )


def climbed(before: Count, now: Count) -> bool:
    """Whether a share rose by more than `MARGIN` and `DEVIATIONS` standard errors.

    Args:
        before: (made up, all) of the earlier steps.
        now: the same of the later ones.
    """
    if not before[1] or not now[1]:
        return False
    # The mean of the two shares, not the share of all ids: with 2 ids now and 500 before, that
    # would be the earlier one alone, and an error for it far too small for 2.
    mean = (_share(before) + _share(now)) / 2
    error = math.sqrt(max(0.0, mean * (1 - mean)) * (1 / before[1] + 1 / now[1]))
    return _share(now) - _share(before) > max(MARGIN, DEVIATIONS * error)


def _total(steps: Sequence[Count]) -> Count:
    return math.fsum(made for made, _ in steps), math.fsum(count for _, count in steps)


def _share(count: Count) -> float:
    return count[0] / count[1]
