"""On-policy distillation: the policy's own rollouts, judged token by token by a teacher."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_opd.objective import Opd

__all__ = ["Opd"]


@hookimpl
def rti_objectives() -> Mapping[str, Any]:
    """Objectives by name."""
    return {"opd": Opd}
