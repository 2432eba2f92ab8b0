"""Tasks: who asks for which way, and what is right. Drawn by a seed, one generator a task."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs
from attrs import frozen

from rti import Task
from rti_navigation.api import MODES
from rti_navigation.wording import LANGUAGES, request
from rti_navigation.world import City, Scene, World, build

FAMILIES = {
    "plain": 4,
    "crowded": 29,
    "buried": 25,
    "twin": 17,
    "inferred": 15,
    "missing": 10,
}
"""Families, and how many in a hundred tasks are of each: see `_kinds`."""
_OTHERS = {
    "plain": ("plain",),
    "crowded": ("crowded",),
    "buried": ("crowded", "buried"),
    "twin": ("crowded", "buried", "twin"),
    "inferred": ("crowded", "buried", "twin"),
    "missing": ("crowded", "buried", "twin"),
}
"""What the other places of a task may be, beside plain."""
PLAIN = 0.17
"""Share of plain ones among the other places."""
STOPS = {2: 3, 3: 5, 4: 2}
"""Places of a route, and how many in ten tasks have so many."""
BY_WEATHER = 0.15
"""Share of tasks in which the mode depends on the weather."""


@frozen
class Stop:
    """A place that the user names: its kind (see `rti_navigation.world`), and the right id."""

    name: str
    kind: str
    id: str | None


@frozen
class Journey:
    """One task. `said` is the city as the user names it, "" where it must be found out."""

    language: str
    city: int
    cue: str
    said: str
    landmark: str
    stops: tuple[Stop, ...]
    dry: str
    wet: str
    asks: str
    user: str

    @property
    def missing(self) -> Stop | None:
        """The place that does not exist."""
        return next((stop for stop in self.stops if stop.id is None), None)

    def mode(self, world: World) -> str:
        """How the user wants to travel, now that the weather is known."""
        return self.wet if world.cities[self.city].rains else self.dry

    def data(self) -> dict[str, Any]:
        """Plain data, for `Task.data`."""
        return attrs.asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Journey:
        """The journey of a task's data."""
        rest = {f.name: data[f.name] for f in attrs.fields(cls) if f.name != "stops"}
        return cls(stops=tuple(Stop(**stop) for stop in data["stops"]), **rest)


@lru_cache(maxsize=8)
def list_tasks(seed: int, split: str, count: int) -> tuple[Task, ...]:
    """The first `count` tasks of a split: the same for a seed, however many are asked for."""
    world = build(seed, split)
    tasks = []
    for number in range(count):
        family, journey = make(world, random.Random(f"{seed}/{split}/task/{number}"))
        data = {"seed": seed, **journey.data()}
        tasks.append(Task(f"navigation-{seed}-{split}-{number}", family, split, data))
    return tuple(tasks)


def make(world: World, rng: random.Random) -> tuple[str, Journey]:
    """Draw a family and a task of it."""
    family = rng.choices(list(FAMILIES), list(FAMILIES.values()))[0]
    language = rng.choice(LANGUAGES)
    city = rng.choice(world.cities)
    cue = rng.choice(("travel", "landmark")) if family == "inferred" else "said"
    drawn = _Draw(world, rng, city)
    stops = [drawn.stop(kind, language) for kind in _kinds(rng, family)]
    dry = wet = rng.choice(list(MODES))
    if family != "missing" and cue != "landmark" and rng.random() < BY_WEATHER:
        wet = rng.choice([mode for mode in MODES if mode != dry])
    said = _city(rng, city, language)
    other = _city(rng, rng.choice([c for c in world.cities if c is not city]), language)
    landmark = drawn.scene("plain").name.within(language)
    asks = rng.choice(("distance", "duration"))
    facts = {"city": said, "other": other, "landmark": landmark}
    names = [stop.name for stop in stops]
    return family, Journey(
        language,
        city.index,
        cue,
        "" if cue == "landmark" else said,
        landmark if cue == "landmark" else "",
        tuple(stops),
        dry,
        wet,
        asks,
        request(rng, language, cue, facts, names, (dry, wet), asks),
    )


def _kinds(rng: random.Random, family: str) -> Sequence[str]:
    """The kinds of a task's places: one that makes the family, the others no harder than it.

    An inferred city is one that is needed: a place of such a task is buried or a twin.
    """
    number = rng.choices(list(STOPS), list(STOPS.values()))[0]
    key = rng.choice(("buried", "twin")) if family == "inferred" else family
    kinds = [
        "plain" if rng.random() < PLAIN else rng.choice(_OTHERS[family]) for _ in range(number - 1)
    ]
    kinds.insert(rng.randrange(number), key)
    return kinds


def _city(rng: random.Random, city: City, language: str) -> str:
    """A city as people name it."""
    return rng.choice((city.stem, city.name)).within(language)


class _Draw:
    """Draws a city's names without giving one twice."""

    def __init__(self, world: World, rng: random.Random, city: City) -> None:
        self._world, self._rng, self._city = world, rng, city
        self._left: dict[str, list[Scene]] = {}

    def scene(self, kind: str) -> Scene:
        """A name of that kind."""
        if kind not in self._left:
            scenes = list(self._world.scenes[self._city.index, kind])
            self._rng.shuffle(scenes)
            self._left[kind] = scenes
        return self._left[kind].pop()

    def stop(self, kind: str, language: str) -> Stop:
        """A place of that kind, as the user names it."""
        scene = self.scene(kind)
        return Stop(scene.name.within(language), kind, scene.place.id if scene.place else None)
