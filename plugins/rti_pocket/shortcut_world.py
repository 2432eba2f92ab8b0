"""The short-cut world as plain rules on words: where acting on a whispered answer always pays.

Two domains, navigation (families N*) and a telecom desk (D*), with three families each:

- E, easy: the first look finds the id. The base policy's habit is right.
- H, hard, one flaw: the first look shows another id, and only a better one (a search with the
  city; the user's own reading) shows the right one.
- V, very hard, two flaws: the better look shows a stale id (moved, locked) which must be checked.
  Putting one turn right is almost never rewarded here, while writing the final id outright is.

Turns are long, as real ones are: the id is one word among seventeen, so a correction that gives it
away does not look surprising. Names are split as in the other pocket worlds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import frozen

from rti_pocket.world import CITIES, IDS, NAMES, Action, Reply
from rti_pocket.world import _pair as pair

EASY = ("NE", "DE")
HARD = ("NH", "DH")
VERY_HARD = ("NV", "DV")
FAMILIES = (*HARD, *VERY_HARD, *EASY)

NAV_VERBS = ("search", "check", "route")
DESK_VERBS = ("read", "ask", "check", "close")
VERBS = tuple(dict.fromkeys((*NAV_VERBS, *DESK_VERBS)))


@frozen
class ShortcutTask:
    """One task with its hidden truth."""

    family: str
    system: str
    user: str
    rubric: str
    gold: str
    """The final id: that of the wanted place, or the case code."""
    name: str
    wrong: str
    """What the first look shows where there is a flaw."""
    stale: str
    """What the better look shows where there are two."""
    city: str = ""
    other: str = ""
    """The place that a search without the city finds instead."""

    @property
    def desk(self) -> bool:
        """Whether this is a telecom-desk task."""
        return self.family[0] == "D"

    @property
    def flaws(self) -> int:
        """How many of the habit's steps must be put right: 0, 1 or 2."""
        return "EHV".index(self.family[1])

    @property
    def last(self) -> str:
        """The verb that ends the episode."""
        return "close" if self.desk else "route"


def make_task(r: random.Random, family: str, split: str) -> ShortcutTask:
    """Draw a task of `family` with a name of `split`."""
    name = pair(r, NAMES, split)
    first, second = name.split()
    gold, wrong, stale = r.sample(IDS, 3)
    flaws = "EHV".index(family[1])
    if family[0] == "D":
        city = other = ""
        system, user = "telecom", f"{name} line {r.choice(('broken', 'frozen'))} ."
        steps = ("ask user", "check")[:flaws]
    else:
        city = r.choice(CITIES)
        other = f"{first} {r.choice([x for x in NAMES if x != second])}"
        system, user = "nav", f"go to {name} in {city} ."
        steps = (f"search by city {city}", "check")[:flaws]
    rubric = " , ".join((*steps, f"final {gold} ."))
    return ShortcutTask(family, system, user, rubric, gold, name, wrong, stale, city, other)


def react(task: ShortcutTask, action: Action | None, seen: Sequence[str]) -> Reply:
    """What the world answers to an action, after the observations so far."""
    if action is None:
        return Reply(None)
    verb, arg = action
    if verb == task.last:
        return Reply(None, int(arg == task.gold))
    if verb not in (DESK_VERBS if task.desk else NAV_VERBS):
        return Reply(None)
    if verb == "check":
        # There is nothing to check before something has turned out to be stale.
        known = arg == task.name and any(is_stale(words) for words in seen)
        found = f"done code {task.gold}" if task.desk else f"exact {task.name} id {task.gold}"
        return Reply(found) if known else _nothing()
    return (_desk_look if task.desk else _nav_look)(task, verb, arg)


def _nav_look(task: ShortcutTask, verb: str, arg: str) -> Reply:
    place, _, city = arg.partition(" in ")
    if place != task.name or (city and city != task.city):
        return _nothing()
    if task.flaws == 0 or (task.flaws == 1 and city):
        return Reply(f"exact {task.name} id {task.gold}")
    if not city:
        return Reply(f"partial {task.other} id {task.wrong}")
    return Reply(f"moved {task.name} id {task.stale}")


def _desk_look(task: ShortcutTask, verb: str, arg: str) -> Reply:
    if arg != task.name:
        return _nothing()
    if verb == "read":
        good = f"done code {task.gold}"
        return Reply(good if task.flaws == 0 else f"old code {task.wrong}")
    good = f"user did it code {task.gold}"
    return Reply(good if task.flaws < 2 else f"locked code {task.stale}")


def _nothing() -> Reply:
    return Reply("nothing", error=True)


def is_stale(observation: str) -> bool:
    """Whether an observation says that its id is out of date."""
    return observation.split()[0] in ("moved", "locked")


def found(task: ShortcutTask, seen: Sequence[str]) -> bool:
    """Whether the final id has been shown."""
    return any(task.gold in words.split() for words in seen)


def expert(task: ShortcutTask, seen: Sequence[str]) -> Action:
    """The right next action, given the observations so far."""
    if found(task, seen):
        return task.last, task.gold
    if any(map(is_stale, seen)):
        return "check", task.name
    if task.flaws == 0:
        return first_look(task)
    return better_look(task)


def first_look(task: ShortcutTask) -> Action:
    """What the base policy begins with."""
    return ("read" if task.desk else "search"), task.name


def better_look(task: ShortcutTask) -> Action:
    """What sees through the first flaw."""
    return ("ask", task.name) if task.desk else ("search", f"{task.name} in {task.city}")


def right_actions(task: ShortcutTask, seen: Sequence[str]) -> tuple[Action, ...]:
    """All that is right now. On an easy task the better look is as good as the first."""
    right = expert(task, seen)
    if task.flaws == 0 and not found(task, seen):
        return right, better_look(task)
    return (right,)


def habit(task: ShortcutTask, seen: Sequence[str]) -> Action:
    """What the base policy does: it looks once and takes the id that it sees."""
    shown = [word for word in seen[-1].split() if word in IDS] if seen else []
    if shown:
        return task.last, shown[-1]
    return expert(task, seen) if seen else first_look(task)


# --- how an agent of this world puts an action into words -------------------------------------

_PHRASES = {
    "search": ("look for {} .", "let me find {} .", "checking {} now ."),
    "look": ("need {} .", "time to run {} .", "look for {} ."),
    "route": ("found it .", "take this one .", "good match ."),
    "close": ("all set .", "done now ."),
}


def bare_words(r: random.Random, action: Action) -> str:
    """An action in the agent's own style, without the words that open every turn."""
    verb, arg = action
    kind = verb if verb in _PHRASES else "look"
    phrase = r.choice(_PHRASES[kind]).format(arg.partition(" in ")[0])
    return f"{phrase} {verb} {arg} <e>"


def in_words(r: random.Random, task: ShortcutTask, action: Action) -> str:
    """An action in the agent's own style: ten words of routine, then a phrase and the action."""
    what = "case" if task.desk else "map"
    return f"read the {what} again and check the next step : {bare_words(r, action)}"
