"""The rule veto against leaks of privileged facts and evidence into corrections."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_veto.redteam.command import redteam_command
from rti_veto.veto import LeakVeto

__all__ = ["LeakVeto"]


@hookimpl
def rti_verifiers() -> Mapping[str, Any]:
    """The leak veto."""
    return {"leaks": LeakVeto}


@hookimpl
def rti_commands() -> Mapping[str, Any]:
    """`rti redteam`."""
    return {"redteam": redteam_command}
