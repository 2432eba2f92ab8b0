"""Scenes: real points in real rollouts, with what can be known there and what cannot."""

from __future__ import annotations

from attrs import field, frozen

from rti import Evidence, History, Message, Privileged, Turn
from rti_veto.document import leaves


@frozen
class Material:
    """Raw values by what they are, as the world wrote them."""

    ids: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()
    """As "425.0 usd" or "12.8 gb"."""
    dates: tuple[str, ...] = ()
    """As YYYY-MM-DD."""
    phones: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Of two words."""
    wording: tuple[str, ...] = ()
    """Sentences."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every value."""
        return (*self.ids, *self.amounts, *self.dates, *self.phones, *self.names, *self.wording)


@frozen
class Scene:
    """A turn to be corrected. `hidden` stands nowhere in the history, `open` does."""

    world: str
    task: str
    history: History = field(repr=False)
    draft: Turn = field(repr=False)
    evidence: Evidence = field(repr=False)
    privileged: Privileged = field(repr=False)
    hidden: Material = field(repr=False)
    open: Material = field(repr=False)
    later: Material = field(factory=Material, repr=False)
    """What the draft's own calls returned, or a later turn learned, and `hidden` names too."""

    @property
    def seen(self) -> str:
        """Everything in the history, the tools and the draft, raw, in lower case."""
        parts: list[str] = []
        for message in (*self.history.messages, self.draft.message):
            parts += [message.content, *said(message)]
        for tool in self.history.tools:
            parts += [tool.name, tool.description, *leaves(tool.parameters)]
        return "\n".join(parts).lower()


def said(message: Message) -> list[str]:
    """The calls of a message as raw strings."""
    return [text for call in message.tool_calls for text in (call.name, *leaves(call.arguments))]


def turn(index: int, message: Message, observations: tuple[Message, ...] | None) -> Turn:
    """A draft: only its message and what came back matter here."""
    return Turn(index, (0,), (0,), (0.0,), message, observations=observations)
