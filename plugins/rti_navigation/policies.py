"""Scripted policies: what good and bad habits come to in these cities.

Each is a function of a session, as a reference agent is. They are told what the user's words say
(names, mode, city where it is said), which is reading and not what they are about; everything else
they see as a policy does, in what the API returned. None knows which place is right but `gold`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rti import Message, Session, ToolCall
from rti_navigation.names import fold
from rti_navigation.session import NavigationSession
from rti_navigation.wording import SAY

Poi = Mapping[str, Any]
Choose = Callable[[NavigationSession, str], "Poi | ToolCall | None"]
"""A place for a name; or the search to be made first; None when there is no such place."""


def noop(session: Session) -> Message:
    """Say a friendly word and do nothing."""
    assert isinstance(session, NavigationSession)
    return Message("assistant", SAY[session.setting.journey.language]["noop"])


def gold(session: Session) -> Message:
    """Search each name in the right city at once, and plan the right route."""
    return _act(session, _in_the_right_city)


def first_hit(session: Session) -> Message:
    """Take whatever a search lists first."""
    return _act(session, _first)


def exact_match(session: Session) -> Message:
    """Take the first result that bears exactly the name; where there is none, the first."""
    return _act(session, _exact)


def search_again(session: Session) -> Message:
    """Where no result bears the name in the user's city, search again with the city."""
    return _act(session, _again)


def always_refuse(session: Session) -> Message:
    """Search all names in the city, whatever comes back, and say that the first was not found."""
    return _act(session, _refuse)


REFERENCES: Mapping[str, Callable[[Session], Message]] = {
    "gold": gold,
    "noop": noop,
    "first-hit": first_hit,
    "exact-match": exact_match,
    "search-again": search_again,
    "always-refuse": always_refuse,
}
POLICIES = ("first-hit", "exact-match", "search-again", "always-refuse", "noop")
"""Those of `rti navigation policies`."""


def _act(session: Session, choose: Choose) -> Message:
    """Look the places up, then the weather if it matters, plan the route, answer."""
    assert isinstance(session, NavigationSession)
    journey = session.setting.journey
    say = SAY[journey.language]
    chosen = list[Poi]()
    for stop in journey.stops:
        found = choose(session, stop.name)
        if isinstance(found, ToolCall):
            return _calls(found)
        if found is None:
            city = _city(session)
            return Message("assistant", say["missing"].format(name=stop.name, city=city))
        chosen.append(found)
    mode = _mode(session)
    if isinstance(mode, ToolCall):
        return _calls(mode)
    way = _result(session, "direction")
    if way is None:
        return _calls(_direction([poi["id"] for poi in chosen], mode))
    if "error" in way:
        return Message("assistant", say["lost"])
    return Message("assistant", say[journey.asks].format_map(way))


def _calls(call: ToolCall) -> Message:
    return Message("assistant", tool_calls=(call,))


def _direction(ids: Sequence[str], mode: str) -> ToolCall:
    origin, *between, destination = ids
    arguments = {"origin": origin, "destination": destination, "mode": mode}
    return ToolCall("direction", {**arguments, **({"waypoints": between} if between else {})})


def _mode(session: NavigationSession) -> str | ToolCall:
    journey = session.setting.journey
    if journey.dry == journey.wet:
        return journey.dry
    weather = _result(session, "weather")
    if weather is None:
        return ToolCall("weather", {"city": _city(session)})
    said = str(weather.get("weather", ""))
    return journey.wet if "雨" in said or "rain" in said else journey.dry


def _result(session: NavigationSession, tool: str) -> Mapping[str, Any] | None:
    """What the last call of a tool returned."""
    return next((c.answer.result for c in reversed(session.calls) if c.name == tool), None)


def _found(session: NavigationSession, name: str, region: str = "") -> Sequence[Poi] | ToolCall:
    """The results of a search that has been made, or the search."""
    wanted = session.api.city(region) if region else None
    for call in session.calls:
        given = call.answer.arguments
        if (
            call.name == "poi_search"
            and given.get("address") == name
            and given.get("city") == (wanted.index if wanted else None)
        ):
            return list(call.answer.result["pois"])
    return ToolCall("poi_search", {"address": name, **({"region": region} if region else {})})


def _named(pois: Sequence[Poi], name: str, city: str = "") -> Poi | None:
    """The first of these that bears the name, in the city if one is given."""
    for poi in pois:
        if fold(poi["name"]) == fold(name) and fold(poi["cityname"]).startswith(fold(city)):
            return poi
    return None


def _city(session: NavigationSession) -> str:
    """The user's city: as said, or that of the landmark once it has been looked up."""
    journey = session.setting.journey
    if journey.said:
        return journey.said
    found = _found(session, journey.landmark)
    poi = None if isinstance(found, ToolCall) else _named(found, journey.landmark)
    return str(poi["cityname"]) if poi else ""


def _first(session: NavigationSession, name: str) -> Poi | ToolCall | None:
    found = _found(session, name)
    return found if isinstance(found, ToolCall) else next(iter(found), None)


def _exact(session: NavigationSession, name: str) -> Poi | ToolCall | None:
    found = _found(session, name)
    if isinstance(found, ToolCall):
        return found
    return _named(found, name) or next(iter(found), None)


def _landmark(session: NavigationSession) -> ToolCall | None:
    """The search that tells the city, where it has to be found out."""
    journey = session.setting.journey
    found = _found(session, journey.landmark) if journey.landmark else []
    return found if isinstance(found, ToolCall) else None


def _again(session: NavigationSession, name: str) -> Poi | ToolCall | None:
    found = _landmark(session) or _found(session, name)
    if isinstance(found, ToolCall):
        return found
    city = _city(session)
    return _named(found, name, city) or _by_city(session, name, city)


def _by_city(session: NavigationSession, name: str, city: str) -> Poi | ToolCall | None:
    found = _found(session, name, city)
    return found if isinstance(found, ToolCall) else _named(found, name, city)


def _in_the_right_city(session: NavigationSession, name: str) -> Poi | ToolCall | None:
    """The landmark tells the city to the history, too: nothing is known out of thin air."""
    found = _landmark(session) or _by_city(session, name, _city(session))
    if found is None or isinstance(found, ToolCall):
        return found
    right = {stop.name: stop.id for stop in session.setting.journey.stops}
    assert found["id"] == right[name], "the right place is the only one of its name in its city"
    return found


def _refuse(session: NavigationSession, name: str) -> Poi | ToolCall | None:
    if (call := _landmark(session)) is not None:
        return call
    for stop in session.setting.journey.stops:
        found = _found(session, stop.name, _city(session))
        if isinstance(found, ToolCall):
            return found
    return None
