"""Truncated importance sampling: what a token that another backend sampled counts.

    w = min(π_old / π_roll, C)

π_roll is the policy as the sampler computed it, π_old the same policy as the trainer computes it
before a batch's first update: other kernels, another number format, other logprobs. The weight is
verl's (PR 2953) and TRL's (PR 3867), after F. Yao et al., "Your efficient RL framework secretly
brings you off-policy RL training" (2025). It goes with a loss whose ratio is π_θ / π_old: the clip
then measures what the updates moved, and w what the backends differ by (decoupled PPO, arXiv
2110.00641). On top of a ratio π_θ / π_roll it would correct twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rti.errors import NumericsError
from rti.ops._checks import check_same_shape, check_values
from rti.ops.loss import LOG_RATIO_BOUND


def truncated_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, cap: float) -> Tensor:
    """min(π_old / π_roll, C) of each token, without a gradient.

    Args:
        old_logprobs: under π_old, at the rollout prompt.
        rollout_logprobs: of the same tokens under π_roll, same shape.
        cap: C, at least 1: a cap below 1 would weigh down tokens on which both agree.

    Returns:
        Weights in the shape of the inputs, above 0 and at most C, exactly 1 where both logprobs
        are equal; float32, or float64 for float64 `old_logprobs`.

    Raises:
        NumericsError: empty, different shapes, NaN or infinite logprobs, a cap below 1.
    """
    if not cap >= 1:
        raise NumericsError(f"cap = {cap!r}: must be at least 1")
    check_same_shape(old_logprobs=old_logprobs, rollout_logprobs=rollout_logprobs)
    check_values("old_logprobs", old_logprobs)
    check_values("rollout_logprobs", rollout_logprobs)
    dtype = torch.promote_types(old_logprobs.dtype, torch.float32)
    log_ratio = old_logprobs.detach().to(dtype) - rollout_logprobs.detach().to(dtype)
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp().clamp(max=cap)
