"""Distributions for tests of the registry: real `.dist-info` folders and modules on `sys.path`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path,
    name: str,
    modules: Mapping[str, str],
    *,
    version: str = "1.2",
    points: Mapping[str, str] | None = None,
    raw_entry_points: str | None = None,
) -> None:
    """Write modules (source by name) and metadata, as an installer leaves them, into `site`.

    `points` are entry points of group "rti" (name to module); one for each module if not given.
    """
    for module, source in modules.items():
        (site / f"{module}.py").write_text(source, encoding="utf-8")
    lines = [f"{k} = {v}" for k, v in (points or {m: m for m in modules}).items()]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(
        raw_entry_points or "\n".join(["[console_scripts]", "x = x:y", "", "[rti]", *lines, ""])
    )


GATE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from attrs import field, frozen
from rti import Decision, at_least, hookimpl, option

if TYPE_CHECKING:
    from nowhere import Unknown

@frozen
class {cls}:
    '''Refuses long corrections.'''

    tokens: int = option(64, "Most tokens.", at_least(1))
    factor: float = option(1.0, "Times this.", at_least(0))
    seen: Unknown = field(init=False, default=None)

    def admit(self, intervention):
        return Decision(True, 0, self.tokens)

@hookimpl
def rti_gates():
    return {{"{name}": {cls}}}
"""


def gate(name: str, cls: str = "AtMost") -> str:
    """Source of a plug-in that gives one gate."""
    return GATE.format(name=name, cls=cls)
