"""The maths, as pure functions on torch tensors: one sequence, one group or one batch each.

This is the one room of the core that imports torch. Suffixes name dimensions: `_T` tokens,
`_G` rollouts of a group, `_S` samples of a batch. Bad input is a `NumericsError` that names it.
"""

from rti.ops.advantage import group_advantages
from rti.ops.divergence import kl_estimate
from rti.ops.gating import admits, perplexity
from rti.ops.importance import truncated_weights
from rti.ops.loss import ppo_clip_loss, token_scales
from rti.ops.weighting import calibration_weights

__all__ = [
    "admits",
    "calibration_weights",
    "group_advantages",
    "kl_estimate",
    "perplexity",
    "ppo_clip_loss",
    "token_scales",
    "truncated_weights",
]
