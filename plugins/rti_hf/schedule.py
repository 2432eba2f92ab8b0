"""The step size of an update, as a pure function of its number: resuming needs no state."""

from __future__ import annotations

import math

SCHEDULES = ("constant", "linear", "cosine")


def rate_factor(
    update: int, schedule: str, warmup_steps: int, schedule_steps: int, min_ratio: float
) -> float:
    """What the step size of update number `update` (from 0) is multiplied by.

        factor(u) = min(1, (u + 1) / warmup) · (m + (1 − m) · s(p))
        p = clip((u − warmup) / (schedule_steps − warmup), 0, 1)
        s(p) = 1 (constant), 1 − p (linear), (1 + cos πp) / 2 (cosine)

    with m = `min_ratio`. So it rises to 1 at update `warmup`, counted from 1, falls from there,
    and is m from update `schedule_steps` on, where "constant" stays at 1.
    """
    warm = min(1.0, (update + 1) / max(1, warmup_steps))
    if schedule == "constant":
        return warm
    p = min(1.0, max(0.0, (update - warmup_steps) / (schedule_steps - warmup_steps)))
    shape = 1.0 - p if schedule == "linear" else (1.0 + math.cos(math.pi * p)) / 2.0
    return warm * (min_ratio + (1.0 - min_ratio) * shape)
