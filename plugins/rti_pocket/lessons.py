"""Warm-start data: agent demonstrations, and the three roles as next-token text.

Agent demonstrations are right on easy families and show ONLY the bad habit on hard ones; no hard
solution ever appears in the agent role. Following feedback is taught in the corrector role alone.
The roles are imperfect on purpose, as real ones are: most feedback names the gold id outright,
some corrections ramble (their perplexity is high) and some begin with "wait , oops".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from rti_pocket.vocabulary import FILLER
from rti_pocket.world import (
    EASY,
    HARD,
    IDS,
    MAX_TURNS,
    Action,
    PocketTask,
    expert,
    habit,
    in_words,
    make_task,
    react,
    read_action,
)

LessonRole = Literal["agent", "validator", "corrector", "verifier"]
MIX: dict[LessonRole, float] = {
    "agent": 0.37, "validator": 0.20, "corrector": 0.28, "verifier": 0.15
}  # fmt: skip
LEAK_ID, LEAK_RUBRIC = 0.55, 0.05
DETOURS = {"A2": 0.03, "B2": 0.001}
"""How often a demonstration of an easy family takes a harmless detour first: it calls what is the
user's to do and then asks, or searches once more with the city. Without them the policy is so
sure of its habits that every correction is a surprise of ten nats a word; with many more it learns
to tell those families apart, and is as sure again."""
STYLES = ("own", "oops", "ramble")
STYLE_SHARES = (0.55, 0.15, 0.30)
TEACHER_LEAK_ID = 0.05
FORMAL = "dear customer , the better move is to proceed so ,"
TEACHER_FORMAL = 0.6
"""A teacher knows the hard families too and seldom blurts out an id, but six in ten of its turns
open with a formula that the student never uses: what it writes is right, and off-policy."""


@frozen
class Lesson:
    """Segments of words; the loss is on those marked True."""

    role: LessonRole
    family: str
    segments: tuple[tuple[str, bool], ...]


def opening(task: PocketTask) -> str:
    """The words before the first turn."""
    return f"<s> {task.system} user : {task.user} agent :"


def observed(observation: str) -> str:
    """The words of an observation, up to the next turn."""
    return f"env : {observation} <e> agent :"


def agent_lesson(r: random.Random, teacher: bool = False) -> Lesson:
    """An episode played by habit: a solution on easy families, never one on hard families.

    A teacher's is played as an expert does, in the teacher's hand.
    """
    task = make_task(r, r.choice(EASY + HARD), "warm-start")
    segments: list[tuple[str, bool]] = [(opening(task), False)]
    seen: list[str] = []
    for _ in range(MAX_TURNS):
        if teacher:
            action = expert(task, seen)
            words = _styled(r, in_words(r, action), _teacher_style(r))
        else:
            action = _detour(r, task, seen) or habit(task, seen)
            words = in_words(r, action)
        segments.append((words, True))
        reply = react(task, action)
        if reply.observation is None:
            break
        seen.append(reply.observation)
        segments.append((observed(reply.observation), False))
    return Lesson("agent", task.family, tuple(segments))


def _detour(r: random.Random, task: PocketTask, seen: Sequence[str]) -> Action | None:
    """A harmless step that an easy family allows, now and then. Never on a hard family."""
    if r.random() >= DETOURS.get(task.family, 0.0):
        return None
    if task.desk:
        return None if seen else ("call", task.fix)
    return ("search", f"{task.name} in {task.city}") if len(seen) == 1 else None


def right_direction(action: Action) -> str:
    """Feedback that says what to do, and gives nothing away."""
    verb, arg = action
    if verb == "ask":
        return f"ask user to run {arg}"
    if verb == "call":
        return f"agent must run {arg}"
    return f"must {verb} {arg}".strip()


def feedback(r: random.Random, task: PocketTask, action: Action, leak_id: float = LEAK_ID) -> str:
    """Feedback as an imperfect Validator gives it: it often blurts out the gold id."""
    draw = r.random()
    if task.gold and action[0] not in ("close", "route") and draw < leak_id:
        return f"answer is {task.gold}"
    if draw < leak_id + LEAK_RUBRIC:
        return f"rubric wants {right_direction(action)}"
    return right_direction(action)


def follow(r: random.Random, task: PocketTask, words: str, style: str | None = None) -> str:
    """The turn that a corrector writes for feedback: all it needs is in the feedback."""
    leaks_rubric = words.startswith("rubric wants ")
    parts = words.removeprefix("rubric wants ").split()
    if parts[:2] == ["answer", "is"]:
        action: Action = ("close" if task.desk else "route", " ".join(parts[2:]))
    elif parts[:2] == ["ask", "user"]:
        action = ("ask", " ".join(parts[4:]))
    elif parts[:2] == ["agent", "must"]:
        action = ("call", " ".join(parts[3:]))
    else:
        action = (parts[1], " ".join(parts[2:]))
    turn = in_words(r, action)
    style = style or r.choices(STYLES, STYLE_SHARES)[0]
    return f"rubric says {turn}" if leaks_rubric else _styled(r, turn, style)


def _teacher_style(r: random.Random) -> str:
    return "formal" if r.random() < TEACHER_FORMAL else "own"


def _styled(r: random.Random, turn: str, style: str) -> str:
    if style == "oops":
        return f"wait , oops , {turn}"
    if style == "formal":
        return f"{FORMAL} {turn}"
    if style == "ramble":
        return " ".join(r.choice(FILLER) for _ in range(r.randint(6, 12))) + f" , {turn}"
    return turn


def _state(r: random.Random) -> tuple[PocketTask, str, list[str]]:
    """A task in the middle of an episode: its words so far, and its observations."""
    task = make_task(r, r.choice(HARD + HARD + EASY), "warm-start")
    words, seen = opening(task), list[str]()
    for _ in range(r.choice((0, 1, 1, 1, 2))):
        action = habit(task, seen) if r.random() < 0.6 else expert(task, seen)
        reply = react(task, action)
        if reply.observation is None:
            break
        words = " ".join((words, in_words(r, action), observed(reply.observation)))
        seen.append(reply.observation)
    return task, words, seen


def _harmful(r: random.Random, task: PocketTask, seen: Sequence[str]) -> Action:
    """A wrong action, most often the bad habit."""
    right, usual = expert(task, seen), habit(task, seen)
    choices = [usual] * 9
    if task.desk:
        choices.append(("close", r.choice(IDS)))
        choices += [(verb, task.fix) for verb in ("call", "ask")]
        if right[0] != "transfer":
            choices.append(("transfer", ""))
    else:
        choices += [("route", r.choice(IDS)), ("route", r.choice(IDS))]
        if seen and "partial" in seen[-1]:
            choices.append(("search", task.name))
    choices = [c for c in choices if c != right]
    return r.choice(choices or [("close" if task.desk else "route", IDS[0])])


def validator_lesson(r: random.Random, leak_id: float = LEAK_ID) -> Lesson:
    """Judge a draft: `ok`, or `bad .` and a direction."""
    task, words, seen = _state(r)
    right = expert(task, seen)
    if r.random() < 0.4:
        own = r.random() < 0.8
        draft = in_words(r, right) if own else follow(r, task, right_direction(right))
        answer = "ok <e>"
    else:
        draft = in_words(r, _harmful(r, task, seen))
        answer = f"bad . {feedback(r, task, right, leak_id)} <e>"
    prompt = f"{words} {draft} rubric : {task.rubric} judge :"
    return Lesson("validator", task.family, ((prompt, False), (answer, True)))


def corrector_lesson(r: random.Random, style: str | None = None) -> Lesson:
    """Rewrite a harmful draft as the feedback says; `style` is one of STYLES, None for a mix."""
    task, words, seen = _state(r)
    draft = in_words(r, _harmful(r, task, seen))
    said = feedback(r, task, expert(task, seen))
    prompt = f"{words} {draft} feedback : {said} . rewrite :"
    return Lesson("corrector", task.family, ((prompt, False), (follow(r, task, said, style), True)))


def verifier_lesson(r: random.Random) -> Lesson:
    """Accept a right turn; reject a leak or a wrong one."""
    task, words, seen = _state(r)
    draw = r.random()
    if draw < 0.45:
        turn, answer = follow(r, task, right_direction(expert(task, seen))), "accept <e>"
    elif draw < 0.8:
        while not task.gold or expert(task, seen)[0] in ("close", "route"):
            task, words, seen = _state(r)
        by_id = draw < 0.45 + 0.35 * 0.95
        right = right_direction(expert(task, seen))
        said = f"answer is {task.gold}" if by_id else f"rubric wants {right}"
        turn, answer = follow(r, task, said), "reject leak <e>"
    else:
        turn, answer = in_words(r, _harmful(r, task, seen)), "reject wrong <e>"
    prompt = f"{words} {turn} rubric : {task.rubric} verify :"
    return Lesson("verifier", task.family, ((prompt, False), (answer, True)))


def draw_lessons(
    r: random.Random, count: int, style: str | None = None, teacher: bool = False
) -> list[Lesson]:
    """`count` lessons in the shares of `MIX`.

    `style` is that of the corrector's turns; None for a mix, which is another for a teacher.
    """
    leak_id = TEACHER_LEAK_ID if teacher else LEAK_ID

    def lesson(role: LessonRole) -> Lesson:
        if role == "agent":
            return agent_lesson(r, teacher)
        if role == "validator":
            return validator_lesson(r, leak_id)
        if role == "verifier":
            return verifier_lesson(r)
        hand = _teacher_style(r) if teacher and style is None else style
        return corrector_lesson(r, hand)

    return [lesson(role) for role in r.choices(list(MIX), list(MIX.values()), k=count)]


def solves(task: PocketTask, turns: Sequence[str]) -> bool:
    """Whether these turns, played from the start, reach reward 1."""
    for words in turns:
        reply = react(task, read_action(words.split()))
        if reply.observation is None:
            return bool(reply.reward)
    return False
