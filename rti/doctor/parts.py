"""What a config names, built as far as this machine and the command line allow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from attrs import define, field, frozen

from rti.config import PLUGIN_SECTIONS, Config, PluginSection
from rti.conformance import Play
from rti.errors import RtiError
from rti.interfaces import Context
from rti.registry import Registry
from rti.scoring import maybe
from rti.types import Ids, Task


@frozen
class Settings:
    """What to look at, and how hard.

    Attributes:
        only: sections to look at; empty for all.
        offline: no network, no weights, no GPU.
        split: of the tasks; empty for that of [rollout].
        tasks: most tasks; 0 for all.
        forks: tasks forked at every turn.
        tokens: tokens sampled a prompt.
    """

    only: tuple[str, ...] = ()
    offline: bool = False
    split: str = ""
    tasks: int = 0
    forks: int = 10
    tokens: int = 8

    def wants(self, *sections: str) -> bool:
        """Whether any of these sections is to be looked at."""
        return not self.only or any(section in self.only for section in sections)


@define
class Episode:
    """A reference episode as the renderer sees it; `prompts` are those of its turns."""

    play: Play
    agent: str
    prompts: tuple[Ids, ...] = ()
    tokens: int = 0


@define
class Parts:
    """The parts of a run. One that could not be built is None, and a finding said why."""

    config: Config
    registry: Registry
    settings: Settings
    folder: Path | None = None
    """The model's folder; None where it is not on this machine."""
    tasks: list[Task] = field(factory=list)
    served: Any = None
    """The environment itself, where a stand-in that asks no server is looked at instead."""
    built: dict[str, Any] = field(factory=dict)
    """By section; "verifier.1" where a section names several plug-ins."""
    episode: Episode | None = None
    first_prompt: int = 0
    """Tokens of the longest first prompt that was rendered."""
    renderer_ready: bool = False
    _context: Context | None = field(init=False, default=None)

    @property
    def split(self) -> str:
        """The split whose tasks are looked at."""
        return self.settings.split or self.config.rollout.split

    @property
    def offline(self) -> bool:
        """Whether network, weights and GPU are out of bounds."""
        return self.settings.offline

    def __getitem__(self, section: str) -> Any:
        return self.built.get(section)

    def sections(self) -> Iterator[tuple[str, PluginSection]]:
        """Every plug-in of the config with the name it is built under."""
        for name in PLUGIN_SECTIONS:
            value = getattr(self.config, name)
            if isinstance(value, PluginSection):
                yield name, value
                continue
            for i, section in enumerate(value):
                yield (name if len(value) == 1 else f"{name}.{i}"), section

    def title(self, section: str) -> str:
        """How the report calls a part: "corrector self"."""
        use = dict(self.sections())[section].use
        return f"{section.partition('.')[0]} {use}"

    @property
    def context(self) -> Context:
        """What a run would lend to its plug-ins, once they are built.

        Always the same object: roles find what they share by it. A part that could not be built
        is None in it. There is no folder to write into: a doctor leaves a run's alone.
        """
        if self._context is None:
            config = self.config
            self._context = Context(
                config.run.seed,
                config.model,
                cast(Any, self["policy"]),
                cast(Any, self["renderer"]),
                cast(Any, self["environment"]),
                self["objective"],
                teacher=config.teacher,
            )
        return self._context

    def bind(self, section: str) -> None:
        """Call the part's `bind`, if it has one. A part that fails is dropped.

        Raises:
            RtiError: what the part raised, named by the registry where it is another error.
        """
        part = self[section]
        method = getattr(part, "bind", None)
        if method is None:
            return
        try:
            with self.registry.guard(part):
                method(self.context)
        except RtiError:
            del self.built[section]
            raise

    async def close(self) -> None:
        """End what policy and roles have begun: servers, connections."""
        for part in filter(None, [self.served, *self.built.values()]):
            # The report is what counts; whatever runs on is for that part to tell.
            with contextlib.suppress(RtiError):
                await maybe(part, "close")


def lacks_an_extra(error: BaseException) -> bool:
    """Whether a plug-in failed since something that it imports is not installed here."""
    return isinstance(error.__cause__, ImportError)
