"""Self-intervention: the run's own live policy plays Validator, Corrector and Verifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from attrs import define, field

from rti import (
    Context,
    Correction,
    Diagnosis,
    Evidence,
    History,
    Ids,
    Message,
    Privileged,
    Provenance,
    RequestKey,
    SamplingParams,
    Tool,
    Turn,
    Verdict,
    anything,
    at_least,
    option,
)
from rti_self.answers import read_diagnosis, read_verdict
from rti_self.templates import SPLICED, Template, load_template

__all__ = ["SelfCorrector", "SelfValidator", "SelfVerifier"]

_PROMPTS = "Folder of role prompts; empty: the environment's own, else those shipped here."


@define
class _Role:
    """What the three roles share: a template, and the live policy to ask."""

    prompts: str = option("", _PROMPTS, anything)
    max_new_tokens: int = option(0, "Most tokens of the reply; 0: as the prompt says.", at_least(0))
    _template: Template = field(init=False, default=None, repr=False)
    _context: Context = field(init=False, default=None, repr=False)

    def _bind(self, context: Context, role: str) -> None:
        source = self.prompts or getattr(context.environment, "prompts", "") or "rti_self"
        self._template, self._context = load_template(role, source), context

    async def _ask(self, prompt: Ids, key: RequestKey) -> Ids:
        template = self._template
        params = SamplingParams(self.max_new_tokens or template.max_new_tokens)
        [reply] = await self._context.policy.sample(
            [prompt], params, [key.child(role=template.role)], self._context.renderer.stop_ids
        )
        return reply.token_ids

    def _text(self, ids: Ids) -> str:
        renderer = self._context.renderer
        return renderer.decode([i for i in ids if i not in renderer.stop_ids])

    def _prompt(
        self, history: History, draft: Turn, correction: Correction | None = None, **fields: str
    ) -> Ids:
        template, renderer = self._template, self._context.renderer
        spliced = {"history": history.prompt_ids, "draft": draft.completion_ids}
        if correction is not None:
            spliced["correction"] = correction.completion_ids
        if template.mode == "continue":
            ids: list[int] = []
            for i, piece in enumerate(SPLICED.split(template.text)):
                text = template.fill(fields, piece)
                ids += spliced[piece] if i % 2 else renderer.encode(text)
            return tuple(ids)
        fence = _fence(history)
        fields["fence"] = fence
        fields["tools"] = _tools(history.tools)
        said = {
            "history": _transcript(history.messages),
            "draft": _said(draft.message),
            "correction": _said(correction.message) if correction else "",
        }
        # A splice is put in after the fields, and never looked into: what a user or a tool said
        # cannot name a field.
        messages = []
        for role, text in template.parts():
            filled = [
                said[piece].replace(fence, "") if i % 2 else template.fill(fields, piece)
                for i, piece in enumerate(SPLICED.split(text))
            ]
            messages.append(Message("system" if role == "system" else "user", "".join(filled)))
        return renderer.prompt(messages)


@define
class SelfValidator(_Role):
    """Asks the run's own policy whether a turn derails the rollout."""

    def bind(self, context: Context) -> None:
        """Load the role prompt."""
        self._bind(context, "validator")

    async def validate(self, turn: Turn, history: History, evidence: Evidence) -> Diagnosis:
        """A reply that cannot be read flags nothing."""
        prompt = self._prompt(history, turn, evidence=evidence.text)
        reply = await self._ask(prompt, history.key)
        return read_diagnosis(self._template, self._text(reply))


@define
class SelfCorrector(_Role):
    """Has the run's own policy write the turn again, raw, in its own format."""

    def bind(self, context: Context) -> None:
        """Load the role prompt."""
        self._bind(context, "corrector")

    async def correct(
        self, draft: Turn, diagnosis: Diagnosis, history: History, tools: Sequence[Tool]
    ) -> Correction | None:
        """The sampled ids as they are; None when the turn did not come to its end."""
        prompt = self._prompt(history, draft, direction=diagnosis.direction, kind=diagnosis.kind)
        ids = await self._ask(prompt, history.key)
        if not ids or ids[-1] not in self._context.renderer.stop_ids:
            return None
        return Correction(
            completion_ids=ids,
            message=self._context.renderer.parse(ids),
            corrector_prompt_ids=prompt,
            provenance=Provenance(
                "correction", "self", "rti-rl", self._context.model.path, self._template.digest
            ),
        )


@define
class SelfVerifier(_Role):
    """Asks the run's own policy whether a correction may be learned from."""

    def bind(self, context: Context) -> None:
        """Load the role prompt."""
        self._bind(context, "verifier")

    async def verify(
        self,
        correction: Correction,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> Verdict:
        """A reply that cannot be read rejects. Privileged facts enter no prompt here."""
        prompt = self._prompt(history, draft, correction, evidence=evidence.text)
        reply = await self._ask(prompt, history.key)
        return read_verdict(self._template, self._text(reply))


def _fence(history: History) -> str:
    """A delimiter that tool and user text cannot guess: it hangs on the run's seed and the request.

    Drawn from the request and not from chance, or equal seeds would give unequal prompts.
    """
    digest = blake2b(repr(history.key).encode(), digest_size=6, person=b"rti-fence")
    return f"<<{digest.hexdigest()}>>"


def _transcript(messages: Sequence[Message]) -> str:
    return "\n".join(f"{m.role}: {_said(m)}" for m in messages if m.role != "system")


def _said(message: Message) -> str:
    calls = [
        "call " + json.dumps({"name": c.name, "arguments": dict(c.arguments)}, ensure_ascii=False)
        for c in message.tool_calls
    ]
    return "\n".join(filter(None, [message.content, *calls]))


def _tools(tools: Sequence[Tool]) -> str:
    listed: list[dict[str, Any]] = [
        {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
        for t in tools
        if t.owner == "agent"
    ]
    return "Tools:\n" + json.dumps(listed, ensure_ascii=False) if listed else ""
