"""Scripted customers: what a session needs of one, and the words all of them share.

A customer knows its task's scenario and its own tools, and nothing of the reward: not the gold
actions, not the assertions, not the injected fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from attrs import frozen

STOP, TRANSFER = "###STOP###", "###TRANSFER###"
"""tau2's tokens by which a user ends an episode."""

Use = Callable[[str, Mapping[str, Any]], str]
"""Runs one of the customer's own tools and returns what it printed."""


class Customer(Protocol):
    """A deterministic customer. Its state is its attributes, so that a fork can replay it."""

    def opening(self) -> str:
        """The first thing it says."""
        ...

    def answer(self, text: str, use: Use) -> str:
        """What it says to the agent's words; it may use its tools on the way."""
        ...

    def state(self) -> tuple[Any, ...]:
        """All that changes in it, for the session's digest."""
        ...


@frozen
class Scenario:
    """What tau2 tells its user simulator, in the second person."""

    reason: str
    known: str
    instructions: str
    persona: str

    @classmethod
    def of(cls, task: Any) -> Scenario:
        """The scenario of a tau2 task."""
        user = task.user_scenario
        told = user.instructions
        if isinstance(told, str):
            return cls(told, "", "", user.persona or "")
        return cls(
            told.reason_for_call,
            told.known_info or "",
            told.task_instructions or "",
            user.persona or "",
        )

    @property
    def reticent(self) -> bool:
        """Whether it says who it is only when asked."""
        return "only share information when" in self.persona


_PERSON = (
    (r"\bYou (?=mobile|phone)", "Your "),  # a slip of the pen in tau2's telecom tasks
    (r"\b[Yy]ou are\b", "I am"),
    (r"\b[Yy]ou're\b", "I am"),
    (r"\bYour\b", "My"),
    (r"\byour\b", "my"),
    (r"\b[Yy]ou\b", "I"),
)


def first_person(text: str) -> str:
    """A scenario's words as its customer would say them: "You are …" → "I am …"."""
    for pattern, word in _PERSON:
        text = re.sub(pattern, word, text)
    return text.strip()


@frozen
class Fragment:
    """A piece of the agent's words between two stops or commas, without anything in code."""

    text: str
    question: bool


_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_COMMA = re.compile(r"[,:](?=\s)(?![^(]*\))")


def fragments(text: str) -> Iterator[Fragment]:
    """Cut words into fragments; commas inside parentheses do not cut."""
    for sentence in _SENTENCE.split(text):
        for piece in _COMMA.split(sentence):
            if piece.strip():
                yield Fragment(piece, sentence.rstrip().endswith("?"))


_NOT_ASKED = re.compile(
    r"\b(?:do not|don'?t(?! mind)|must not|should ?n[o']t|never|without|no need to|instead of"
    r"|rather than|(?:did|have|had|has) you|(?:after|before|once|unless|if) you)\b",
    re.IGNORECASE,
)
_MYSELF = re.compile(r"\b(?:i|i['’]?(?:ll|ve|m|d)|let me|we|we['’]?(?:ll|ve))\b", re.IGNORECASE)
_YOU = re.compile(r"\b(?:you|please)\b", re.IGNORECASE)


def asked(before: str) -> bool:
    """Whether the words before a mention leave it a request to the customer.

    Not so after a negation, a condition or a question about the past, and not where the agent
    speaks of what it does itself.
    """
    if _NOT_ASKED.search(before):
        return False
    return not _MYSELF.search(before) or bool(_YOU.search(before))


_MARKUP = re.compile(r"<(tool_call|think)>.*?(?:</\1>|\Z)", re.DOTALL)


def heard(text: str) -> str:
    """The words in a message: a broken tool call or a stray thought says nothing to anyone."""
    return _MARKUP.sub(" ", text).replace("’", "'").strip()
