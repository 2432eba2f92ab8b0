"""The GRPO objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from rti import Floats, Group, NumericsError, at_least, between, one_of, option

if TYPE_CHECKING:
    from torch import Tensor


def _no_cap_below_one(value: float) -> str | None:
    return None if value == 0 or value >= 1 else "0 for none, or at least 1"


@frozen
class Grpo:
    """Group-relative advantages and the PPO-clipped loss.

        Â_i = (R_i − mean(R)) / std(R)
        loss = −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A),  r = π_θ / π_roll,  A = Â_i·w

    GRPO (arXiv 2402.03300). Published variants are options: Dr. GRPO (arXiv 2503.20783) is
    `normalise = "none"`, `aggregate = "constant"`; DAPO's loss (arXiv 2503.14476) is `aggregate =
    "token"`, `clip_high = 0.28`.

    With `tis = C` the ratio is taken against π_old, the trainer's own logprobs before the batch's
    first update, and what π_roll differs from it becomes a weight without a gradient:

        loss = −min(π_old / π_roll, C) · min(r'·A, clip(r')·A),  r' = π_θ / π_old

    That is truncated importance sampling (see `rti.ops.truncated_weights`), for a sampler that is
    not the trainer. Without it r is the whole ratio π_θ / π_roll: nothing is left to correct, but
    the clip then spends its room on the difference of the two. Where both agree the losses are
    the same.

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
    tis: float = option(
        0.0,
        "Truncated importance sampling: the highest weight π_old / π_roll (C, 2 is usual); 0 for "
        "none.",
        _no_cap_below_one,
    )

    def __attrs_post_init__(self) -> None:
        if self.aggregate == "constant" and self.constant_length < 1:
            raise ValueError(
                f'constant_length = {self.constant_length}: aggregate = "constant" needs at '
                "least 1 (the longest rollout, in tokens)"
            )

    @property
    def needs(self) -> Sequence[str]:
        """π_old, with `tis`."""
        return ("old",) if self.tis else ()

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

    def token_loss(
        self,
        logprobs: Tensor,
        rollout_logprobs: Tensor,
        advantages: Tensor,
        old: Tensor | None = None,
    ) -> Tensor:
        """−min(r·A, clip(r)·A) of each token; see `rti.ops.ppo_clip_loss`.

        Raises:
            NumericsError: `tis` without `old`.
        """
        from rti.ops import ppo_clip_loss, truncated_weights

        if self.tis:
            if old is None:
                raise NumericsError(f"objective 'grpo': tis = {self.tis:g} needs π_old a token")
            advantages = advantages * truncated_weights(old, rollout_logprobs, self.tis)
            rollout_logprobs = old
        return ppo_clip_loss(logprobs, rollout_logprobs, advantages, self.clip_low, self.clip_high)
