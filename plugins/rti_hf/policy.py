"""The transformers policy: batches in lockstep, reuses prefixes, and knows its version."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import asdict, define, field

from rti import (
    Completion,
    Context,
    Floats,
    Ids,
    RequestKey,
    SamplingParams,
    StaleVersionError,
    above,
    at_least,
    option,
)
from rti.lockstep import Lockstep

if TYPE_CHECKING:
    from rti_hf.decoder import Decoder, SampleRequest, ScoreRequest


@define
class HfPolicy:
    """Samples and scores with a transformers model in this process."""

    extra: ClassVar[str] = "hf"

    max_rows: int = option(256, "Most sequences in one forward pass.", above(0))
    max_tokens: int = option(65536, "Most tokens, padding included, in one forward pass.", above(0))
    cache_mb: int = option(
        1024, "Megabytes of keys and values kept across turns; 0 keeps none.", at_least(0)
    )
    _version: int = field(init=False, default=0)
    _decoder: Decoder = field(init=False, default=None, repr=False)
    _lockstep: Lockstep[Any, Any] = field(init=False, default=None, repr=False)

    def bind(self, context: Context) -> None:
        """Load the model that [model] names."""
        from rti_hf.decoder import Decoder
        from rti_hf.forward import check_head
        from rti_hf.kvstore import KVStore
        from rti_hf.models import load_model

        at = context.model
        model = load_model(at.path, at.dtype, at.device, at.threads)
        check_head(model)
        self._decoder = Decoder(model, KVStore(self.cache_mb << 20), self.max_rows, self.max_tokens)
        self._lockstep = Lockstep(self._run)

    @property
    def version(self) -> int:
        """Number of updates behind the weights."""
        return self._version

    @property
    def usage(self) -> Mapping[str, float]:
        """Tokens sampled, scored, prefilled and reused so far, and seconds in forward calls."""
        return asdict(self._decoder.usage)

    def _run(self, requests: list[SampleRequest | ScoreRequest]) -> list[Completion | Floats]:
        from rti_hf.decoder import SampleRequest

        sample = [r for r in requests if isinstance(r, SampleRequest)]
        score = [r for r in requests if not isinstance(r, SampleRequest)]
        sampled = iter(self._decoder.sample(sample, self._version) if sample else ())
        scored = iter(self._decoder.score(score) if score else ())
        return [next(sampled) if isinstance(r, SampleRequest) else next(scored) for r in requests]

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        """One completion a prompt."""
        from rti_hf.decoder import SampleRequest

        order = [
            (0, key.task, key.rollout, key.turn, key.role, key.attempt, prompt)
            for prompt, key in zip(prompts, keys, strict=True)
        ]
        requests = [
            SampleRequest(prompt, params, key, stop)
            for prompt, key in zip(prompts, keys, strict=True)
        ]
        return await self._lockstep.call(order, requests)

    async def score(
        self, prompts: Sequence[Ids], completions: Sequence[Ids], version: int
    ) -> list[Floats]:
        """Logprobs of completions, under the weights of `version` or not at all."""
        from rti_hf.decoder import ScoreRequest

        if version != self._version:
            raise StaleVersionError(
                f"asked to score under policy version {version}, but the weights are version "
                f"{self._version}: PPL, token weights and rollout_logprobs must come from the "
                "version that sampled the draft"
            )
        pairs = list(zip(prompts, completions, strict=True))
        return await self._lockstep.call(
            [(1, "", 0, 0, "", 0, prompt + completion) for prompt, completion in pairs],
            [ScoreRequest(prompt, completion) for prompt, completion in pairs],
        )

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Copy weights in place and forget all keys and values of the old ones."""
        import torch

        with torch.no_grad():
            own = dict(self._decoder.model.named_parameters())
            for name, tensor in weights.items():
                with contextlib.suppress(KeyError):  # a tied head has no parameter of its own
                    own[name].copy_(tensor)
        self._decoder.store.clear()
        self._version = version

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        """Run episodes in lockstep."""
        return await self._lockstep.gather(coroutines)
