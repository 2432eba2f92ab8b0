"""The perplexity gate: how surprising a correction is to the policy that must learn from it.

    PPL_roll(ũ_k) = exp(−(1/T) Σ_t log π_roll(ũ_{k,t} | h_k, ũ_{k,<t}))

taken at the ORIGINAL rollout prompt h_k; admitted when PPL ≤ δ (RTI, arXiv 2610.13438).
"""

from __future__ import annotations

import math

from torch import Tensor

from rti.errors import NumericsError
from rti.ops._checks import check_logprobs


def perplexity(logprobs_T: Tensor) -> float:
    """Perplexity of one sequence of T tokens, computed in float64.

    Args:
        logprobs_T: logprobs in nats, one a token. −inf is a token of probability 0.

    Returns:
        exp(−mean). Infinite when a token has probability 0 or the value overflows float64.

    Raises:
        NumericsError: empty, not one-dimensional, NaN, or above 0 by more than rounding.
    """
    check_logprobs("logprobs_T", logprobs_T, dims=1)
    return float((-logprobs_T.detach().double().mean()).exp())


def admits(perplexity: float, delta: float) -> bool:
    """Whether a sequence of this perplexity passes the gate δ; monotone in δ.

    δ = 0 admits nothing, since perplexities are at least 1 but for rounding: plain GRPO.
    δ = ∞ filters nothing and so admits an infinite perplexity too.

    Raises:
        NumericsError: NaN, a perplexity that is not above 0, a negative δ.
    """
    if not perplexity > 0:
        raise NumericsError(f"perplexity = {perplexity!r}: must be above 0")
    if math.isnan(delta) or delta < 0:
        raise NumericsError(f"delta = {delta!r}: must be at least 0")
    return perplexity <= delta
