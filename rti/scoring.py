"""`[intervention] score_by = "trainer"`: sampling by the policy, logprobs by the trainer.

A vLLM server computes a prompt's whole prefill again to tell its logprobs, in kernels of its own;
the trainer's logprobs are those that the importance ratio is taken against later. Every number of
a corrected turn still comes from one backend and one version of the weights.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from rti.errors import ConfigError, StaleVersionError
from rti.interfaces import Policy
from rti.types import Completion, Floats, Ids, RequestKey, SamplingParams

Score = Callable[[Sequence[Ids], Sequence[Ids]], Sequence[Floats]]


@define
class TrainerScores:
    """A policy whose `score` asks the trainer. Everything else is the policy's own affair.

    `trainer` is called once, at the first score: where nothing is scored none is built.
    """

    inner: Policy
    trainer: Callable[[], Any]
    _score: Score | None = field(init=False, default=None)
    _scored: int = field(init=False, default=0)

    @property
    def version(self) -> int:
        """Version of the policy's weights. Between two updates the trainer's are the same."""
        return self.inner.version

    @property
    def usage(self) -> Mapping[str, float]:
        """The policy's counters; `scored_tokens` counts the trainer's too."""
        counts = dict(self.inner.usage)
        return {**counts, "scored_tokens": counts.get("scored_tokens", 0.0) + self._scored}

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        """By the policy."""
        return await self.inner.sample(prompts, params, keys, stop)

    async def score(
        self, prompts: Sequence[Ids], completions: Sequence[Ids], version: int
    ) -> list[Floats]:
        """By the trainer, under the weights of `version` or not at all."""
        if version != self.version:
            raise StaleVersionError(
                f"asked to score under policy version {version}, but the weights are version "
                f"{self.version}"
            )
        if self._score is None:
            trainer = self.trainer()
            self._score = getattr(trainer, "score", None)
            if self._score is None:
                raise ConfigError(
                    f'[intervention] score_by = "trainer": {type(trainer).__name__} cannot score. '
                    'Choose another trainer, or score_by = "policy".'
                )
        self._scored += sum(map(len, completions))
        return [tuple(logprobs_T) for logprobs_T in self._score(prompts, completions)]

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """To the policy."""
        await self.inner.load(weights, version)

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        """By the policy."""
        return await self.inner.gather(coroutines)

    def describe(self) -> str:
        """The policy's own words, and who scores."""
        words = getattr(self.inner, "describe", None)
        return ", ".join(filter(None, (words() if words else "", "scores by the trainer")))

    async def sleep(self) -> None:
        """To the policy, where it can."""
        await maybe(self.inner, "sleep")

    async def close(self) -> None:
        """To the policy, where it can."""
        await maybe(self.inner, "close")


async def maybe(part: Any, method: str) -> None:
    """Await an optional method of a plug-in."""
    function = getattr(part, method, None)
    if function is not None:
        await function()
