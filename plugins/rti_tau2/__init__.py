"""τ²-bench as an environment of `rti`: telecom, retail and airline, a customer scripted or real."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_tau2.commands import tau2_command
from rti_tau2.environment import Tau2Environment


@hookimpl
def rti_environments() -> Mapping[str, type[Tau2Environment]]:
    """The environment `tau2`."""
    return {"tau2": Tau2Environment}


@hookimpl
def rti_commands() -> Mapping[str, Any]:
    """`rti tau2`."""
    return {"tau2": tau2_command}
