"""The two pocket worlds as plain rules on words: tasks, what the world answers, what is right.

Telecom desk (families A*): the fixing tool is the agent's (A1), the user is to reboot (A2), the
tool is on no list and the desk must transfer (A3), or the tool is the *user's* (AH, hard).
Navigation (families B*): the first search is exact (B1), any branch will do (B2), the user says
"by city" (B3), or only a search with the city finds the exact place (BH, hard).

A3 and B2 look like AH and BH and want the opposite: without them a policy over-generalises.
Names are two-word pairs, split by a hash into disjoint warm-start, train and test sets, so that
what is measured is generalisation.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence

from attrs import frozen

EASY = ("A1", "A2", "A3", "B1", "B2", "B3")
HARD = ("AH", "BH")
FAMILIES = HARD + EASY
SPLITS = {"warm-start": (0, 1), "train": (2,), "test": (3,)}
MAX_TURNS = 4

NAMES = tuple(f"n{i}" for i in range(48))
TOOLS = tuple(f"t{i}" for i in range(32))
CITIES = tuple(f"c{i}" for i in range(24))
IDS = tuple(f"k{i}" for i in range(60))
DIGITS = tuple(str(i) for i in range(10))

DESK_VERBS = ("call", "ask", "close", "transfer")
NAV_VERBS = ("search", "route")
VERBS = DESK_VERBS + NAV_VERBS

Action = tuple[str, str]
"""A verb and its argument; the argument is empty for `transfer`."""


@frozen
class PocketTask:
    """One task with its hidden truth. Desk fields and navigation fields exclude each other."""

    family: str
    system: str
    user: str
    rubric: str
    gold: str
    """The final id: the case code, or the id of the wanted place. Empty where none is wanted."""
    fix: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    """(tool name, "agent" or "user") on the desk."""
    name: str = ""
    city: str = ""
    other: str = ""
    wrong: str = ""

    @property
    def desk(self) -> bool:
        """Whether this is a telecom-desk task."""
        return self.family[0] == "A"


@frozen
class Reply:
    """What the world answers: an observation, or the end of the episode with its reward."""

    observation: str | None
    reward: int = 0
    error: bool = False


def _pair(r: random.Random, pool: Sequence[str], split: str) -> str:
    while True:
        a, b = r.choice(pool), r.choice(pool)
        if a != b and zlib.crc32((a + b).encode()) % 4 in SPLITS[split]:
            return f"{a} {b}"


def make_task(r: random.Random, family: str, split: str) -> PocketTask:
    """Draw a task of `family` with names of `split`."""
    return _desk_task(r, family, split) if family[0] == "A" else _nav_task(r, family, split)


def _desk_task(r: random.Random, family: str, split: str) -> PocketTask:
    count = r.randint(2, 3)
    names: list[str] = []
    while len(names) < count + 1:
        name = _pair(r, TOOLS, split)
        if name not in names:
            names.append(name)
    owners = [r.choice(("agent", "user")) for _ in range(count)]
    chosen = r.randrange(count)
    if family in ("A1", "AH"):
        owners[chosen] = "agent" if family == "A1" else "user"
        fix = names[chosen]
    else:
        fix = "reboot" if family == "A2" else names[count]
    code = r.choice(IDS)
    tools = tuple(zip(names[:count], owners, strict=True))
    listing = " , ".join(f"{name} @{owner}" for name, owner in tools)
    line = f"{r.choice(DIGITS)} {r.choice(DIGITS)} {r.choice(('broken', 'frozen'))}"
    who = "user" if family in ("AH", "A2") else "agent"
    return PocketTask(
        family=family,
        system=f"telecom tools : {listing} .",
        user=f"line {line} , fix is {fix} .",
        rubric="final transfer ." if family == "A3" else f"{who} runs {fix} , final {code} .",
        gold="" if family == "A3" else code,
        fix=fix,
        tools=tools,
    )


def _nav_task(r: random.Random, family: str, split: str) -> PocketTask:
    name = _pair(r, NAMES, split)
    city = r.choice(CITIES)
    first, second = name.split()
    branch = r.choice([x for x in NAMES if x != second])
    gold, wrong = r.sample(IDS, 2)
    wish = {"B2": f"any {first}", "B3": f"{name} by city"}.get(family, name)
    by_city = f"search by city {city} , " if family in ("BH", "B3") else ""
    return PocketTask(
        family=family,
        system=f"nav , user in {city} .",
        user=f"go to {wish} .",
        rubric=f"{by_city}final {gold} .",
        gold=gold,
        name=first if family == "B2" else name,
        city=city,
        other=f"{first} {branch}",
        wrong=wrong,
    )


def react(task: PocketTask, action: Action | None) -> Reply:
    """What the world answers to an action. It depends on the task and the action alone."""
    if action is None:
        return Reply(None)
    return (_desk_react if task.desk else _nav_react)(task, *action)


def _desk_react(task: PocketTask, verb: str, arg: str) -> Reply:
    right = arg == task.fix
    if verb == "call":
        if right and task.family == "A1":
            return Reply(f"done code {task.gold}")
        theirs = task.family in ("A2", "AH")
        return Reply(f"denied {'user only' if theirs else 'unknown'}", error=True)
    if verb == "ask":
        if right and task.family in ("A2", "AH"):
            return Reply(f"user did it code {task.gold}")
        return Reply("user can not", error=True)
    if verb == "close":
        return Reply(None, int(arg == task.gold and task.family != "A3"))
    if verb == "transfer":
        return Reply(None, int(arg == "" and task.family == "A3"))
    return Reply(None)


def _nav_react(task: PocketTask, verb: str, arg: str) -> Reply:
    if verb == "route":
        return Reply(None, int(arg == task.gold))
    if verb != "search":
        return Reply(None)
    place, _, city = arg.partition(" in ")
    if place != task.name or (city and city != task.city):
        return Reply("nothing", error=True)
    if task.family == "B2":
        return Reply(f"partial {task.other} id {task.gold}")
    if task.family == "BH" and not city:
        return Reply(f"partial {task.other} id {task.wrong}")
    if task.family == "B3" and not city:
        return Reply("nothing", error=True)
    return Reply(f"exact {task.name} id {task.gold}")


def expert(task: PocketTask, seen: Sequence[str]) -> Action:
    """The right next action, given the observations so far."""
    last = seen[-1] if seen else ""
    if task.desk:
        if "code" in last:
            return "close", task.gold
        if task.family == "A3":
            return ("transfer", "") if "denied" in last else ("call", task.fix)
        theirs = task.family == "A2" or "only" in last
        return ("ask" if theirs else "call"), task.fix
    with_city = ("search", f"{task.name} in {task.city}")
    if task.family == "B3":
        return ("route", task.gold) if "exact" in last else with_city
    if "exact" in last or (task.family == "B2" and "partial" in last):
        return "route", task.gold
    if "partial" in last or "nothing" in last:
        return with_city
    return "search", task.name


def habit(task: PocketTask, seen: Sequence[str]) -> Action:
    """What the base policy does: right on easy families, the one bad habit on hard ones."""
    last = seen[-1] if seen else ""
    if task.family == "AH":
        if "code" in last:
            return "close", task.gold
        return ("transfer", "") if "denied" in last else ("call", task.fix)
    if task.family == "BH" and "partial" in last:
        return "route", task.wrong
    return expert(task, seen)


# --- how an agent of these worlds puts an action into words -----------------------------------

_PHRASES: dict[str, Callable[[str], tuple[str, ...]]] = {
    "tool": lambda x: (f"need {x} .", f"time to run {x} .", f"the fix is {x} ."),
    "search": lambda x: (f"look for {x} .", f"let me find {x} .", f"checking {x} now ."),
    "route": lambda _: ("found it .", "take this one .", "good match ."),
    "close": lambda _: ("all set .", "done now ."),
    "transfer": lambda _: ("sorry .", "giving up ."),
}


_MANNERS = ("let me see what can be done here .", "one moment please , i look into it .")
"""What opens every turn. As in real turns, the decision is a few words among many."""


def in_words(r: random.Random, action: Action) -> str:
    """An action in the agent's own style, end-of-turn token included."""
    verb, arg = action
    kind = "tool" if verb in ("call", "ask") else verb
    phrase = r.choice(_PHRASES[kind](arg.split(" in ")[0]))
    return " ".join(filter(None, (r.choice(_MANNERS), phrase, verb, arg, "<e>")))


def read_action(words: Sequence[str]) -> Action | None:
    """The action in a finished turn's words: what stands behind its last full stop."""
    if not words or words[-1] != "<e>":
        return None
    rest = list(words[:-1])
    if "." in rest:
        rest = rest[len(rest) - rest[::-1].index(".") :]
    return (rest[0], " ".join(rest[1:])) if rest else None
