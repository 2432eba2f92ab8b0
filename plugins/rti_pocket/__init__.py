"""Pocket worlds: a telecom desk and a map, small enough that a laptop learns them in minutes."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_pocket.commands import pocket_command
from rti_pocket.environment import PocketEnvironment
from rti_pocket.renderer import PocketRenderer
from rti_pocket.shortcut_environment import ShortcutEnvironment


@hookimpl
def rti_environments() -> Mapping[str, Any]:
    """The pocket worlds."""
    return {"pocket": PocketEnvironment, "pocket-shortcut": ShortcutEnvironment}


@hookimpl
def rti_renderers() -> Mapping[str, Any]:
    """The pocket grammar."""
    return {"pocket": PocketRenderer}


@hookimpl
def rti_commands() -> Mapping[str, Any]:
    """`rti pocket warm-start`."""
    return {"pocket": pocket_command}
