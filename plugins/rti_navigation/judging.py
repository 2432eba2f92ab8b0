"""What success is, by rule, and what of it Validator and Verifier may see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from rti import Evidence
from rti_navigation import answers
from rti_navigation.api import Answer, Route, length, route, span
from rti_navigation.names import fold
from rti_navigation.tasks import Journey, Stop
from rti_navigation.wording import HINTS
from rti_navigation.world import World


@frozen
class Called:
    """A call: the turn it was made in, the tool, and the API's answer."""

    turn: int
    name: str
    answer: Answer

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the places that it listed."""
        return frozenset(poi["id"] for poi in self.answer.result.get("pois", ()))

    @property
    def stops(self) -> Sequence[str | None]:
        """Ids of origin, waypoints and destination, None for one that no place has."""
        stops: Sequence[str | None] = self.answer.arguments.get("stops", ())
        return stops


@frozen
class Trial:
    """All that an episode is judged by."""

    journey: Journey
    world: World
    calls: Sequence[Called]
    answer: str | None
    turns: int

    @property
    def last(self) -> Called | None:
        """The last call of `direction`, whether it was answered or refused."""
        return next((c for c in reversed(self.calls) if c.name == "direction"), None)

    @property
    def way(self) -> Route:
        """The right route of a task that has one."""
        places = [self.world.by_id[stop.id] for stop in self.journey.stops if stop.id]
        return route(places, self.journey.mode(self.world))

    def shown(self, stop: Stop, before: int) -> bool:
        """Whether a result before that turn listed the place."""
        return any(stop.id in call.ids for call in self.calls if call.turn < before)

    def looked_for(self, stop: Stop, before: int) -> bool:
        """Whether it was searched for by its name in its city before that turn."""
        return any(
            call.name == "poi_search"
            and not call.answer.code
            and call.answer.arguments["city"] == self.journey.city
            and fold(stop.name) in fold(call.answer.arguments["address"])
            for call in self.calls
            if call.turn < before
        )


def solved(trial: Trial) -> bool:
    """Whether the task is solved."""
    return trial.answer is not None and all(rubric["met"] for rubric in rubrics(trial))


def rubrics(trial: Trial) -> list[dict[str, Any]]:
    """What success needs, each with whether it is met, the turn to blame, and a hint."""
    if (missing := trial.journey.missing) is not None:
        return list(_without_route(trial, missing))
    return list(_with_route(trial))


def _with_route(trial: Trial) -> Iterator[dict[str, Any]]:
    journey, last = trial.journey, trial.last
    hints = HINTS[journey.language]
    blamed = last.turn if last else _final(trial)
    stops = last.stops if last else ()
    count = len(stops) == len(journey.stops)
    for number, stop in enumerate(journey.stops):
        hint = hints["choose" if last and trial.shown(stop, last.turn) else "again"]
        yield _rubric(
            f"the route has, in place {number + 1} of {len(journey.stops)}, the place in "
            f"{_city(trial)} that is called exactly {stop.name}",
            count and stops[number] == stop.id,
            blamed,
            (hint if count else hints["stops" if last else "no-route"]).format(name=stop.name),
        )
    right = journey.mode(trial.world)
    yield _rubric(
        f"the route is for {_mode(journey)}",
        last is not None and last.answer.arguments.get("mode") == right,
        blamed,
        hints["mode"],
    )
    way = trial.way
    yield _rubric(
        f"the final answer states the total {journey.asks} of that route, and no other",
        answers.states(
            trial.answer or "",
            journey.asks,
            *(
                (way.distance, way.metres)
                if journey.asks == "distance"
                else (way.duration, way.seconds)
            ),
        ),
        _final(trial),
        hints[journey.asks],
    )


def _city(trial: Trial) -> str:
    """The city as success is put in words; what the user leaves to be found out is not told."""
    journey = trial.journey
    if journey.landmark:
        return f"the city of {journey.landmark}"
    return trial.world.cities[journey.city].name.within(journey.language)


def _mode(journey: Journey) -> str:
    if journey.dry == journey.wet:
        return journey.dry
    return f"{journey.wet} if it rains in the city, else for {journey.dry}"


def _without_route(trial: Trial, missing: Stop) -> Iterator[dict[str, Any]]:
    """Who has not looked cannot know, and who always refuses is right about few tasks."""
    journey = trial.journey
    hints = {key: text.format(name=missing.name) for key, text in HINTS[journey.language].items()}
    city = _city(trial)
    planned = next((c for c in trial.calls if c.name == "direction" and not c.answer.code), None)
    turn = planned.turn if planned else trial.turns
    looked = trial.looked_for(missing, trial.turns)
    yield _rubric(
        f"no route is planned, since there is no {missing.name} in {city}",
        planned is None,
        planned.turn if planned else None,
        hints["missing" if trial.looked_for(missing, turn) else "look"],
    )
    yield _rubric(
        f"{missing.name} was searched for in {city}", looked, _final(trial), hints["look"]
    )
    others = [stop.name for stop in journey.stops if stop is not missing]
    yield _rubric(
        f"the final answer says that {missing.name} was not found, and says so of no other place",
        answers.says_missing(trial.answer or "", missing.name, others),
        _final(trial),
        hints["say"],
    )


def _rubric(name: str, met: bool, by_turn: int | None, hint: str) -> dict[str, Any]:
    return {"name": name, "met": met, "by_turn": by_turn, "hint": hint}


def _final(trial: Trial) -> int | None:
    """The turn of the final answer."""
    return trial.turns - 1 if trial.answer is not None else None


def evidence(trial: Trial, k: int) -> Evidence:
    """The rubrics, and the facts by which `rti_rubric` judges turn `k`.

    A call of `direction` that another one follows does no harm, so that only the last is judged.
    """
    judged = rubrics(trial)
    journey = trial.journey
    hints = HINTS[journey.language]
    facts: dict[str, Any] = {
        "rubrics": judged,
        "directions": {"no-exact-match": hints["no-exact-match"]},
    }
    last = trial.last
    unseen = [stop for stop in journey.stops if not trial.shown(stop, k)]
    if journey.missing is None and unseen and (last is None or last.turn <= k):
        facts["exact_match"] = {
            "name": unseen[0].name,
            "search": ["poi_search", "around_search"],
            "commit": ["direction"],
        }
    lines = ["Success needs all of this:"]
    lines += [f"- {r['name']}: {'met' if r['met'] else 'not met'}." for r in judged]
    lines.append("The last call of direction counts, and a turn without a tool call is the answer.")
    return Evidence("\n".join(lines), facts)


def privileged(trial: Trial) -> tuple[str, ...]:
    """Ids and locations of the right places, distance and duration, a city that was not said."""
    journey = trial.journey
    places = [trial.world.by_id[stop.id] for stop in journey.stops if stop.id]
    facts = [text for place in places for text in (place.id, place.location)]
    if journey.missing is None:
        way, language = trial.way, journey.language
        facts += [f"{way.distance} m", length(way.distance, language)]
        facts += [f"{way.duration} s", span(way.duration, language)]
    if journey.landmark:
        facts.append(trial.world.cities[journey.city].stem.within(journey.language))
    return tuple(facts)
