"""GRPO and the numbers of RTI: triggers, the perplexity gate, weighters and the objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_grpo.gate import PerplexityGate
from rti_grpo.objective import Grpo
from rti_grpo.triggers import AllFailed, Always, BelowRate, Never, Resample
from rti_grpo.weighters import CalibrationWeighter, NoWeighter

__all__ = [
    "AllFailed",
    "Always",
    "BelowRate",
    "CalibrationWeighter",
    "Grpo",
    "Never",
    "NoWeighter",
    "PerplexityGate",
    "Resample",
]


@hookimpl
def rti_triggers() -> Mapping[str, Any]:
    """Triggers by name."""
    return {
        "all-failed": AllFailed,
        "never": Never,
        "always": Always,
        "below-rate": BelowRate,
        "resample": Resample,
    }


@hookimpl
def rti_gates() -> Mapping[str, Any]:
    """Gates by name."""
    return {"perplexity": PerplexityGate}


@hookimpl
def rti_weighters() -> Mapping[str, Any]:
    """Weighters by name."""
    return {"calibration": CalibrationWeighter, "none": NoWeighter}


@hookimpl
def rti_objectives() -> Mapping[str, Any]:
    """Objectives by name."""
    return {"grpo": Grpo}
