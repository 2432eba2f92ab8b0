"""Customers: what a session needs of one, and the words that the scripted ones share.

A customer knows its task's scenario and its own tools, and nothing of the reward: not the gold
actions, not the assertions, not the injected fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"
"""tau2's tokens by which a user ends an episode."""

Use = Callable[[str, Mapping[str, Any]], str]
"""Runs one of the customer's own tools and returns what it printed."""
UseAll = Callable[[Sequence[tuple[str, Mapping[str, Any]]], str | None], Sequence[str]]
"""Runs several at once, noted as one message with these words beside them."""

NOTHING_HEARD = "Sorry, I could not make that out. Could you say it in plain words?"


class Customer(Protocol):
    """Who calls the desk."""

    async def opening(self, log: Sequence[Any], use: UseAll) -> str:
        """The first thing it says, to the greeting in `log`; it may use tools on the way."""
        ...

    async def answer(self, log: Sequence[Any], use: UseAll) -> str:
        """What it says to the agent's words, the last of `log`; it may use tools on the way.

        Raises:
            InfrastructureError: it cannot answer, and that is nobody's fault here.
        """
        ...

    def state(self) -> tuple[Any, ...]:
        """All that changes in it and stands in no log, for the session's digest."""
        ...

    def again(self, answers: int) -> Customer:
        """One that will give its opening and its first `answers` answers once more, for a fork."""
        ...


class Script(Protocol):
    """What a scripted customer says: a function of what it has heard. Its state is its own."""

    def opening(self) -> str:
        """The first thing it says."""
        ...

    def answer(self, text: str, use: Use) -> str:
        """What it says to the agent's words."""
        ...

    def state(self) -> tuple[Any, ...]:
        """All that changes in it."""
        ...


@define
class Scripted:
    """A deterministic customer: heard the same, it says the same."""

    write: Callable[[], Script]
    script: Script = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.script = self.write()

    async def opening(self, log: Sequence[Any], use: UseAll) -> str:
        """The first thing it says."""
        return self.script.opening()

    async def answer(self, log: Sequence[Any], use: UseAll) -> str:
        """What it says to the agent's words, the last of `log`."""

        def one(name: str, arguments: Mapping[str, Any]) -> str:
            return use([(name, arguments)], None)[0]

        return self.script.answer(log[-1].content, one)

    def state(self) -> tuple[Any, ...]:
        """The script's."""
        return self.script.state()

    def again(self, answers: int) -> Scripted:
        """A new one: it will say the same."""
        return Scripted(self.write)


@frozen
class Scenario:
    """What tau2 tells its user simulator, in the second person."""

    reason: str
    known: str
    instructions: str
    persona: str
    unknown: str = ""

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
            told.unknown_info or "",
        )

    @property
    def reticent(self) -> bool:
        """Whether it says who it is only when asked."""
        return "only share information when" in self.persona


_PERSON = (
    (r"\bYou (?=mobile|phone|name)", "Your "),  # slips of the pen in tau2's tasks
    (
        r"\b(to|for|with|from|of|on|by|lets?|tells?|gives?|asks?|helps?|costs?|upgrades?|corrects?"
        r"|informs?|shows?|told) you\b(?! (?:are|were|have|had|can|will|want|need))",
        r"\1 me",
    ),
    (r"\b[Yy]ou are\b", "I am"),
    (r"\b[Yy]ou were\b", "I was"),
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


SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_COMMA = re.compile(r"[,:](?=\s)(?![^(]*\))")


def fragments(text: str) -> Iterator[Fragment]:
    """Cut words into fragments; commas inside parentheses do not cut."""
    for sentence in SENTENCE.split(text):
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


_TRANSFERRED = re.compile(
    r"you(?: are|'re)(?: now)? being transferred|\btransferr(?:ing|ed) you\b"
    r"|\b(?:am|will|'ll|let me)(?: now)? transfer you (?:now|to)\b",
    re.IGNORECASE,
)
_PERHAPS = re.compile(r"\b(?:if|unless|before|once|otherwise|should|cannot|can't|not)\b", re.I)


def passed_on(words: str) -> bool:
    """Whether the agent says that it hands the customer over, and not only that it might."""
    return any(
        _TRANSFERRED.search(sentence) and not _PERHAPS.search(sentence)
        for sentence in SENTENCE.split(words)
    )


_GOODBYE = re.compile(
    r"anything else|good ?bye|have a (?:great|nice|good|wonderful)|\btake care\b(?! of| to)"
    r"|glad i could help",
    re.IGNORECASE,
)
_COLLECTS = re.compile(
    r"\b(?:change|modif\w+|exchange|return|cancel|add|update|include|before|besides|once)\b", re.I
)


def goodbye(words: str) -> bool:
    """Whether the agent is done: "Is there anything else I can help you with?", "Goodbye!".

    Not so when it asks for the rest of a request: "anything else you would like to exchange?"
    """
    return any(
        _GOODBYE.search(sentence)
        and not ("anything else" in sentence.lower() and _COLLECTS.search(sentence))
        for sentence in SENTENCE.split(words)
    )


MAY = re.compile(
    r"would you like|shall i|should i|may i|can i|do you (?:want|agree)|are you (?:ok|willing|sure)"
    r"|is (?:that|this) (?:ok|fine|all ?right)|proceed|agree|confirm",
    re.IGNORECASE,
)
"""It is asked for leave."""
