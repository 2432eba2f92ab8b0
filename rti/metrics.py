"""pass@k and pass^k over tasks, with a bootstrap interval. Pure Python, exact counts.

Of n independent attempts at a task c succeed. pass@k is the chance that at least one of k
attempts drawn from them succeeds (Codex, arXiv 2107.03374); pass^k the chance that all k do
(τ-bench, arXiv 2406.12045). Both are unbiased estimates of the same for k fresh attempts.
all-of-k counts plainly whether the first k attempts all succeeded, as one does who makes exactly
k: equal to pass^k where n = k, and a noisier estimate of the same where n is larger.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from rti.errors import NumericsError


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 − C(n − c, k) / C(n, k): at least one of k attempts succeeds.

    Args:
        n: attempts made.
        c: attempts that succeeded.
        k: attempts drawn, 1 ≤ k ≤ n.

    Raises:
        NumericsError: k above n or below 1, c below 0 or above n.
    """
    _check(n, c, k)
    # Integers up to the one division: 1 − C/C in floats would lose small probabilities.
    return (math.comb(n, k) - math.comb(n - c, k)) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """pass^k = C(c, k) / C(n, k): all of k attempts succeed.

    Args:
        n: attempts made.
        c: attempts that succeeded.
        k: attempts drawn, 1 ≤ k ≤ n.

    Raises:
        NumericsError: k above n or below 1, c below 0 or above n.
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def all_of_k(successes: Sequence[bool], k: int) -> float:
    """1 where the first k attempts all succeeded, else 0.

    Args:
        successes: whether each attempt succeeded, in the order made.
        k: attempts looked at, 1 ≤ k ≤ n.

    Raises:
        NumericsError: k above n or below 1.
    """
    _check(len(successes), 0, k)
    return float(all(successes[:k]))


def by_task(
    successes_by_task: Sequence[Sequence[bool]], ks: Sequence[int]
) -> dict[str, list[float]]:
    """One number a task: "pass@k" for every k; "pass^k" and "all-of-k" for every k above 1.

    Args:
        successes_by_task: as for `summarise`.
        ks: as for `summarise`.

    Raises:
        NumericsError: as `summarise`.
    """
    found = dict(_values_by_task(successes_by_task, ks))
    for k in ks:
        if k > 1:
            found[f"all-of-{k}"] = [all_of_k(row, k) for row in successes_by_task]
    return found


def summarise(
    successes_by_task: Sequence[Sequence[bool]], ks: Sequence[int] = (1, 8)
) -> dict[str, float]:
    """Means over tasks: "pass@k" for every k, and "pass^k" for every k above 1 (pass^1 = pass@1).

    Args:
        successes_by_task: for each task whether each of its attempts succeeded. Attempts lost to
            an infrastructure fault are left out beforehand; tasks may differ in length.
        ks: numbers of attempts drawn.

    Raises:
        NumericsError: no tasks, no ks, or a task with fewer attempts than the largest k.
    """
    by_metric = _values_by_task(successes_by_task, ks)
    return {name: math.fsum(values) / len(values) for name, values in by_metric.items()}


def intervals(
    successes_by_task: Sequence[Sequence[bool]],
    ks: Sequence[int] = (1, 8),
    *,
    seed: int,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """A bootstrap interval over tasks for every number that `summarise` gives.

    Args:
        successes_by_task: as for `summarise`.
        ks: as for `summarise`.
        seed: of the resampling; equal seeds give equal intervals.
        resamples: how many times the tasks are drawn anew.
        level: coverage, between 0 and 1.

    Raises:
        NumericsError: as `summarise` and `bootstrap_interval`.
    """
    by_metric = _values_by_task(successes_by_task, ks)
    return {
        name: bootstrap_interval(values, seed=seed, resamples=resamples, level=level)
        for name, values in by_metric.items()
    }


def bootstrap_interval(
    values: Sequence[float], *, seed: int, resamples: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values`, one a task.

    Tasks are the unit that is resampled: attempts at one task are not independent of each other.

    Args:
        values: one number a task.
        seed: of the resampling.
        resamples: how many times the tasks are drawn anew, at least 1.
        level: coverage, strictly between 0 and 1.

    Returns:
        (low, high).

    Raises:
        NumericsError: no values, a value that is not finite, `resamples` or `level` out of range.
    """
    if not values:
        raise NumericsError("values: empty, a bootstrap needs at least one task")
    if not all(map(math.isfinite, values)):
        raise NumericsError("values: NaN or infinite")
    if resamples < 1:
        raise NumericsError(f"resamples = {resamples!r}: must be at least 1")
    if not 0 < level < 1:
        raise NumericsError(f"level = {level!r}: must be between 0 and 1")
    generator = random.Random(seed)
    size = len(values)
    means = sorted(math.fsum(generator.choices(values, k=size)) / size for _ in range(resamples))
    tail = (1 - level) / 2
    low, high = math.floor(tail * (resamples - 1)), math.ceil((1 - tail) * (resamples - 1))
    return means[low], means[high]


def _values_by_task(
    successes_by_task: Sequence[Sequence[bool]], ks: Sequence[int]
) -> Mapping[str, list[float]]:
    if not successes_by_task:
        raise NumericsError("successes_by_task: no tasks")
    if not ks:
        raise NumericsError("ks: no k to report")
    for position, successes in enumerate(successes_by_task):
        if len(successes) < max(ks):
            raise NumericsError(
                f"task {position} has {len(successes)} attempts: pass@{max(ks)} needs at least "
                f"{max(ks)}; ask for a smaller k or sample more"
            )
    counts = [(len(s), sum(map(bool, s))) for s in successes_by_task]
    by_metric = {f"pass@{k}": [pass_at_k(n, c, k) for n, c in counts] for k in ks}
    by_metric |= {f"pass^{k}": [pass_hat_k(n, c, k) for n, c in counts] for k in ks if k > 1}
    return by_metric


def _check(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n:
        raise NumericsError(f"k = {k!r}: must be from 1 to the {n} attempts made")
    if not 0 <= c <= n:
        raise NumericsError(f"c = {c!r}: successes must be from 0 to the {n} attempts made")
