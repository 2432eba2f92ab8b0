"""`rti doctor`: is this config fit to run, here? Each check is one Finding, with the way out.

The checks know no plug-in: they go through the public protocols, and through methods that a
plug-in may have (`Trainer.score`, `Policy.sleep`, a role's `check`). What a check raises becomes
its finding.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from rti.config import Config
from rti.doctor import configured, environment, episode, memory, policy, renderer, roles
from rti.doctor.finding import LEVELS, Finding, Level, attempt, summary
from rti.doctor.parts import Parts, Settings
from rti.registry import Registry

__all__ = ["LEVELS", "SECTIONS", "Finding", "Level", "Settings", "examine", "summary"]

SECTIONS = ("config", "environment", "renderer", "memory", "policy", "roles")
"""What can be looked at, in the order in which it is."""


async def examine(
    load: Callable[[], Config], registry: Registry, settings: Settings
) -> AsyncIterator[Finding]:
    """Look at what the config names, and yield findings as they come, section by section.

    `load` reads the config; what it raises is a finding too. Errors in a section that was not
    asked for, but that those asked for stand on, are told all the same.
    """
    loaded: list[Config] = []
    for finding in await attempt("loads", lambda: loaded.append(load())):
        yield _in("config", finding)
    if not loaded:
        return
    parts = Parts(loaded[0], registry, settings)
    try:
        async for finding in _sections(parts):
            yield finding
    finally:
        await parts.close()


async def _sections(parts: Parts) -> AsyncIterator[Finding]:
    wants = parts.settings.wants
    async for finding in configured.look(parts):
        if wants("config") or finding.level == "error":
            yield _in("config", finding)
    if wants("environment"):
        async for finding in environment.look(parts):
            yield _in("environment", finding)
    if wants("renderer", "memory", "policy") and parts.tasks:
        for finding in await attempt("loads", renderer.bind, parts):
            if wants("renderer") or finding.level in ("note", "error"):
                yield _in("renderer", finding)
        for finding in await attempt("episode", episode.find, parts):
            yield _in("environment", finding)
        async for finding in renderer.look(parts):
            if wants("renderer"):
                yield _in("renderer", finding)
        async for finding in episode.look(parts):
            if wants("renderer"):
                yield _in("renderer", finding)
    for section, module in (("memory", memory), ("policy", policy), ("roles", roles)):
        if wants(section):
            async for finding in module.look(parts):
                yield _in(section, finding)


def _in(section: str, finding: Finding) -> Finding:
    return Finding(finding.level, finding.check, finding.text, finding.details, section)
