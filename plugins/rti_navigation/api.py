"""A map API as public ones are: search, surroundings, directions, weather.

A call is answered with a JSON object. What a model made up, of whatever type, is answered with an
error in the API's words, never with an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import frozen

from rti import Tool
from rti_navigation.names import Name, fold
from rti_navigation.world import LISTED, City, Place, World

MODES = {
    "driving": (135, 83),
    "walking": (120, 13),
    "bicycling": (125, 42),
    "transit": (150, 61),
}
"""Per cent of the straight line that a way is, and decimetres a second."""

MOST_WAYPOINTS, MOST_AROUND = 16, 10
MOST_TEXT = 200
"""Longest text that the API takes."""
MOST_RADIUS_M, MOST_ON_FOOT_M = 50_000, 100_000

_TEXT = {"type": "string"}
TOOLS = (
    Tool(
        "poi_search",
        "Search places by name. Without a region it searches the whole country and lists the best "
        "known places first.",
        {
            "type": "object",
            "properties": {
                "address": {**_TEXT, "description": "Name of the place."},
                "region": {**_TEXT, "description": "City to search in, by its name."},
            },
            "required": ["address"],
        },
    ),
    Tool(
        "around_search",
        "List places around a location, the nearest first.",
        {
            "type": "object",
            "properties": {
                "location": {**_TEXT, "description": "longitude,latitude"},
                "radius": {"type": "integer", "description": f"Metres, 1 to {MOST_RADIUS_M}."},
                "keyword": {**_TEXT, "description": "Words that the names must have."},
                "region": {**_TEXT, "description": "City to search in, by its name."},
            },
            "required": ["location", "radius"],
        },
    ),
    Tool(
        "direction",
        "Plan a route between places, by way of waypoints in the given order. Takes ids of places "
        "as the searches return them.",
        {
            "type": "object",
            "properties": {
                "origin": {**_TEXT, "description": "Id of the place to start from."},
                "destination": {**_TEXT, "description": "Id of the place to go to."},
                "mode": {**_TEXT, "enum": list(MODES)},
                "waypoints": {
                    "type": "array",
                    "items": _TEXT,
                    "description": "Ids of the places in between, in order.",
                },
            },
            "required": ["origin", "destination", "mode"],
        },
    ),
    Tool(
        "weather",
        "The weather in a city today.",
        {
            "type": "object",
            "properties": {"city": {**_TEXT, "description": "Name of the city."}},
            "required": ["city"],
        },
    ),
)
_KNOWN = {tool.name: tuple(tool.parameters["properties"]) for tool in TOOLS}


class Refused(Exception):
    """The API does not do that. The code is short, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@frozen
class Route:
    """A way: metres and seconds of each leg."""

    metres: tuple[int, ...]
    seconds: tuple[int, ...]

    @property
    def distance(self) -> int:
        """Metres in all."""
        return sum(self.metres)

    @property
    def duration(self) -> int:
        """Seconds in all."""
        return sum(self.seconds)


def route(stops: Sequence[Place], mode: str) -> Route:
    """The way from stop to stop, in whole numbers: alike on every machine."""
    percent, speed = MODES[mode]
    metres = tuple(
        math.isqrt((a.x - b.x) ** 2 + (a.y - b.y) ** 2) * percent // 100 for a, b in pairwise(stops)
    )
    return Route(metres, tuple(m * 10 // speed for m in metres))


def length(metres: int, language: str) -> str:
    """A distance as people write it: 12.4 km, 820 m."""
    small, large = ("米", "公里") if language == "zh" else ("m", "km")
    if metres < 1000:
        return f"{metres} {small}"
    return f"{(metres + 50) // 1000}.{(metres + 50) // 100 % 10} {large}"


def span(seconds: int, language: str) -> str:
    """A duration as people write it: 1 h 5 min."""
    hour, minute, second = ("小时", "分钟", "秒") if language == "zh" else ("h", "min", "s")
    if seconds < 60:
        return f"{seconds} {second}"
    hours, minutes = divmod((seconds + 30) // 60, 60)
    parts = [f"{hours} {hour}"] if hours else []
    return " ".join([*parts, f"{minutes} {minute}"] if minutes or not hours else parts)


@frozen
class Answer:
    """What a call came to: its checked arguments, and the result or the error."""

    arguments: Mapping[str, Any]
    result: Mapping[str, Any]
    code: str = ""
    """The code of the error, if it is one."""


@frozen
class MapApi:
    """The API over a world, answering in one language. It has no state."""

    world: World
    language: str

    def call(self, name: str, arguments: object) -> Answer:
        """Answer a call."""
        checked: dict[str, Any] = {}
        try:
            functions: Mapping[str, Callable[[Mapping[str, Any], dict[str, Any]], Any]] = {
                "poi_search": self._poi_search,
                "around_search": self._around_search,
                "direction": self._direction,
                "weather": self._weather,
            }
            if name not in functions:
                raise Refused("UNKNOWN_TOOL", f"There is no such tool. Use {', '.join(functions)}.")
            return Answer(checked, functions[name](_object(name, arguments), checked))
        except Refused as refusal:
            error = {"code": refusal.code, "message": str(refusal)}
            return Answer(checked, {"error": error}, refusal.code)

    def city(self, text: str) -> City | None:
        """The city of that name: 海澜, 海澜市, Hailan, with a district behind it or not."""
        wanted = fold(text)
        for city in self.world.cities:
            zh, en = fold(city.stem.zh), fold(city.stem.en)
            if wanted.startswith(zh) or wanted in (en, f"{en}city"):
                return city
            if re.match(rf"{re.escape(city.stem.en)}(?: city)?,", text.strip(), re.IGNORECASE):
                return city
        return None

    def _poi_search(self, given: Mapping[str, Any], checked: dict[str, Any]) -> Any:
        address = _text(given, "address")
        city = self._region(given, "region")
        if city is None:
            address, city = self._city_in(address)
        checked.update(address=address, city=city.index if city else None)
        found = self._found(address, city)
        return {"pois": [self._shown(place) for place in found[:LISTED]]}

    def _found(self, address: str, city: City | None) -> list[Place]:
        """Best known first; in one city, the most alike first."""
        alike = self.world.index.alike(address)
        wanted = fold(address)
        hits = [(self.world.places[p], n) for p, n in alike.items()]
        if city is None:
            hits.sort(key=lambda hit: (-hit[0].heat, hit[0].id))
        else:
            hits = [hit for hit in hits if hit[0].city == city.index]
            hits.sort(key=lambda h: (not called(h[0], wanted), -h[1], -h[0].heat, h[0].id))
        return [place for place, _ in hits]

    def _around_search(self, given: Mapping[str, Any], checked: dict[str, Any]) -> Any:
        x, y = _point(_text(given, "location"))
        radius = _radius(given.get("radius"))
        keyword = _text(given, "keyword", optional=True)
        city = self._region(given, "region")
        checked.update(x=x, y=y, radius=radius, keyword=keyword, city=city.index if city else None)
        places: Iterable[Place] = self.world.places
        if keyword:
            places = [self.world.places[p] for p in self.world.index.alike(keyword)]
        near = [
            ((place.x - x) ** 2 + (place.y - y) ** 2, place.id, place)
            for place in places
            if city is None or place.city == city.index
        ]
        near = sorted(item for item in near if item[0] <= radius**2)[:MOST_AROUND]
        return {"pois": [{**self._shown(p), "distance": math.isqrt(d)} for d, _, p in near]}

    def _direction(self, given: Mapping[str, Any], checked: dict[str, Any]) -> Any:
        mode = _text(given, "mode").strip()
        ids = [
            _text(given, "origin").strip(),
            *_waypoints(given.get("waypoints")),
            _text(given, "destination").strip(),
        ]
        if mode not in MODES:
            raise Refused("INVALID_PARAMETER", f"mode must be one of {', '.join(MODES)}.")
        stops = [self.world.by_id.get(i) for i in ids]
        known = [stop for stop in stops if stop is not None]
        checked.update(mode=mode, stops=[stop.id if stop else None for stop in stops])
        if len(known) < len(stops):
            raise Refused(
                "INVALID_ID",
                "origin, destination and waypoints must be ids of places that a search returned.",
            )
        way = route(known, mode)
        if mode in ("walking", "bicycling") and max(way.metres) > MOST_ON_FOOT_M:
            raise Refused("OVER_DIRECTION_RANGE", f"The places are too far apart for {mode}.")
        return self._way(known, mode, way)

    def _way(self, stops: Sequence[Place], mode: str, way: Route) -> Any:
        names = [stop.name.within(self.language) for stop in stops]
        return {
            "mode": mode,
            "distance": way.distance,
            "distance_text": length(way.distance, self.language),
            "duration": way.duration,
            "duration_text": span(way.duration, self.language),
            "legs": [
                {
                    "from": a,
                    "to": b,
                    "distance_text": length(m, self.language),
                    "duration_text": span(s, self.language),
                }
                for a, b, m, s in zip(names, names[1:], way.metres, way.seconds, strict=False)
            ],
        }

    def _weather(self, given: Mapping[str, Any], checked: dict[str, Any]) -> Any:
        city = self._region(given, "city")
        if city is None:
            raise Refused("INVALID_PARAMETER", "city must be the name of a city.")
        checked.update(city=city.index)
        return {
            "city": city.name.within(self.language),
            "weather": city.weather.within(self.language),
            "temperature": city.celsius,
        }

    def _region(self, given: Mapping[str, Any], key: str) -> City | None:
        text = _text(given, key, optional=True)
        if not text:
            return None
        city = self.city(text)
        if city is None:
            raise Refused("INVALID_REGION", f"{key} must be the name of a city.")
        return city

    def _city_in(self, address: str) -> tuple[str, City | None]:
        """A name that has its city before or behind it ("海澜东涌广场"), taken apart."""
        text = address.strip()
        lower = text.casefold()
        for city in self.world.cities:
            if city.stem.zh not in text and city.stem.en.casefold() not in lower:
                continue
            zh, en = re.escape(city.stem.zh), re.escape(city.stem.en)
            for pattern in (
                rf"(?:{zh}市?|{en}\b(?: city)?)[\s,，的]*(?P<rest>.+)",
                rf"(?P<rest>.+?)[\s,，(（]+(?:in )?(?:{zh}市?|{en}(?: city)?)[)）]?",
            ):
                found = re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL)
                if found and fold(found["rest"]):
                    return found["rest"], city
        return address, None

    def _shown(self, place: Place) -> dict[str, Any]:
        name: Callable[[Name], str] = lambda n: n.within(self.language)  # noqa: E731
        return {
            "id": place.id,
            "name": name(place.name),
            "location": place.location,
            "cityname": name(self.world.city_of(place).name),
            "adname": name(place.district),
            "address": name(place.address),
            "typecode": place.typecode,
        }


def called(place: Place, folded: str) -> bool:
    """Whether a place bears exactly this folded name, in either language."""
    return folded in (fold(place.name.zh), fold(place.name.en))


def _object(name: str, arguments: object) -> Mapping[str, Any]:
    if not isinstance(arguments, Mapping):
        raise Refused("INVALID_PARAMETER", "The arguments must be a JSON object.")
    for key in arguments:
        if key not in _KNOWN[name]:
            raise Refused("INVALID_PARAMETER", f"{name} takes {', '.join(_KNOWN[name])} only.")
    return arguments


def _text(given: Mapping[str, Any], key: str, optional: bool = False) -> str:
    value = given.get(key)
    if optional and (value is None or value == ""):
        return ""
    if not isinstance(value, str) or not value.strip():
        raise Refused("INVALID_PARAMETER", f"{key} must be a text that is not empty.")
    if len(value) > MOST_TEXT:
        raise Refused("INVALID_PARAMETER", f"{key} must have at most {MOST_TEXT} characters.")
    return value


def _waypoints(value: object) -> list[str]:
    """Ids in between: a list, or, as maps take them, a text with `;` between them."""
    if isinstance(value, str):
        value = [part for part in re.split(r"[;,|]", value[: MOST_TEXT + 1]) if part.strip()]
    if value is None:
        value = []
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise Refused("INVALID_PARAMETER", "waypoints must be a list of ids.")
    if len(value) > MOST_WAYPOINTS:
        raise Refused("INVALID_PARAMETER", f"There may be at most {MOST_WAYPOINTS} waypoints.")
    return [v.strip() for v in value]


def _radius(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value.strip()):
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 1 <= value <= MOST_RADIUS_M
    ):
        raise Refused("INVALID_PARAMETER", f"radius must be metres, from 1 to {MOST_RADIUS_M}.")
    return int(value)


def _point(text: str) -> tuple[int, int]:
    """Metres of "longitude,latitude"."""
    found = re.fullmatch(
        r"\s*([0-9]{1,3}(?:\.[0-9]{1,8})?)\s*,\s*([0-9]{1,3}(?:\.[0-9]{1,8})?)\s*", text
    )
    if found is None:
        raise Refused("INVALID_PARAMETER", "location must be longitude,latitude in degrees.")
    return _metres(found[1], 100), _metres(found[2], 20)


def _metres(degree: str, origin: int) -> int:
    whole, _, rest = degree.partition(".")
    return (int(whole) - origin) * 100_000 + int(f"{rest:0<5}"[:5])
