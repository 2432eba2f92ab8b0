"""The perplexity gate."""

from __future__ import annotations

import math
from typing import ClassVar

from attrs import frozen

from rti import Decision, Intervention, NumericsError, at_least, option


@frozen
class PerplexityGate:
    """Admits a correction whose perplexity under the original rollout prompt is at most δ.

    δ = 0 admits nothing, which is plain GRPO; δ = inf filters by nothing but possibility: a
    token of probability 0 under the rollout prompt is refused at every δ, since neither its
    weight nor its importance ratio has a finite value.
    """

    extra: ClassVar[str] = "hf"

    delta: float = option(5.0, "Highest perplexity admitted (δ); inf filters nothing.", at_least(0))

    def admit(self, intervention: Intervention) -> Decision:
        """Hold PPL_roll(ũ_k) against δ.

        Raises:
            NumericsError: the intervention was not scored, or its logprobs make no sense.
        """
        import torch

        from rti.ops import admits, perplexity

        if intervention.rollout_logprobs is None:
            raise NumericsError("gate 'perplexity': the intervention has no rollout_logprobs")
        logprobs_T = torch.tensor(intervention.rollout_logprobs, dtype=torch.float64)
        value = perplexity(logprobs_T)
        if -math.inf in intervention.rollout_logprobs:
            position = intervention.rollout_logprobs.index(-math.inf)
            reason = f"token {position} has probability 0 under the rollout prompt"
            return Decision(False, value, self.delta, reason)
        if admits(value, self.delta):
            return Decision(True, value, self.delta, f"perplexity {value:.4g} ≤ {self.delta:g}")
        return Decision(False, value, self.delta, f"perplexity {value:.4g} > {self.delta:g}")
