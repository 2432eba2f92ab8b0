"""LUFFY: a teacher's rollout in every group."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_luffy.objective import Luffy

__all__ = ["Luffy"]


@hookimpl
def rti_objectives() -> Mapping[str, Any]:
    """Objectives by name."""
    return {"luffy": Luffy}
