"""Sampling and scoring over HTTP, and what a refusal means for the run."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from attrs import define, field

from rti import Floats, Ids, InfrastructureError, RequestKey, RtiError, RunError, SamplingParams
from rti_vllm import wire
from rti_vllm.client import Client
from rti_vllm.endpoint import Refused
from rti_vllm.fleet import Fleet
from rti_vllm.wire import Sampled

NOT_SCALED_OUT = frozenset({400, 403, 404, 405, 422})
"""How a server answers that does not offer scores on top of its prefix cache."""


@define(eq=False)
class Remote:
    """A policy's requests to the servers of a fleet."""

    fleet: Fleet
    score_cached: bool = True
    counts: dict[str, float] = field(factory=lambda: {"scores_recomputed": 0.0})

    @property
    def client(self) -> Client:
        """The connections to the fleet's servers."""
        return self.fleet.client

    @property
    def usage(self) -> dict[str, float]:
        """All counters."""
        return {**self.client.counts, **self.fleet.counts, **self.counts}

    async def sample(
        self,
        prompt: Ids,
        params: SamplingParams,
        key: RequestKey,
        stop: Ids,
        dispatched: Callable[[], None],
    ) -> Sampled:
        """One completion. Raises as `Client.ask`; what the server refuses is told by role."""
        await self.fleet.open()
        body = wire.sample_body(prompt, params, key, stop)
        try:
            return await self.client.ask(
                wire.COMPLETIONS,
                body,
                lambda reply: wire.read_completion(reply, stop, params.schema),
                near=zlib.crc32(f"{key.task}/{key.rollout}".encode()),
                dispatched=dispatched,
            )
        except Refused as refused:
            raise self._explained(refused, agent=key.role == "agent") from None

    async def score(self, prompt: Ids, completion: Ids, dispatched: Callable[[], None]) -> Floats:
        """Logprobs of a completion, on top of the prefix cache where the server can."""
        await self.fleet.open()
        ids, near = prompt + completion, zlib.crc32(repr(prompt).encode())
        try:
            if self.score_cached:
                found = await self._score_cached(prompt, completion, near, dispatched)
                if found is not None:
                    return found
                self.counts["scores_recomputed"] += 1
            return await self.client.ask(
                wire.COMPLETIONS,
                wire.score_body(ids),
                lambda reply: wire.read_scores(reply, completion),
                near=near,
                dispatched=dispatched,
            )
        except Refused as refused:
            raise self._explained(refused, agent=False) from None

    async def _score_cached(
        self, prompt: Ids, completion: Ids, near: int, dispatched: Callable[[], None]
    ) -> Floats | None:
        """One try; None when the tokens must be computed again."""
        try:
            return await self.client.ask(
                wire.GENERATE,
                wire.cached_score_body(prompt + completion),
                lambda reply: wire.read_cached_scores(reply, prompt, completion),
                near=near,
                tries=1,
                dispatched=dispatched,
            )
        except Refused as refused:
            if refused.too_long or refused.status not in NOT_SCALED_OUT:
                raise
            self.score_cached = False
        except InfrastructureError:
            pass  # the request that computes all of it again has tries of its own
        return None

    def _explained(self, refused: Refused, agent: bool) -> RtiError:
        if not refused.too_long:
            cure = " Set VLLM_API_KEY." if refused.status in (401, 403) else ""
            return RunError(f"[policy] (vllm) {refused}.{cure}")
        longest = max(e.max_model_len for e in self.client.endpoints)
        text = f"[policy] (vllm) {refused} The server's max_model_len is {longest}."
        if agent:
            return RunError(
                f"{text} Set [rollout] max_context below it, so that a rollout without room ends "
                "there, or serve with a longer one ([policy] max_model_len)."
            )
        # A role's prompt is longer than the rollout's: without room there is no intervention.
        return InfrastructureError(f"{text} Serve with a longer one ([policy] max_model_len).")
