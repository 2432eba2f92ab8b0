"""A teacher plays Validator, Corrector and Verifier: same prompts as `rti_self`, another mouth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from attrs import define, field

from rti import (
    Context,
    Correction,
    Diagnosis,
    Evidence,
    History,
    NoCorrection,
    Privileged,
    Provenance,
    Renderer,
    Tool,
    Turn,
    Verdict,
    anything,
    at_least,
    option,
)
from rti.roles import (
    RolePrompt,
    load_template,
    prompts_source,
    read_diagnosis,
    read_verdict,
    schema_of,
    without_thought,
)
from rti_teacher.budget import Tokens
from rti_teacher.corrections import frozen_turn, turn_of
from rti_teacher.endpoint import Ask, Endpoint
from rti_teacher.probe import probe
from rti_teacher.transport import CHAT, COMPLETION
from rti_teacher.wire import Reply, completion_prompt, conversation, cut, stop_words

__all__ = ["TeacherCorrector", "TeacherValidator", "TeacherVerifier"]

FORGED = "forged-token"
"""Why somebody is not asked: text in the prompt would pass for a special token."""


@define
class _Role:
    """What the three roles share: a template, and an endpoint to ask."""

    extra: ClassVar[str] = "teacher"

    prompts: str = option(
        "", "Folder of role prompts; empty: the environment's own, else those shipped here.",
        anything,
    )  # fmt: skip
    max_new_tokens: int = option(0, "Most tokens of the reply; 0: as the prompt says.", at_least(0))
    model: str = option("", "The teacher's model for this role; empty: [teacher] model.", anything)
    base_url: str = option("", "Its endpoint for this role; empty: [teacher] base_url.", anything)
    key_env: str = option(
        "", "Environment variable of its key for this role; empty: [teacher] key_env.", anything
    )
    _prompt: RolePrompt = field(init=False, default=None, repr=False)
    _endpoint: Endpoint = field(init=False, default=None, repr=False)
    _default_model: str = field(init=False, default="", repr=False)

    def _bind(self, context: Context, role: str) -> None:
        import openai  # noqa: F401 - a missing extra is to be told now, not at the first repair

        template = load_template(role, prompts_source(self.prompts, context.environment))
        self._prompt = RolePrompt(template, context.renderer)
        self._endpoint = Endpoint.shared(context, self.base_url, self.key_env)
        self._default_model = context.teacher.model if context.teacher else ""

    @property
    def spent(self) -> str:
        """Why the teacher can be asked no more, or ""."""
        return self._endpoint.budget.spent

    @property
    def usage(self) -> Mapping[str, float]:
        """Counters of all the run's teachers together; they only grow."""
        return self._endpoint.budget.usage

    @property
    def notes(self) -> Sequence[str]:
        """What the run's teachers turned out not to understand."""
        return tuple(self._endpoint.budget.notes)

    async def check(self) -> list[tuple[str, str]]:
        """Findings for `rti doctor`, as (level, text). At most 3 small requests an endpoint."""
        chats = self._prompt.template.mode == "chat"
        return await probe(self._endpoint, self.model or self._default_model, chats)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.transport.close()

    async def _served(self) -> str:
        return await self._endpoint.model(self.model or self._default_model)

    async def _ask(
        self,
        history: History,
        draft: Turn,
        correction: Correction | None = None,
        tools: Sequence[Tool] = (),
        native: bool = True,
        **fields: str,
    ) -> Reply | None:
        """The reply; None where the prompt cannot go out as text."""
        template, renderer = self._prompt.template, self._prompt.renderer
        plain: Mapping[str, Any] | None = None
        if template.mode == "chat":
            path = CHAT
            messages = self._prompt.messages(history, draft, correction, **fields)
            body, plain = conversation(messages, tools, renderer, native)
        else:
            path = COMPLETION
            prompt = completion_prompt(
                renderer, self._prompt.ids(history, draft, correction, **fields)
            )
            if prompt is None:
                return None
            body = {"prompt": prompt, "stop": stop_words(renderer)}
        most = self.max_new_tokens or template.max_new_tokens
        asked = Ask(
            path,
            body,
            Tokens(_count(renderer, body, exact=self._endpoint.budget.limited), most),
            history.key.child(role=template.role).seed64(),
            schema_of(template),
            plain,
        )
        return await self._endpoint.ask(asked, await self._served())

    def _answer(self, reply: Reply | None) -> str:
        """A judge's words."""
        return without_thought(cut(self._prompt.renderer, reply.text)) if reply else ""


def _count(renderer: Renderer, body: Mapping[str, Any], exact: bool) -> int:
    """Tokens of a prompt: by the student's tokenizer or by its length, whichever is more.

    The teacher's own tokenizer is not known here; what a request really took comes with its reply.
    """
    text = "\n".join(_texts({k: v for k, v in body.items() if k != "stop"}))
    rough = math.ceil(len(text) / 4)
    return max(rough, len(renderer.encode(text))) if exact else rough


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)


@define
class TeacherValidator(_Role):
    """Asks a teacher whether a turn derails the rollout."""

    def bind(self, context: Context) -> None:
        """Load the role prompt, and share the run's endpoint."""
        self._bind(context, "validator")

    async def validate(self, turn: Turn, history: History, evidence: Evidence) -> Diagnosis:
        """A reply that cannot be read flags nothing.

        Raises:
            InfrastructureError: the teacher gave no answer, or its budget is spent.
        """
        reply = await self._ask(history, turn, evidence=evidence.text)
        if reply is None:
            return Diagnosis(False, parsed=False, problem=FORGED)
        return read_diagnosis(self._prompt.template, self._answer(reply))


@define
class TeacherCorrector(_Role):
    """Has a teacher write the turn again; the student's Renderer tokenises it once.

    Tool calls come through the endpoint's own tool calling where it has one, else as text in the
    student's format. The teacher's private thinking is no part of the turn.
    """

    native_tools: bool = option(
        True, "Let the endpoint call the agent's tools in its own way; else as text.", anything
    )

    def bind(self, context: Context) -> None:
        """Load the role prompt, and share the run's endpoint."""
        self._bind(context, "corrector")

    async def correct(
        self, draft: Turn, diagnosis: Diagnosis, history: History, tools: Sequence[Tool]
    ) -> Correction | None:
        """The teacher's turn in the student's tokens, under the student's corrector prompt.

        Raises:
            NoCorrection: the turn is unfinished, empty, or cannot be said in the student's format.
            InfrastructureError: the teacher gave no answer, or its budget is spent.
        """
        fields = {"direction": diagnosis.direction, "kind": diagnosis.kind}
        reply = await self._ask(history, draft, None, tools, self.native_tools, **fields)
        if reply is None:
            raise NoCorrection(FORGED)
        renderer, template = self._prompt.renderer, self._prompt.template
        message = turn_of(reply, cut(renderer, reply.text), renderer, tools)
        ids, message = frozen_turn(message, renderer)
        return Correction(
            completion_ids=ids,
            message=message,
            corrector_prompt_ids=self._prompt.ids(history, draft, None, **fields),
            provenance=Provenance(
                "correction", "teacher", "rti-rl", await self._served(), template.digest
            ),
        )


@define
class TeacherVerifier(_Role):
    """Asks a teacher whether a correction may be learned from."""

    def bind(self, context: Context) -> None:
        """Load the role prompt, and share the run's endpoint."""
        self._bind(context, "verifier")

    async def verify(
        self,
        correction: Correction,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> Verdict:
        """A reply that cannot be read rejects. Privileged facts are told to nobody.

        Raises:
            InfrastructureError: the teacher gave no answer, or its budget is spent.
        """
        reply = await self._ask(history, draft, correction, evidence=evidence.text)
        if reply is None:
            return Verdict(False, "not asked", parsed=False, problem=FORGED)
        return read_verdict(self._prompt.template, self._answer(reply))
