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
def rti_validators() -> Classes:
    """Validators by name."""


@hookspec
def rti_correctors() -> Classes:
    """Correctors by name."""


@hookspec
def rti_verifiers() -> Classes:
    """Verifiers by name."""


@hookspec
def rti_gates() -> Classes:
    """Gates by name."""


@hookspec
def rti_weighters() -> Classes:
    """Weighters by name."""


@hookspec
def rti_triggers() -> Classes:
    """Triggers by name."""


@hookspec
def rti_environments() -> Classes:
    """Environments by name."""


@hookspec
def rti_renderers() -> Classes:
    """Renderers by name."""


@hookspec
def rti_policies() -> Classes:
    """Policies by name."""


@hookspec
def rti_objectives() -> Classes:
    """Objectives by name."""


@hookspec
def rti_trainers() -> Classes:
    """Trainers by name."""


@hookspec
def rti_reporters() -> Classes:
    """Reporters by name."""


@hookspec
def rti_commands() -> Classes:
    """Sub-commands of `rti` by name: each fills an argparse sub-parser."""
