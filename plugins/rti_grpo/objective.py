"""The GRPO objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen

from rti import Floats, Group, NumericsError, at_least, between, one_of, option

if TYPE_CHECKING:
    from torch import Tensor


@frozen
class Grpo:
    """Group-relative advantages and the PPO-clipped loss.

    Published variants are options: Dr. GRPO is `normalise = "none"`, `aggregate = "constant"`;
    DAPO's loss is `aggregate = "token"`, `clip_high = 0.28`.

    Raises:
        ValueError: `aggregate = "constant"` without a `constant_length`.
    """

    extra: ClassVar[str] = "hf"

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
    needs: Sequence[str] = field(init=False, default=())

    def __attrs_post_init__(self) -> None:
        if self.aggregate == "constant" and self.constant_length < 1:
            raise ValueError(
                f'constant_length = {self.constant_length}: aggregate = "constant" needs at '
                "least 1 (the longest rollout, in tokens)"
            )

    def advantages(self, group: Group) -> Floats:
        """Â, one a rollout, from raw outcomes.

        Raises:
            NumericsError: no rollouts, a rollout without an outcome, NaN.
        """
        import torch

        from rti.ops import group_advantages

        outcomes = [rollout.outcome for rollout in group.rollouts]
        if None in outcomes:
            raise NumericsError(
                f"task {group.task.id!r}: rollout {outcomes.index(None)} has no outcome; "
                "rollouts with a fault are dropped before advantages"
            )
        outcomes_G = torch.tensor(outcomes, dtype=torch.float64)
        return tuple(group_advantages(outcomes_G, self.normalise, self.ddof).tolist())

    def token_loss(self, logprobs: Tensor, rollout_logprobs: Tensor, advantages: Tensor) -> Tensor:
        """−min(r·A, clip(r)·A) of each token; see `rti.ops.ppo_clip_loss`."""
        from rti.ops import ppo_clip_loss

        return ppo_clip_loss(logprobs, rollout_logprobs, advantages, self.clip_low, self.clip_high)
