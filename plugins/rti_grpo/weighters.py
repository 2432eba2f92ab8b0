"""Token weights of corrected turns."""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import frozen

from rti import Floats, Intervention, NumericsError, at_least, option


def _below_one(value: Any) -> str | None:
    return None if value < 1 else "below 1"


@frozen
class CalibrationWeighter:
    """Weights a token by how much likelier the corrector prompt made it, clipped to 1 ± ε.

    Without a corrector prompt (rules, echo) there is no numerator and every weight is 1.
    """

    extra: ClassVar[str] = "hf"

    epsilon: float = option(
        0.2, "Half-width of the clip range (ε_cal), from 0 to below 1.", at_least(0), _below_one
    )

    def weigh(self, intervention: Intervention) -> Floats:
        """Weights of the T tokens of the correction.

        Raises:
            NumericsError: the intervention was not scored, or its logprobs make no sense.
        """
        rollout_logprobs = _scored("calibration", intervention)
        if intervention.corrector_logprobs is None:
            return (1.0,) * len(rollout_logprobs)

        import torch

        from rti.ops import calibration_weights

        corrector_logprobs_T = torch.tensor(intervention.corrector_logprobs, dtype=torch.float64)
        rollout_logprobs_T = torch.tensor(rollout_logprobs, dtype=torch.float64)
        weights_T = calibration_weights(corrector_logprobs_T, rollout_logprobs_T, self.epsilon)
        return tuple(weights_T.tolist())


@frozen
class NoWeighter:
    """Weights every token 1."""

    def weigh(self, intervention: Intervention) -> Floats:
        """T ones.

        Raises:
            NumericsError: the intervention was not scored.
        """
        return (1.0,) * len(_scored("none", intervention))


def _scored(name: str, intervention: Intervention) -> Floats:
    if not intervention.rollout_logprobs:
        raise NumericsError(f"weighter {name!r}: the intervention has no rollout_logprobs")
    return intervention.rollout_logprobs
