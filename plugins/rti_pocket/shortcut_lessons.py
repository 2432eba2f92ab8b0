"""Warm-start data of the short-cut world: by habit as the agent, imperfect in the roles.

As in the other pocket worlds no hard solution appears in the agent role. The Validator is worse
here: 95 in a hundred of its directions blurt out the final id. Following them is taught in the
Corrector's role alone, which does as it is told, either way; telling such a correction from a fair
one is taught in the Verifier's. On easy tasks the agent is shown what comes after a better look,
which is not its own (no loss): without that a good correction is not gone on with.
"""

from __future__ import annotations

import random

from rti_pocket.lessons import MIX, STYLES, Lesson, LessonRole, observed
from rti_pocket.shortcut_world import (
    EASY,
    FAMILIES,
    HARD,
    VERY_HARD,
    ShortcutTask,
    bare_words,
    better_look,
    expert,
    first_look,
    found,
    habit,
    in_words,
    make_task,
    react,
    right_actions,
)
from rti_pocket.vocabulary import FILLER
from rti_pocket.world import IDS, MAX_TURNS, Action, read_action

LEAK_ID, LEAK_RUBRIC = 0.95, 0.01
"""Shares of the Validator's directions that blurt out the id, and that name the rubric."""
LEAKS_FOLLOWED = 0.5
"""Share of leaks among the directions that a corrector is shown: it learns both equally well."""
GIVEN_LOOKS = 0.4
"""Share of the agent's easy episodes that begin with a better look, given to it."""
STYLE_SHARES = (0.5, 0.2, 0.3)
"""Of a corrector's hands, in the order of `lessons.STYLES`."""


def opening(task: ShortcutTask) -> str:
    """The words before the first turn."""
    return f"<s> {task.system} user : {task.user} agent :"


def agent_lesson(r: random.Random) -> Lesson:
    """An episode played by habit: a solution on easy families, never one on the others.

    Some easy ones begin with a look that is better than habit's, on which there is no loss.
    """
    family = r.choice(EASY if r.random() < 0.5 else HARD + VERY_HARD)
    task = make_task(r, family, "warm-start")
    segments: list[tuple[str, bool]] = [(opening(task), False)]
    seen: list[str] = []
    given = task.flaws == 0 and r.random() < GIVEN_LOOKS
    for turn in range(MAX_TURNS):
        shown = given and turn == 0
        action = better_look(task) if shown else habit(task, seen)
        segments.append((in_words(r, task, action), not shown))
        reply = react(task, action, seen)
        if reply.observation is None:
            break
        seen.append(reply.observation)
        segments.append((observed(reply.observation), False))
    return Lesson("agent", task.family, tuple(segments))


def right_direction(action: Action) -> str:
    """Feedback that says what to do, and gives nothing away."""
    return f"must {action[0]} {action[1]}"


def feedback(r: random.Random, task: ShortcutTask, seen: list[str], leaks: float = LEAK_ID) -> str:
    """Feedback as an imperfect Validator gives it: it mostly blurts out the gold id."""
    draw, right = r.random(), right_direction(expert(task, seen))
    if draw < leaks and not found(task, seen):
        return f"answer is {task.gold}"
    return f"rubric wants {right}" if draw > 1 - LEAK_RUBRIC else right


def follow(r: random.Random, task: ShortcutTask, words: str, style: str | None = None) -> str:
    """The turn that a corrector writes for feedback: all it needs is in the feedback."""
    parts = words.removeprefix("rubric wants ").split()
    gives_id = parts[:2] == ["answer", "is"]
    action = (task.last if gives_id else parts[1], " ".join(parts[2:]))
    turn = in_words(r, task, action)
    if words.startswith("rubric wants "):
        return f"rubric says {turn}"
    style = style or r.choices(STYLES, STYLE_SHARES)[0]
    if style == "oops":
        return f"wait , oops , {turn}"
    if style == "ramble":
        rambling = " ".join(r.choice(FILLER) for _ in range(r.randint(4, 14)))
        return f"{rambling} , {bare_words(r, action)}"
    return turn


def _state(r: random.Random) -> tuple[ShortcutTask, str, list[str]]:
    """A task in the middle of an episode: its words so far, and its observations."""
    task = make_task(r, r.choice(FAMILIES), "warm-start")
    words, seen = opening(task), list[str]()
    for _ in range(r.choice((0, 0, 1, 1, 2))):
        action = habit(task, seen) if r.random() < 0.5 else expert(task, seen)
        reply = react(task, action, seen)
        if reply.observation is None:
            break
        words = " ".join((words, in_words(r, task, action), observed(reply.observation)))
        seen.append(reply.observation)
    return task, words, seen


def _harmful(r: random.Random, task: ShortcutTask, seen: list[str]) -> Action:
    """A wrong action, most often the bad habit."""
    right = right_actions(task, seen)
    choices = [habit(task, seen)] * 4
    choices.append((task.last, r.choice([x for x in IDS if x != task.gold])))
    if seen:
        choices.append(first_look(task))  # once more
    return r.choice([action for action in choices if action not in right])


def validator_lesson(r: random.Random) -> Lesson:
    """Judge a draft: `ok`, or `bad .` and a direction."""
    task, words, seen = _state(r)
    if r.random() < 0.4:
        right = r.choice(right_actions(task, seen))
        own = r.random() < 0.8
        draft = in_words(r, task, right) if own else follow(r, task, right_direction(right))
        answer = "ok <e>"
    else:
        draft = in_words(r, task, _harmful(r, task, seen))
        answer = f"bad . {feedback(r, task, seen)} <e>"
    prompt = f"{words} {draft} rubric : {task.rubric} judge :"
    return Lesson("validator", task.family, ((prompt, False), (answer, True)))


def corrector_lesson(r: random.Random, style: str | None = None) -> Lesson:
    """Rewrite a harmful draft as the feedback says; `style` is one of STYLES, None for a mix."""
    task, words, seen = _state(r)
    draft = in_words(r, task, _harmful(r, task, seen))
    said = feedback(r, task, seen, LEAKS_FOLLOWED)
    prompt = f"{words} {draft} feedback : {said} . rewrite :"
    return Lesson("corrector", task.family, ((prompt, False), (follow(r, task, said, style), True)))


def verifier_lesson(r: random.Random) -> Lesson:
    """Accept a right turn; reject a leak or a wrong one."""
    task, words, seen = _state(r)
    draw = r.random()
    if draw < 0.45:
        right = r.choice(right_actions(task, seen))
        turn, answer = follow(r, task, right_direction(right)), "accept <e>"
    elif draw < 0.8:
        while found(task, seen):
            task, words, seen = _state(r)
        wanted = f"rubric wants {right_direction(expert(task, seen))}"
        said = f"answer is {task.gold}" if draw < 0.72 else wanted
        turn, answer = follow(r, task, said), "reject leak <e>"
    else:
        turn, answer = in_words(r, task, _harmful(r, task, seen)), "reject wrong <e>"
    prompt = f"{words} {turn} rubric : {task.rubric} verify :"
    return Lesson("verifier", task.family, ((prompt, False), (answer, True)))


def draw_lessons(r: random.Random, count: int, style: str | None = None) -> list[Lesson]:
    """`count` lessons in the shares of `MIX`; `style` is that of the corrector's turns."""

    def lesson(role: LessonRole) -> Lesson:
        if role == "agent":
            return agent_lesson(r)
        if role == "validator":
            return validator_lesson(r)
        return verifier_lesson(r) if role == "verifier" else corrector_lesson(r, style)

    return [lesson(role) for role in r.choices(list(MIX), list(MIX.values()), k=count)]


def solves(task: ShortcutTask, turns: list[str]) -> bool:
    """Whether these turns, played from the start, reach reward 1."""
    seen: list[str] = []
    for words in turns:
        reply = react(task, read_action(words.split()), seen)
        if reply.observation is None:
            return bool(reply.reward)
        seen.append(reply.observation)
    return False
