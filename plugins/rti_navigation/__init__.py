"""Navigation in made-up cities: places that are easily taken for others, and a map API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_navigation.commands import navigation_command
from rti_navigation.environment import NavigationEnvironment


@hookimpl
def rti_environments() -> Mapping[str, type[NavigationEnvironment]]:
    """The environment `navigation`."""
    return {"navigation": NavigationEnvironment}


@hookimpl
def rti_commands() -> Mapping[str, Any]:
    """`rti navigation policies` and `rti navigation costs`."""
    return {"navigation": navigation_command}
