"""The hooks, one a kind. Each returns a mapping of names to attrs classes.

Hooks are synchronous and import-light: return classes, build nothing.

    from rti import hookimpl

    @hookimpl
    def rti_correctors():
        return {"echo": Echo}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pluggy

PROJECT = "rti"
ENTRY_POINT_GROUP = "rti"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Classes = Mapping[str, Any]


@hookspec
def rti_validators() -> Classes:  # type: ignore[empty-body]
    """Validators by name."""


@hookspec
def rti_correctors() -> Classes:  # type: ignore[empty-body]
    """Correctors by name."""


@hookspec
def rti_verifiers() -> Classes:  # type: ignore[empty-body]
    """Verifiers by name."""


@hookspec
def rti_gates() -> Classes:  # type: ignore[empty-body]
    """Gates by name."""


@hookspec
def rti_weighters() -> Classes:  # type: ignore[empty-body]
    """Weighters by name."""


@hookspec
def rti_triggers() -> Classes:  # type: ignore[empty-body]
    """Triggers by name."""


@hookspec
def rti_environments() -> Classes:  # type: ignore[empty-body]
    """Environments by name."""


@hookspec
def rti_renderers() -> Classes:  # type: ignore[empty-body]
    """Renderers by name."""


@hookspec
def rti_policies() -> Classes:  # type: ignore[empty-body]
    """Policies by name."""


@hookspec
def rti_objectives() -> Classes:  # type: ignore[empty-body]
    """Objectives by name."""


@hookspec
def rti_trainers() -> Classes:  # type: ignore[empty-body]
    """Trainers by name."""


@hookspec
def rti_reporters() -> Classes:  # type: ignore[empty-body]
    """Reporters by name."""


@hookspec
def rti_commands() -> Classes:  # type: ignore[empty-body]
    """Sub-commands of `rti` by name: each fills an argparse sub-parser."""
