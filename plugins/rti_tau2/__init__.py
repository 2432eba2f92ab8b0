"""τ²-bench as an environment of `rti`: telecom, with a scripted customer."""

from __future__ import annotations

from collections.abc import Mapping

from rti import hookimpl
from rti_tau2.environment import Tau2Environment


@hookimpl
def rti_environments() -> Mapping[str, type[Tau2Environment]]:
    """The environment `tau2`."""
    return {"tau2": Tau2Environment}
