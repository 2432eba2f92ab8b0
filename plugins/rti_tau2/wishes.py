"""What a scenario of the retail and airline desks lets its customer say.

Scenarios are prose, by people for people. Of that is taken what can be taken by rule: wishes, a
sentence at a time, and what to say when the agent asks for something or refuses it. How a customer
should behave (polite, brief, angry) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from attrs import frozen

from rti_tau2.customer import SENTENCE, Scenario, first_person

Occasion = Literal["any", "confirm", "refused", "asked"]


@frozen
class Wish:
    """Something to say: unasked; asked to confirm; told that it cannot be; or asked about `cue`."""

    text: str
    occasion: Occasion = "any"
    cue: str = ""


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
    for sentence in SENTENCE.split(told):
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
