"""Cities and their places, from a seed. A world is never changed, so that sessions share it.

Places come in scenes, one for each name that a user may ask for:

- plain: what a search of the whole country lists first;
- crowded: a search of the whole country lists better known places of a similar name first, and the
  right one behind them;
- buried: so many better known ones that the right one is not listed;
- twin: another city has a better known place of the very same name;
- missing: the city has no such place; others of a similar name, or another city, do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from attrs import define, field, frozen

from rti_navigation.index import Index
from rti_navigation.names import ANNEXES, MODIFIERS, TYPES, Name, stems

KINDS = ("plain", "crowded", "buried", "twin", "missing")
SCENES = {"plain": 8, "crowded": 10, "buried": 7, "twin": 6, "missing": 4}
"""Scenes of each kind a city."""
CITIES = {"train": 30, "test": 15}
DISTRICTS, STREETS = 4, 6
LISTED = 5
"""Places that a search lists."""

CITY_GRID_M, CITY_RADIUS_M = 150_000, 6_000
_WEATHER = (("晴", "sunny"), ("多云", "cloudy"), ("小雨", "light rain"), ("大雨", "heavy rain"))
_LETTERS, _DIGITS = "ABCDEFGHJKMNPQRSTUVWXYZ", "23456789"


@frozen
class City:
    """A city: its stem (海澜; its name is 海澜市), where it lies, and its weather."""

    index: int
    stem: Name
    x: int
    y: int
    districts: tuple[Name, ...]
    streets: tuple[Name, ...]
    weather: Name
    celsius: int

    @property
    def name(self) -> Name:
        """海澜市, Hailan."""
        return Name(f"{self.stem.zh}市", self.stem.en)

    @property
    def rains(self) -> bool:
        """Whether it rains there."""
        return "rain" in self.weather.en


@frozen
class Place:
    """A place. `x` and `y` are metres; the more `heat`, the better it is known."""

    id: str
    name: Name
    city: int
    district: Name
    address: Name
    typecode: str
    x: int
    y: int
    heat: int

    @property
    def location(self) -> str:
        """Longitude and latitude, as maps write them: 0.00001 degrees are a metre here."""
        return f"{degrees(self.x, 100)},{degrees(self.y, 20)}"


def degrees(metres: int, origin: int) -> str:
    """A coordinate with all its digits."""
    whole, rest = divmod(metres, 100_000)
    return f"{origin + whole}.{rest:05d}"


@frozen
class Scene:
    """A name that a user of `city` may ask for, and the place that is right: None when missing."""

    kind: str
    city: int
    name: Name
    place: Place | None


@frozen(eq=False)
class World:
    """All cities of a split."""

    cities: tuple[City, ...]
    places: tuple[Place, ...] = field(repr=False)
    scenes: Mapping[tuple[int, str], tuple[Scene, ...]] = field(repr=False)
    """By city and kind."""
    by_id: Mapping[str, Place] = field(repr=False)
    index: Index = field(repr=False)

    def city_of(self, place: Place) -> City:
        """The city that a place is in."""
        return self.cities[place.city]


@lru_cache(maxsize=8)
def build(seed: int, split: str) -> World:
    """The world of a split: a tenth of a second, once a process."""
    builder = _Builder(seed, split)
    for city in builder.cities:
        for kind, number in SCENES.items():
            for _ in range(number):
                builder.scene(kind, city)
    places = tuple(builder.places)
    return World(
        tuple(builder.cities),
        places,
        {key: tuple(scenes) for key, scenes in builder.scenes.items()},
        {place.id: place for place in places},
        Index.over([place.name.words for place in places]),
    )


@define
class _Builder:
    """Puts a world together; every draw comes from one generator, in one order."""

    seed: int
    split: str
    rng: random.Random = field(init=False)
    names: Iterator[Name] = field(init=False)
    cities: list[City] = field(init=False)
    places: list[Place] = field(init=False, factory=list)
    scenes: dict[tuple[int, str], list[Scene]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.split}/world")
        self.names = stems(self.seed, self.split)
        self.cities = [self._city(i) for i in range(CITIES[self.split])]

    def _city(self, index: int) -> City:
        row, column = divmod(index, 6)
        return City(
            index,
            next(self.names),
            CITY_GRID_M * (1 + column),
            CITY_GRID_M * (1 + row),
            tuple(next(self.names).then(("区", "District")) for _ in range(DISTRICTS)),
            tuple(next(self.names).then(("路", "Road")) for _ in range(STREETS)),
            Name(*self.rng.choice(_WEATHER)),
            self.rng.randint(4, 34),
        )

    def scene(self, kind: str, city: City) -> None:
        """Add a name that a user may ask for, the place, and those it is taken for."""
        rng, stem = self.rng, next(self.names)
        typed = rng.choice(TYPES)
        wanted = stem.then(typed[:2])
        heat = rng.randint(400, 600)
        place = None if kind == "missing" else self._place(wanted, city, typed[2], heat)
        better = {
            "plain": 0,
            "crowded": rng.randint(1, LISTED - 1),
            "buried": rng.randint(LISTED, LISTED + 3),
            "twin": rng.randint(0, LISTED - 2),
            "missing": rng.randint(1, LISTED + 1),
        }[kind]
        lesser = rng.randint(0, 2)
        similar = self._similar(stem, typed, annex=kind == "crowded")
        for i in range(better + lesser):
            at = self._known(heat) if i < better else heat - rng.randint(1, 300)
            where = city if rng.random() < 0.6 else self._elsewhere(city)
            self._place(next(similar), where, typed[2], at)
        if kind == "twin" or (kind == "missing" and rng.random() < 0.5):
            self._place(wanted, self._elsewhere(city), typed[2], self._known(heat))
        self.scenes.setdefault((city.index, kind), []).append(
            Scene(kind, city.index, wanted, place)
        )

    def _known(self, heat: int) -> int:
        return heat + self.rng.randint(1, 390)

    def _elsewhere(self, city: City) -> City:
        return self.cities[
            (city.index + self.rng.randrange(1, len(self.cities))) % len(self.cities)
        ]

    def _similar(self, stem: Name, typed: Sequence[str], annex: bool) -> Iterator[Name]:
        """Names that hold the stem and the type of another, and are not that one."""
        zh, en, _ = typed
        names = [stem.then(modifier, (zh, en)) for modifier in MODIFIERS]
        self.rng.shuffle(names)
        if annex and self.rng.random() < 0.3:
            names.insert(0, stem.then((zh, en), self.rng.choice(ANNEXES)))
        yield from names

    def _place(self, name: Name, city: City, typecode: str, heat: int) -> Place:
        rng = self.rng
        street, number = rng.choice(city.streets), rng.randint(1, 399)
        place = Place(
            _id(f"{self.seed}/{self.split}/{len(self.places)}"),
            name,
            city.index,
            rng.choice(city.districts),
            Name(f"{street.zh}{number}号", f"{number} {street.en}"),
            typecode,
            city.x + rng.randint(-CITY_RADIUS_M, CITY_RADIUS_M),
            city.y + rng.randint(-CITY_RADIUS_M, CITY_RADIUS_M),
            heat,
        )
        self.places.append(place)
        return place


def _id(key: str) -> str:
    """Ten letters and digits in turn, without those that look alike: B3K7M2X9Q4."""
    raw = blake2b(key.encode(), digest_size=10).digest()
    pairs = zip(raw[::2], raw[1::2], strict=True)
    return "".join(_LETTERS[a % len(_LETTERS)] + _DIGITS[b % len(_DIGITS)] for a, b in pairs)
