"""Means and Student's t intervals over seeds, in pure Python."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from rti.errors import NumericsError

METHOD = (
    "Mean ± half of a 95 % interval by Student's t, over seeds. Differences are paired: taken seed "
    "by seed, over the seeds that both arms have. One seed alone has no interval."
)


def mean_interval(
    values: Sequence[float], level: float = 0.95
) -> tuple[float, float | None, float | None]:
    """Mean of `values`, and the ends of its t interval: (mean, low, high).

    mean ± t · s / √n with n − 1 degrees of freedom; None, None for a single value.

    Raises:
        NumericsError: no values, or one that is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise NumericsError(f"values = {list(values)}: at least one, all of them finite")
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return mean, None, None
    half = t_quantile((1 + level) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return mean, mean - half, mean + half


@lru_cache(maxsize=256)
def t_quantile(p: float, degrees: int) -> float:
    """Student's t: the value below which a share `p`, from .5 to 1, of its draws lies.

    Found by bisection on the distribution function.

    Raises:
        NumericsError: p outside [.5, 1), or less than one degree of freedom.
    """
    if not 0.5 <= p < 1 or degrees < 1:
        raise NumericsError(f"p = {p!r}, degrees = {degrees!r}: p from .5 to 1, degrees at least 1")
    low, high = 0.0, 1.0
    while _below(high, degrees) < p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < p else (low, middle)
    return (low + high) / 2


def _below(t: float, degrees: int) -> float:
    """The distribution function at t ≥ 0, in closed form (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, cosine) if degrees % 2 else (1.0, 1.0)
    for k in range(2 if degrees % 2 else 1, degrees - 1, 2):
        term *= cosine * cosine * k / (k + 1)
        total += term
    if degrees % 2:
        both = 2 / math.pi * (angle + (sine * total if degrees > 1 else 0.0))
    else:
        both = sine * total
    return 0.5 + both / 2
