"""The customer of the retail and airline desks: it has wishes, and no phone to check."""

from __future__ import annotations

import re
from typing import Any

from attrs import define, field

from rti_tau2.customer import (
    MAY,
    NOTHING_HEARD,
    STOP,
    TRANSFER,
    Scenario,
    Use,
    first_person,
    fragments,
    goodbye,
    heard,
    passed_on,
)
from rti_tau2.wishes import Occasion, Wish, spoken, wishes

_WHO = re.compile(
    r"\b(?:name|e-?mail|zip(?: ?code)?|user ?id|customer id|identity"
    r"|who (?:are you|i am speaking))\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\bplease\b|\bneed (?:your|to know)|\bprovide\b|\bverify\b|\(yes ?/ ?no\)|\bdo you\b", re.I
)
"""A sentence that wants an answer, though it is no question."""
_REFUSED = re.compile(
    r"\b(?:cannot|can ?not|can't|unable|not (?:possible|allowed|able|permitted|eligible|available)"
    r"|isn't (?:possible|allowed)|impossible|against (?:the|our) policy|unfortunately)\b",
    re.IGNORECASE,
)
_CONFIRM = re.compile(r"\bconfirm\b|\bproceed\b|\byes\b|go ahead", re.IGNORECASE)
_CHOICE = re.compile(r"^\W*(?:which|what|how|where|when|who)\b|\bor\b", re.IGNORECASE)
"""A question that yes does not answer."""
_WORD = re.compile(r"[a-z][a-z-]{3,}")
_COMMON = frozenset(
    "about also anything assist because been could does else email from have help here information"
    " just know like make more need number order please provide reservation should tell thank"
    " that their them there these this want what when which will with would your".split()
)
PATIENCE = 3
"""Goodbyes after which it hangs up, whatever else was said."""


@define
class DeskCustomer:
    """A customer of a desk. Each of its wishes is said once."""

    scenario: Scenario
    goodbyes: int = 0
    said: list[int] = field(factory=list)
    _wishes: tuple[Wish, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._wishes = tuple(wishes(self.scenario))

    def opening(self) -> str:
        """What it came for. Who it is it says when it is asked."""
        reason = Scenario(self.scenario.reason, "", "", "")
        came_for = [wish.text for wish in wishes(reason) if wish.occasion == "any"]
        self.said += [i for i, wish in enumerate(self._wishes) if wish.text in came_for]
        return " ".join(["Hello.", *(came_for or [spoken(self.scenario.reason)])])

    def state(self) -> tuple[Any, ...]:
        """How often it was told goodbye, and what it has said."""
        return self.goodbyes, tuple(self.said)

    def answer(self, text: str, use: Use) -> str:
        """Answer what was asked; say at a goodbye what has not been said, and then hang up."""
        words = heard(text)
        if not words:
            return NOTHING_HEARD
        if passed_on(words):
            return TRANSFER
        asking = [p.text for p in fragments(words) if p.question or _ASKS.search(p.text)]
        asking = [sentence for sentence in asking if not goodbye(sentence)]
        parts = [self._who() if any(map(_WHO.search, asking)) else ""]
        if any("anything else" in sentence.lower() for sentence in asking):
            parts.append(self._rest() or "No, that is all of it.")
        if any(_CONFIRM.search(sentence) for sentence in asking):
            parts.append(self._next("confirm") or "Yes, please go ahead.")
        elif _REFUSED.search(words):
            parts.append(self._next("refused"))
        else:
            parts.append(self._about(" ".join(asking)))
        if goodbye(words):
            parts.append(self._goodbye())
        answer = " ".join(part for part in parts if part)
        if answer:
            return answer
        if any(MAY.search(s) and not _CHOICE.search(s) for s in asking):
            return "Yes, please go ahead."
        if _REFUSED.search(words):
            return "I understand. What can you do for me then?"
        return "I have nothing to add to that. Please go on."

    def _who(self) -> str:
        known = " ".join(first_person(part) for part in self.scenario.known.split("\n") if part)
        missing = first_person(self.scenario.unknown)
        return " ".join(part for part in (known, missing) if part.strip(" ."))

    def _next(self, occasion: Occasion) -> str:
        for index, wish in enumerate(self._wishes):
            if wish.occasion == occasion and index not in self.said:
                self.said.append(index)
                return wish.text
        return ""

    def _about(self, asked: str) -> str:
        """The unsaid wishes that share an uncommon word with the agent's questions."""
        theirs, found = _topics(asked), []
        for index, wish in enumerate(self._wishes):
            about = {"any": wish.text, "asked": wish.cue}.get(wish.occasion, "")
            if index not in self.said and theirs & _topics(about):
                self.said.append(index)
                found.append(wish.text)
        return " ".join(found)

    def _rest(self) -> str:
        """All wishes that nothing has to be asked for, and that are not said yet."""
        rest = []
        while text := self._next("any"):
            rest.append(text)
        return " ".join(rest)

    def _goodbye(self) -> str:
        self.goodbyes += 1
        rest = self._rest()
        if rest and self.goodbyes < PATIENCE:
            return rest
        return f"No, that was all. Thank you. {STOP}"


def _topics(words: str) -> set[str]:
    return {word.rstrip("s") for word in _WORD.findall(words.lower()) if word not in _COMMON}
