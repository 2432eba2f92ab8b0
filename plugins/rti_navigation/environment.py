"""The environment `navigation`: tasks in made-up cities, and sessions to live through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import field, frozen

from rti import ConfigError, Message, Session, Task, at_least, option
from rti_navigation import policies
from rti_navigation.names import SPLITS
from rti_navigation.session import NavigationSession, Setting
from rti_navigation.tasks import Journey, list_tasks
from rti_navigation.world import build


@frozen
class NavigationEnvironment:
    """Routes between places of made-up cities, by a map API; outcomes by rule."""

    seed: int = option(0, "Seed of the cities and of the tasks.", at_least(0))
    train_tasks: int = option(1000, "Training tasks.", at_least(1))
    test_tasks: int = option(500, "Held-out tasks, in other cities.", at_least(1))
    max_turns: int = option(24, "Turns after which an episode is cut off.", at_least(1))

    threshold: float = field(init=False, default=1.0)
    leaks_by_design: bool = field(init=False, default=False)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of "train" or "test".

        Raises:
            ConfigError: there is no such split.
        """
        if split not in SPLITS:
            raise ConfigError(
                f"[environment] navigation has no split {split!r}; it has {', '.join(SPLITS)}."
            )
        count = self.train_tasks if split == "train" else self.test_tasks
        return list_tasks(self.seed, split, count)

    async def start(self, task: Task) -> NavigationSession:
        """A fresh episode.

        Raises:
            ConfigError: it is no task of this environment and seed.
        """
        if task.data.get("seed") != self.seed or task.split not in SPLITS:
            raise ConfigError(
                f"[environment] navigation: task {task.id!r} is none of seed {self.seed}: take one "
                "of tasks()"
            )
        world = build(self.seed, task.split)
        return NavigationSession(Setting(task, Journey.of(task.data), world, self.max_turns))

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        """`gold` and `noop`, and the scripted policies of `rti navigation policies`."""
        return policies.REFERENCES.get(name)
