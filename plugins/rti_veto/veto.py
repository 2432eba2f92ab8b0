"""The leak veto: a Verifier that compares, and asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define, field

from rti import (
    Context,
    Correction,
    Diagnosis,
    Evidence,
    History,
    Message,
    Privileged,
    Renderer,
    Tool,
    Turn,
    Verdict,
    anything,
    at_least,
    option,
)
from rti_veto.document import Document, Field, Known, document, leaves
from rti_veto.facts import Fact, Limits, observed, secrets
from rti_veto.ids import unfounded

SHOWN = 3
"""Leaks that a reason names; it is for people."""


@define
class LeakVeto:
    """Refuses what holds a fact of the reward's side that the policy could not know.

    A fact is an id, a number, a date, a name or a long run of words of the privileged facts, the
    evidence, or what the draft's own calls returned. Known is what stands in the history before
    this turn, in the tools, or in the draft: the draft was sampled without evidence, so what it
    holds is the policy's own guess.
    """

    corrections: bool = option(True, "Check corrections.", anything)
    diagnoses: bool = option(
        True, "Check a diagnosis (kind, direction) before the Corrector sees it.", anything
    )
    observations: bool = option(
        True, "Count what the draft's own calls returned as not known yet.", anything
    )
    unfounded: bool = option(
        True, "Refuse a tool argument that is nothing but an id that occurs nowhere.", anything
    )
    ngram: int = option(5, "Content words in a row that are wording, not chance.", at_least(3))
    small: int = option(10, "Largest whole number that says nothing by itself.", at_least(0))
    _renderer: Renderer | None = field(init=False, default=None, repr=False)

    def bind(self, context: Context) -> None:
        """Take the renderer: the ids are what is trained on, whatever their parse kept."""
        self._renderer = context.renderer

    async def verify(
        self,
        correction: Correction,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> Verdict:
        """Reject a correction that leaks; the reason names kind, value and place."""
        if not self.corrections:
            return Verdict(True, "not checked")
        fields = list(self._written(correction))
        return self._verdict(fields, draft, history, evidence, privileged)

    async def vet(
        self,
        diagnosis: Diagnosis,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> Verdict:
        """Reject a diagnosis that would tell the Corrector what it must not know."""
        if not self.diagnoses:
            return Verdict(True, "not checked")
        fields = [
            Field("kind", document(diagnosis.kind)),
            Field("direction", document(diagnosis.direction)),
        ]
        return self._verdict(fields, draft, history, evidence, privileged)

    def _written(self, correction: Correction) -> Iterator[Field]:
        yield from _fields(correction.message)
        if self._renderer is not None and correction.completion_ids:
            yield Field("tokens", document(self._renderer.decode(correction.completion_ids)))

    def _verdict(
        self,
        fields: Sequence[Field],
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> Verdict:
        known = Known(tuple(_known(history, draft)))
        limits = Limits(self.ngram, self.small)
        told = (evidence.text, *leaves(evidence.facts))
        facts: list[tuple[str, Fact]] = [
            ("", fact) for fact in secrets(tuple(privileged.facts), told, limits)
        ]
        if self.observations and draft.observations:
            later = tuple(m.content for m in draft.observations)
            facts += [("early ", fact) for fact in observed(later, limits)]
        apart = [at for at in fields if not at.joined and at.document.text.strip()]
        # The pieces together are looked at only for what no piece shows by itself.
        leaks = list(dict.fromkeys(self._leaks(apart, facts, known))) or list(
            dict.fromkeys(self._leaks([at for at in fields if at.joined], facts, known))
        )
        more = f" and {len(leaks) - SHOWN} more" if len(leaks) > SHOWN else ""
        return Verdict(not leaks, "; ".join(leaks[:SHOWN]) + more)

    def _leaks(
        self, fields: Iterable[Field], facts: Iterable[tuple[str, Fact]], known: Known
    ) -> Iterator[str]:
        for at in fields:
            leaks = [
                f"{when}{fact.name} {_shown(found)} in {at.where}"
                for when, fact in facts
                for found in fact.find(at)
                if not fact.known(found, known)
            ]
            yield from leaks
            if self.unfounded and not leaks and (made_up := unfounded(at, known)):
                yield f"unfounded id {_shown(made_up)} in {at.where}"


def _fields(message: Message) -> Iterator[Field]:
    """Everything a message says, each part by itself."""
    yield Field("content", document(message.content))
    yield Field("reasoning", document(message.reasoning))
    for call in message.tool_calls:
        # Once as it is, for names of functions, and once as words.
        for name in dict.fromkeys((call.name, call.name.replace("_", " "))):
            yield Field("tool name", document(name), argument=True)
        arguments = call.arguments if isinstance(call.arguments, Mapping) else {"": call.arguments}
        for name, value in arguments.items():
            yield Field("argument name", document(str(name)), argument=True)
            for leaf in leaves(value):
                yield Field(f"argument {_shown(str(name))}", document(leaf), True, value=True)
        values = list(leaves(call.arguments, keys=False))
        if len(values) > 1:
            for between in (" ", ""):
                whole = document(between.join(values))
                yield Field("arguments together", whole, argument=True, joined=True)


def _known(history: History, draft: Turn) -> Iterator[Document]:
    for message in (*history.messages, draft.message):
        yield document(message.content)
        if message.reasoning:
            yield document(message.reasoning)
        for call in message.tool_calls:
            yield document("\n".join((call.name, *leaves(call.arguments))))
    for tool in history.tools:
        yield _schema(tool)


_schemas: dict[int, tuple[Tool, Document]] = {}


def _schema(tool: Tool) -> Document:
    """All words of a tool. It cannot be a key (its schema is a mapping), but the object stays."""
    kept = _schemas.get(id(tool))
    if kept is None or kept[0] is not tool:
        if len(_schemas) >= 1024:
            _schemas.clear()
        words = "\n".join((tool.name, tool.description, *leaves(tool.parameters)))
        kept = _schemas[id(tool)] = tool, document(words)
    return kept[1]


def _shown(value: str) -> str:
    return repr(value[:60]).encode("utf-8", "backslashreplace").decode("utf-8")
