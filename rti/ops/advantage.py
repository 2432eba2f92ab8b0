"""Group advantages: GRPO (arXiv 2402.03300), and without the std, Dr. GRPO (arXiv 2503.20783)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from rti.errors import NumericsError
from rti.ops._checks import check_values

SPREAD_FLOOR = 1e-9
"""Outcomes that differ by no more than this (times their size, where above 1) count as equal.

Outcomes lie in [0, 1]. A smaller spread is rounding in a reward, and dividing it by its own std
would blow it up to full-size advantages.
"""


def group_advantages(
    outcomes_G: Tensor, normalise: Literal["std", "none"] | str = "std", ddof: int = 1
) -> Tensor:
    """Advantages of the G rollouts of one task.

    "std" gives (R − mean) / std, "none" gives R − mean. A single rollout and a group of equal
    outcomes give exactly 0. Sums are correctly rounded (`math.fsum`), so reordering the group
    reorders the advantages and changes no bit of them.

    Args:
        outcomes_G: raw outcomes, one a rollout.
        normalise: "std" or "none".
        ddof: 1 for the unbiased std (divide by G − 1), 0 for the population's (by G).

    Returns:
        advantages_G in float64.

    Raises:
        NumericsError: empty, not one-dimensional, NaN or infinite outcomes, outcomes so large
            that their variance overflows, an unknown `normalise` or `ddof`.
    """
    if normalise not in ("std", "none"):
        raise NumericsError(f"normalise = {normalise!r}: must be 'std' or 'none'")
    if ddof not in (0, 1):
        raise NumericsError(f"ddof = {ddof!r}: must be 0 or 1")
    check_values("outcomes_G", outcomes_G, dims=1)
    outcomes: list[float] = outcomes_G.detach().double().tolist()
    size, low, high = len(outcomes), min(outcomes), max(outcomes)
    if high - low <= SPREAD_FLOOR * max(1.0, abs(low), abs(high)):
        return torch.zeros(size, dtype=torch.float64)
    try:
        mean = math.fsum(outcomes) / size
        centred = [outcome - mean for outcome in outcomes]
        variance = math.fsum(c * c for c in centred) / (size - ddof)
    except OverflowError:
        variance = math.inf
    if not math.isfinite(variance):
        raise NumericsError(f"outcomes_G from {low!r} to {high!r}: their variance overflows")
    scale = math.sqrt(variance) if normalise == "std" else 1.0
    return torch.tensor([c / scale for c in centred], dtype=torch.float64)
