"""How far the trained policy has moved from a reference: the k3 estimate of their KL divergence.

    k3 = π_ref / π_θ − log(π_ref / π_θ) − 1

It is J. Schulman's third estimator (http://joschu.net/blog/kl-approx.html), as GRPO adds it to its
loss (arXiv 2402.03300, eq. 4). Over tokens drawn from π_θ its mean is KL(π_θ ‖ π_ref), each value
is at least 0, and where the two policies agree both value and gradient are 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rti.ops._checks import check_same_shape, check_values
from rti.ops.loss import LOG_RATIO_BOUND


def kl_estimate(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """The k3 estimate of KL(π_θ ‖ π_ref) at each token, in nats.

    With d = log π_ref − log π_θ it is e^d − d − 1, computed as expm1(d) − d, which keeps small
    values exact. Its derivative by log π_θ is 1 − e^d. d is cut at `LOG_RATIO_BOUND` from above,
    with no gradient beyond, so that one token cannot make the loss infinite.

    Args:
        logprobs: under π_θ; the gradient flows through these alone.
        reference_logprobs: of the same tokens under π_ref, same shape.

    Returns:
        One value a token in the shape of the inputs; float32, or float64 for float64 logprobs.
        Exactly 0, with gradient 0, where both logprobs are equal.

    Raises:
        NumericsError: empty, different shapes, NaN or infinite input.
    """
    check_same_shape(logprobs=logprobs, reference_logprobs=reference_logprobs)
    check_values("logprobs", logprobs)
    check_values("reference_logprobs", reference_logprobs)
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    difference = reference_logprobs.detach().to(dtype) - logprobs.to(dtype)
    difference = difference.clamp(max=LOG_RATIO_BOUND)
    return difference.expm1() - difference
