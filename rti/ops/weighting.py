"""Calibration weights: how much of a corrected token is owed to the corrector prompt.

    w_{k,t} = clip(π_roll(ũ_{k,t} | corrector prompt, ũ_{k,<t}) / π_roll(ũ_{k,t} | h_k, ũ_{k,<t}),
                   1 − ε, 1 + ε)

(RTI, arXiv 2610.13438). A large ratio marks a token that the correction brought in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rti.errors import NumericsError
from rti.ops._checks import check_logprobs, check_same_shape

_LOG_RATIO_BOUND = 60.0
# The weight lies in [1 − ε, 1 + ε] with ε < 1 in float64, so log w lies in [−37, .7]: cutting the
# log-ratio at ±60 changes no weight, and keeps exp from overflowing.


def calibration_weights(
    corrector_logprobs_T: Tensor, rollout_logprobs_T: Tensor, epsilon: float
) -> Tensor:
    """Weights of one corrected turn's T tokens.

    A token of probability 0 under the corrector prompt gets 1 − ε. One of probability 0 under the
    rollout prompt is an error: its importance ratio in the loss would have no finite value either.

    Args:
        corrector_logprobs_T: under the corrector prompt, by the policy version of the draft.
        rollout_logprobs_T: under the rollout prompt h_k, by the same version and backend.
        epsilon: half-width of the clip range, 0 ≤ ε < 1. With ε = 0 every weight is 1.

    Returns:
        weights_T in float64: finite, in [1 − ε, 1 + ε], exactly 1 where both logprobs are equal.

    Raises:
        NumericsError: empty, misshapen or different shapes, NaN, logprobs above 0 by more than
            rounding, −inf in `rollout_logprobs_T`, or ε out of range.
    """
    if not 0 <= epsilon < 1:
        raise NumericsError(f"epsilon = {epsilon!r}: must be at least 0 and below 1")
    check_same_shape(
        corrector_logprobs_T=corrector_logprobs_T, rollout_logprobs_T=rollout_logprobs_T
    )
    check_logprobs("corrector_logprobs_T", corrector_logprobs_T, dims=1)
    check_logprobs("rollout_logprobs_T", rollout_logprobs_T, dims=1)
    impossible = torch.isneginf(rollout_logprobs_T)
    if bool(impossible.any()):
        raise NumericsError(
            f"rollout_logprobs_T[{int(impossible.nonzero()[0])}] = -inf: the rollout policy gives "
            "this token probability 0, so its ratio has no finite value; gate such corrections out"
        )
    log_ratio_T = corrector_logprobs_T.detach().double() - rollout_logprobs_T.detach().double()
    ratio_T = log_ratio_T.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()
    return ratio_T.clamp(1.0 - epsilon, 1.0 + epsilon)
