"""Histograms of perplexities and token weights, and what runs spent, by phase."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rti.report.curves import short
from rti.report.log import RunLog, mean

PPL_BINS = 8
"""Bins of the PPL histogram to a factor of 10."""
PPL_TOP = 1000.0
"""Perplexities from here on share the last bin."""
WEIGHT_BINS = 41
NEUTRAL = 0.005
"""Weights no further from 1 than this count as 1."""

TIME = (
    ("seconds_rollout", "rollouts"),
    ("seconds_intervene", "interventions"),
    ("seconds_update", "update"),
)
TOKENS = (
    ("sampled_tokens", "sampled"),
    ("scored_tokens", "scored"),
    ("prefill_tokens", "prefilled"),
    ("reused_tokens", "reused from cache"),
    ("trained_tokens", "trained on"),
    ("corrected_tokens", "trained on, of corrections"),
)


def perplexities(logs: Sequence[RunLog]) -> dict[str, Any] | None:
    """Perplexities at the gate in logarithmic bins, admitted and stopped apart, with δ.

    `deltas` are the thresholds met: one in most runs; empty when none was finite.
    """
    seen = [
        (look.perplexity, look.stage != "gated")
        for log in logs
        for look in log.looks
        if look.perplexity is not None and look.perplexity > 0
    ]
    if not seen:
        return None
    deltas = sorted(
        {look.threshold for log in logs for look in log.looks if look.threshold is not None}
    )
    # A single δ is the edge of two bins: what it let through and what it stopped lie apart.
    shift = math.log10(deltas[0]) * PPL_BINS % 1 if len(deltas) == 1 and deltas[0] > 0 else 0.0

    def bin_of(value: float) -> int:
        return math.floor(math.log10(value) * PPL_BINS - shift + 1e-9)

    # A PPL equal to δ is let through, and lies with those below it.
    places = [(bin_of(p) - (p in deltas and admitted), admitted) for p, admitted in seen]
    # δ has its place on the axis, also where nothing is near it.
    reached = [place for place, _ in places] + [bin_of(d) for d in deltas if d > 0]
    low, top = min(reached), max(reached)
    last = max(low, min(top, bin_of(PPL_TOP)))
    bins = {True: [0] * (last - low + 1), False: [0] * (last - low + 1)}
    for place, admitted in places:
        bins[admitted][min(place, last) - low] += 1
    return {
        "edges": [short(10 ** ((i + shift) / PPL_BINS)) for i in range(low, last + 2)],
        "open": top > last,
        "admitted": bins[True],
        "stopped": bins[False],
        "deltas": [short(d) for d in deltas],
        "looks": len(seen),
    }


def token_weights(logs: Sequence[RunLog]) -> dict[str, Any] | None:
    """Weights of the tokens of corrections in equal bins from the least to the greatest."""
    weights = [w for log in logs for look in log.looks for w in look.weights]
    if not weights:
        return None
    reach = max(abs(w - 1) for w in weights) or 0.1
    low, size = 1 - reach, 2 * reach / WEIGHT_BINS
    counts = Counter(min(int((w - low) / size), WEIGHT_BINS - 1) for w in weights)
    return {
        "edges": [short(low + i * size) for i in range(WEIGHT_BINS + 1)],
        "counts": [counts[i] for i in range(WEIGHT_BINS)],
        "tokens": len(weights),
        "above": sum(w > 1 + NEUTRAL for w in weights),
        "below": sum(w < 1 - NEUTRAL for w in weights),
        "neutral": NEUTRAL,
    }


def spent(logs: Sequence[RunLog]) -> dict[str, Any]:
    """Seconds and tokens by phase: the mean over runs."""
    whole = [log.seconds for log in logs if log.seconds is not None]
    time = {words: _mean_total(logs, metric) for metric, words in TIME}
    if len(whole) == len(logs) and whole:
        # Evaluation and saving have no counter: they are what is left of the run's seconds.
        rest = mean(whole) - math.fsum(time.values())
        time["evaluation and the rest"] = max(0.0, rest)
    tokens = {words: _mean_total(logs, metric) for metric, words in TOKENS}
    return {"time": _short(time), "tokens": _short(tokens), "runs": len(logs)}


def _mean_total(logs: Sequence[RunLog], metric: str) -> float:
    return mean([math.fsum(_values(log, metric)) for log in logs]) if logs else 0.0


def _values(log: RunLog, metric: str) -> Iterable[float]:
    return (step.metrics.get(metric, 0.0) for step in log.steps)


def _short(table: Mapping[str, float]) -> dict[str, float | int]:
    return {name: short(value) for name, value in table.items()}
