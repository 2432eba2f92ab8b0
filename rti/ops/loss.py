"""The clipped policy loss of each token, and what each token counts in the loss of a batch.

    loss = Σ over trained tokens of token_loss · scale

`ppo_clip_loss` gives the first factor, `token_scales` the second. Scales are worked out once for
the whole batch, so the sum, and its gradient, do not depend on how the batch is cut into
micro-batches, nor on how many training samples a rollout was split into.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rti.errors import NumericsError
from rti.ops._checks import check_same_shape, check_values

LOG_RATIO_BOUND = 20.0
"""|log(π_θ / π_roll)| is cut here, with no gradient beyond: e^20 is no step any clip would allow,
and without the cut one stale token with Â ≤ 0 makes the loss infinite or NaN."""

AGGREGATES = ("token", "sequence", "constant")


def ppo_clip_loss(
    logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """−min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A) of each token, r = π_θ / π_roll.

    PPO (arXiv 1707.06347); clip_high > clip_low is DAPO's clip-higher (arXiv 2503.14476). The
    token weight w of RTI is part of A: A_{i,t} = Â_i · w_{i,t}.

    Args:
        logprobs: under π_θ at the rollout prompt; the gradient flows through these alone.
        rollout_logprobs: of the same tokens under π_roll at the rollout prompt, same shape.
        advantages: A, same shape.
        clip_low: from 0 to 1.
        clip_high: at least 0; infinite for no upper clip.

    Returns:
        The loss of each token, in the shape of the inputs; float32, or float64 for float64
        logprobs. With r = 1 it is exactly −A.

    Raises:
        NumericsError: empty, different shapes, NaN or infinite input, a clip out of range.
    """
    if not 0 <= clip_low <= 1:
        raise NumericsError(f"clip_low = {clip_low!r}: must be from 0 to 1")
    if math.isnan(clip_high) or clip_high < 0:
        raise NumericsError(f"clip_high = {clip_high!r}: must be at least 0")
    check_same_shape(logprobs=logprobs, rollout_logprobs=rollout_logprobs, advantages=advantages)
    check_values("logprobs", logprobs)
    check_values("rollout_logprobs", rollout_logprobs)
    check_values("advantages", advantages)
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    behaviour = rollout_logprobs.detach().to(dtype)
    signal = advantages.detach().to(dtype)
    log_ratio = (logprobs.to(dtype) - behaviour).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * signal, clipped * signal)


def token_scales(
    token_counts_S: Sequence[int],
    rollouts_S: Sequence[int],
    aggregate: Literal["token", "sequence", "constant"] | str = "token",
    constant_length: int = 0,
) -> Tensor:
    """What each trained token of each of S samples counts in the batch loss.

    With N trained tokens in R rollouts:

    - "token": 1 / N, every token alike (DAPO, arXiv 2503.14476);
    - "sequence": 1 / (R · trained tokens of its rollout), every rollout alike (GRPO);
    - "constant": 1 / (R · constant_length), no length bias (Dr. GRPO, arXiv 2503.20783).

    R counts rollouts, not samples: a rollout that was split counts once, and its length is the
    sum over its pieces. A rollout without a trained token counts in R; its scale is 0.

    Args:
        token_counts_S: trained tokens of each sample (its loss mask's sum).
        rollouts_S: which rollout of the batch each sample belongs to (`Sample.rollout`).
        aggregate: "token", "sequence" or "constant".
        constant_length: L in tokens, needed by "constant", ignored by the others.

    Returns:
        scales_S in float64: one coefficient a sample, alike for all its trained tokens.

    Raises:
        NumericsError: no sample, no trained token at all, a negative count, lists of different
            lengths, an unknown `aggregate`, or "constant" without a length.
    """
    if aggregate not in AGGREGATES:
        known = ", ".join(map(repr, AGGREGATES))
        raise NumericsError(f"aggregate = {aggregate!r}: must be one of {known}")
    if aggregate == "constant" and constant_length < 1:
        raise NumericsError(
            f"constant_length = {constant_length!r}: aggregate = 'constant' needs at least 1"
        )
    if len(token_counts_S) != len(rollouts_S):
        raise NumericsError(
            f"{len(token_counts_S)} token_counts_S but {len(rollouts_S)} rollouts_S: "
            "each sample needs both"
        )
    if any(count < 0 for count in token_counts_S):
        raise NumericsError(f"token_counts_S = {list(token_counts_S)}: must be at least 0")
    length_of: Counter[int] = Counter()
    for rollout, count in zip(rollouts_S, token_counts_S, strict=True):
        length_of[rollout] += count
    tokens, rollouts = sum(token_counts_S), len(length_of)
    if tokens == 0:
        raise NumericsError("token_counts_S: the batch has no trained token")
    if aggregate == "token":
        scale_of = {rollout: 1.0 / tokens for rollout in length_of}
    elif aggregate == "sequence":
        scale_of = {r: 1.0 / (rollouts * n) if n else 0.0 for r, n in length_of.items()}
    else:
        scale_of = {rollout: 1.0 / (rollouts * constant_length) for rollout in length_of}
    scales = [scale_of[r] if length_of[r] else 0.0 for r in rollouts_S]
    return torch.tensor(scales, dtype=torch.float64)
