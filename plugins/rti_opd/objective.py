"""The objective of on-policy distillation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen

from rti import Floats, Group, anything, at_least, between, finite, one_of, option

if TYPE_CHECKING:
    from torch import Tensor


@frozen
class Opd:
    """On-policy distillation: a token's advantage is how much likelier the teacher finds it.

        A_t = −coef · (log π_roll(y_t) − log q(y_t)) [+ Â_i · w_t, with `outcome`]
        loss = −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A),  r = π_θ / π_roll

    Thinking Machines Lab, "On-policy distillation" (2025), after arXiv 2306.13649: over tokens that
    the policy sampled the mean of log π − log q is the reverse KL divergence to the teacher q, and
    this gradient lowers it token by token, without a view to later tokens. Outcomes are not needed
    for it, so that groups without a signal are trained on too. With `outcome` the advantages of
    GRPO (`normalise`, `ddof`) come on top.

    Raises:
        ValueError: `aggregate = "constant"` without a `constant_length`.
    """

    extra: ClassVar[str] = "hf"
    every_group: ClassVar[bool] = True

    coef: float = option(1.0, "What the teacher's word counts.", at_least(0), finite)
    outcome: bool = option(False, "Add the outcome's group advantage.", anything)
    normalise: str = option(
        "std", "Divide centred outcomes by the group's std, or by nothing.", one_of("std", "none")
    )
    ddof: int = option(1, "1: unbiased std (G − 1); 0: the population's (G).", between(0, 1))
    clip_low: float = option(0.2, "The ratio is clipped below at 1 − this.", between(0, 1))
    clip_high: float = option(0.2, "The ratio is clipped above at 1 + this.", at_least(0))
    aggregate: str = option(
        "token",
        "What counts alike: every token; every sequence (rollout); or every token over "
        "rollouts × constant_length.",
        one_of("token", "sequence", "constant"),
    )
    constant_length: int = option(
        0, 'Tokens a rollout is divided by under aggregate = "constant".', at_least(0)
    )
    needs: Sequence[str] = field(init=False, default=("teacher",))

    def __attrs_post_init__(self) -> None:
        if self.aggregate == "constant" and self.constant_length < 1:
            raise ValueError(
                f'constant_length = {self.constant_length}: aggregate = "constant" needs at '
                "least 1 (the longest rollout, in tokens)"
            )

    def advantages(self, group: Group) -> Floats:
        """Â, one a rollout; 0 without `outcome`.

        Raises:
            NumericsError: a rollout without an outcome, NaN.
        """
        import torch

        from rti.ops import group_advantages

        outcomes_G = torch.tensor(group.outcomes_G, dtype=torch.float64)
        advantages_G = group_advantages(outcomes_G, self.normalise, self.ddof)
        return tuple(advantages_G.tolist() if self.outcome else [0.0] * len(outcomes_G))

    def token_loss(
        self, logprobs: Tensor, rollout_logprobs: Tensor, advantages: Tensor, teacher: Tensor
    ) -> Tensor:
        """The loss of each token; `teacher` holds log q, its logprobs under the teacher."""
        from rti.ops import ppo_clip_loss

        total = advantages - self.coef * (rollout_logprobs - teacher)
        return ppo_clip_loss(logprobs, rollout_logprobs, total, self.clip_low, self.clip_high)
