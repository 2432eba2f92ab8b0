"""Self-intervention: the run's own live policy plays Validator, Corrector and Verifier."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from rti import (
    Context,
    Correction,
    Diagnosis,
    Evidence,
    History,
    Ids,
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
from rti.roles import (
    RolePrompt,
    load_template,
    prompts_source,
    read_diagnosis,
    read_verdict,
    schema_of,
)

__all__ = ["SelfCorrector", "SelfValidator", "SelfVerifier"]

_PROMPTS = "Folder of role prompts; empty: the environment's own, else those shipped here."


@define
class _Role:
    """What the three roles share: a template, and the live policy to ask."""

    prompts: str = option("", _PROMPTS, anything)
    max_new_tokens: int = option(0, "Most tokens of the reply; 0: as the prompt says.", at_least(0))
    _prompt: RolePrompt = field(init=False, default=None, repr=False)
    _context: Context = field(init=False, default=None, repr=False)

    def _bind(self, context: Context, role: str) -> None:
        template = load_template(role, prompts_source(self.prompts, context.environment))
        self._prompt, self._context = RolePrompt(template, context.renderer), context

    async def _ask(self, prompt: Ids, key: RequestKey) -> Ids:
        template = self._prompt.template
        params = SamplingParams(
            self.max_new_tokens or template.max_new_tokens, schema=schema_of(template)
        )
        [reply] = await self._context.policy.sample(
            [prompt], params, [key.child(role=template.role)], self._context.renderer.stop_ids
        )
        return reply.token_ids


@define
class SelfValidator(_Role):
    """Asks the run's own policy whether a turn derails the rollout."""

    def bind(self, context: Context) -> None:
        """Load the role prompt."""
        self._bind(context, "validator")

    async def validate(self, turn: Turn, history: History, evidence: Evidence) -> Diagnosis:
        """A reply that cannot be read flags nothing."""
        prompt = self._prompt.ids(history, turn, evidence=evidence.text)
        reply = await self._ask(prompt, history.key)
        return read_diagnosis(self._prompt.template, self._prompt.text(reply))


@define
class SelfCorrector(_Role):
    """Has the run's own policy write the turn again, raw, in its own format."""

    def bind(self, context: Context) -> None:
        """Load the role prompt."""
        self._bind(context, "corrector")

    async def correct(
        self, draft: Turn, diagnosis: Diagnosis, history: History, tools: Sequence[Tool]
    ) -> Correction | None:
        """The sampled ids as they are.

        Raises:
            NoCorrection: when the turn did not come to its end.
        """
        prompt = self._prompt.ids(
            history, draft, direction=diagnosis.direction, kind=diagnosis.kind
        )
        ids = await self._ask(prompt, history.key)
        template, model = self._prompt.template, self._context.model.path
        stamp = Provenance("correction", "self", "rti-rl", model, template.digest)
        return self._prompt.correction(prompt, ids, draft, stamp)


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
        prompt = self._prompt.ids(history, draft, correction, evidence=evidence.text)
        reply = await self._ask(prompt, history.key)
        return read_verdict(self._prompt.template, self._prompt.text(reply))
