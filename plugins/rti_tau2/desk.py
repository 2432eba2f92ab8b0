"""The customer of the retail and airline desks: it has wishes, and no phone to check.

It was told its scenario in prose, by people for people. Of that it says what can be said by rule:
its wishes, a sentence at a time; and what it does when the agent asks it to confirm something or
tells it that something cannot be done. How it should behave (polite, brief, angry) it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from attrs import define, field, frozen

from rti_tau2.customer import (
    GOODBYE,
    MAY,
    STOP,
    TRANSFER,
    TRANSFERRED,
    Scenario,
    Use,
    first_person,
    fragments,
    heard,
)

Occasion = Literal["any", "confirm", "refused", "asked"]


@frozen
class Wish:
    """Something to say: unasked; asked to confirm; told that it cannot be; or asked about `cue`."""

    text: str
    occasion: Occasion = "any"
    cue: str = ""


_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_WHEN = re.compile(
    r"^(?:but |and )*(?:(?:if(?: and only if| even)?|when|once|even if) (?:the )?(?:service )?agent"
    r"|when asked) (?P<cue>[^,]+),\s*(?:then )?(?P<then>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_NO = re.compile(
    r"\b(?:not|no|cannot|can't|doesn't|isn't|denies|refuses?|insists?|more|basic economy)\b", re.I
)
_MANNER = re.compile(
    r"\b(?:reveal|say anything|polite|private|mysterious|brief|persistent|insistent|emotional"
    r"|natural|sound|tactics|rude|confus\w+|jokes?|first message|upfront|at the same time"
    r"|in this order|volunteer|lonely|conversation|the call|reactive|do not mention"
    r"|don't mention|do not want to mention|prefer not to provide|more information than)\b"
    r"|^You are (?!only |not |also |ok|fine|happy|willing|looking|busy|allergic)"
    r"|^You're (?:a |an |very )",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"^(?:be|make|try|do not|don't|never|mention|insist|provide|use both|tell|say|first complain"
    r"|under no|this is incorrect|after asserting|halfway|as you are)\b",
    re.IGNORECASE,
)
_SAY = re.compile(
    r"^(?:then )?(?:you |just )*"
    r"(?:mention|say|insist|provide|tell the (?:service )?agent)(?: that)? ",
    re.IGNORECASE,
)
_ASK = re.compile(
    r"^(?:then )?(?:you |just )*ask(?: the (?:service )?agent)?(?: explicitly)? "
    r"(?P<to>to|for|if)? ?",
    re.IGNORECASE,
)
_AGENT = re.compile(r"\b(?:with |through )?the (?:customer )?(?:service )?agent\b", re.IGNORECASE)


def spoken(text: str) -> str:
    """An instruction in its customer's words: "You want the agent to …" → "I want you to …"."""
    text, begin = _SAY.sub("", text.strip(" .")), ""
    asked = _ASK.match(text)
    if asked:
        words = {"to": "please ", "for": "I would like ", "if": "I wonder if "}
        begin, text = words.get((asked["to"] or "").lower(), "please tell me "), text[asked.end() :]
    marked = _AGENT.sub("\0", first_person(text)).replace("Agent", "\0")
    marked = re.sub(r"\0 (say|ask|tell|give|mention|want|insist)s\b", "\0 \\1", marked)
    text = re.sub(r"(?<!I )\bask \0", "I ask \0", marked).replace("\0", "you")
    text = begin + text
    return text[:1].upper() + text[1:] + "." if text else ""


def wishes(scenario: Scenario) -> Iterator[Wish]:
    """What a scenario lets its customer say, in its order."""
    # Some sentences go on after a line break.
    told = re.sub(r",\n", ", ", f"{scenario.reason}\n{scenario.instructions}")
    for sentence in _SENTENCE.split(told):
        sentence = sentence.strip()
        when = _WHEN.match(sentence)
        if when:
            yield Wish(spoken(when["then"]), _occasion(when["cue"]), when["cue"])
        elif len(sentence) > 3 and not _MANNER.search(sentence) and not _ORDER.match(sentence):
            yield Wish(spoken(sentence))


def _occasion(cue: str) -> Occasion:
    if re.search(r"\bconfirm", cue):
        return "confirm"
    return "refused" if _NO.search(cue) else "asked"


_WHO = re.compile(
    r"\b(?:name|e-?mail|zip(?: ?code)?|user ?id|customer id|identity"
    r"|who (?:are you|i am speaking))\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\b(?:cannot|can ?not|can't|unable|not (?:possible|allowed|able|permitted|eligible|available)"
    r"|isn't (?:possible|allowed)|impossible|against (?:the|our) policy|unfortunately)\b",
    re.IGNORECASE,
)
_CONFIRM = re.compile(r"\bconfirm|\bproceed\b|\byes\b|go ahead", re.IGNORECASE)
_WORD = re.compile(r"[a-z][a-z-]{3,}")
_COMMON = frozenset(
    "about also anything assist because been could does email from have help here information"
    " just know like make more need number order please provide reservation should tell thank"
    " that their them there these this want what when which will with would your".split()
)


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
            return "Sorry, I could not make that out. Could you say it in plain words?"
        if TRANSFERRED.search(words):
            return TRANSFER
        parts = [self._who(words)]
        if _CONFIRM.search(words) and MAY.search(words):
            parts.append(self._next("confirm") or "Yes, please go ahead.")
        elif _REFUSED.search(words):
            parts.append(self._next("refused"))
        else:
            parts.append(self._about(words))
        answer = " ".join(part for part in parts if part)
        if answer:
            return answer
        if GOODBYE.search(words):
            return self._goodbye()
        if MAY.search(words):
            return "Yes, please go ahead."
        if _REFUSED.search(words):
            return "I understand. What can you do for me then?"
        return "I have nothing to add to that. Please go on."

    def _who(self, words: str) -> str:
        asks = any(_WHO.search(piece.text) for piece in fragments(words))
        known = " ".join(first_person(part) for part in self.scenario.known.split("\n") if part)
        if not asks or not re.search(r"\?|\bplease\b|\bneed\b|provide|verify|may i", words, re.I):
            return ""
        missing = first_person(self.scenario.unknown)
        return " ".join(part for part in (known, missing) if part.strip(" ."))

    def _next(self, occasion: Occasion) -> str:
        for index, wish in enumerate(self._wishes):
            if wish.occasion == occasion and index not in self.said:
                self.said.append(index)
                return wish.text
        return ""

    def _about(self, words: str) -> str:
        """The unsaid wishes that share an uncommon word with the agent's."""
        if "?" not in words:
            return ""
        theirs = _topics(words)
        found = []
        for index, wish in enumerate(self._wishes):
            about = {"any": wish.text, "asked": wish.cue}.get(wish.occasion, "")
            if index not in self.said and theirs & _topics(about):
                self.said.append(index)
                found.append(wish.text)
        return " ".join(found)

    def _goodbye(self) -> str:
        self.goodbyes += 1
        rest = []
        while self.goodbyes == 1 and (text := self._next("any")):
            rest.append(text)
        return " ".join(rest) or f"No, that was all. Thank you. {STOP}"


def _topics(words: str) -> set[str]:
    return {word.rstrip("s") for word in _WORD.findall(words.lower()) if word not in _COMMON}
