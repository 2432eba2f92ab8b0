"""The LUFFY objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen

from rti import Floats, Group, above, anything, at_least, between, one_of, option

if TYPE_CHECKING:
    from torch import Tensor

EQUAL = 1e-9
"""Outcomes that differ from the mean by less are equal to it but for rounding."""


@frozen
class Luffy:
    """Mixed-policy GRPO: one rollout of a group is a teacher's, the others are the policy's.

        Â_i = R_i − mean(R)
        loss = −A·f(π_θ),  f(p) = p / (p + γ)                        on the teacher's tokens
        loss = −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A)     on the policy's, r = π_θ/π_roll

    LUFFY (J. Yan et al., arXiv 2504.14945). The teacher's probability π_φ is set to 1, so that the
    ratio is π_θ itself; f raises the gradient of its unlikely tokens, and the teacher's are never
    clipped. The mean is over all G rollouts; `split` takes it over the policy's alone (the
    authors' `grpo_split`). There is no std. The authors train with `aggregate = "constant"`.

    Raises:
        ValueError: `aggregate = "constant"` without a `constant_length`.
    """

    extra: ClassVar[str] = "hf"

    gamma: float = option(0.1, "γ of the shaping p / (p + γ).", above(0))
    split: bool = option(False, "Leave the teacher's rollout out of the mean.", anything)
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
    needs: Sequence[str] = field(init=False, default=("demonstrations",))

    def __attrs_post_init__(self) -> None:
        if self.aggregate == "constant" and self.constant_length < 1:
            raise ValueError(
                f'constant_length = {self.constant_length}: aggregate = "constant" needs at '
                "least 1 (the longest rollout, in tokens)"
            )

    def advantages(self, group: Group) -> Floats:
        """Â, one a rollout, from raw outcomes.

        Raises:
            NumericsError: a rollout without an outcome, NaN.
        """
        import torch

        from rti.ops import group_advantages

        outcomes_G = group.outcomes_G
        own = [o for o, r in zip(outcomes_G, group.rollouts, strict=True) if not r.demonstration]
        if not self.split or not own:
            values = torch.tensor(outcomes_G, dtype=torch.float64)
            return tuple(group_advantages(values, "none").tolist())
        mean = math.fsum(own) / len(own)
        return tuple(0.0 if abs(o - mean) < EQUAL else o - mean for o in outcomes_G)

    def token_loss(
        self,
        logprobs: Tensor,
        rollout_logprobs: Tensor,
        advantages: Tensor,
        demonstrations: Tensor,
    ) -> Tensor:
        """The loss of each token; `demonstrations` is 1 on the teacher's, else 0."""
        import torch

        from rti.ops import ppo_clip_loss

        own = ppo_clip_loss(logprobs, rollout_logprobs, advantages, self.clip_low, self.clip_high)
        probs = logprobs.exp()
        theirs = -advantages * probs / (probs + self.gamma)
        return torch.where(demonstrations > 0, theirs, own)
