"""The vLLM policy: options, versions and counters over servers or an engine in this process."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from rti import (
    Completion,
    ConfigError,
    Context,
    Floats,
    Ids,
    RequestKey,
    RtiError,
    SamplingParams,
    StaleVersionError,
    model_folder,
)
from rti.lockstep import Lockstep
from rti_vllm.settings import Settings

if TYPE_CHECKING:
    from rti_vllm.installed import Found
    from rti_vllm.local import Local
    from rti_vllm.remote import Remote

T = TypeVar("T")


@define
class VllmPolicy(Settings):
    """Samples and scores with vLLM: a server started here, servers of others, or in process."""

    _version: int = field(init=False, default=0)
    _epoch: int = field(init=False, default=0)
    _counts: dict[str, float] = field(
        init=False,
        factory=lambda: {"sampled_tokens": 0.0, "scored_tokens": 0.0, "stale_samples": 0.0},
    )
    _found: Found | None = field(init=False, default=None)
    _remote: Remote | None = field(init=False, default=None, repr=False)
    _local: Local | None = field(init=False, default=None, repr=False)
    _lockstep: Lockstep[Any, Any] = field(init=False, default=None, repr=False)

    def bind(self, context: Context) -> None:
        """Look for vLLM and set up. A server is started by the first load, sample or score.

        Raises:
            ConfigError: for options that do not go together.
            PluginError: when vLLM is needed here and missing.
        """
        from rti_vllm.installed import find_vllm
        from rti_vllm.weights import Exporter, WeightFolders

        source = model_folder(context.model.path)
        if self.mode == "local" and (self.base_urls or self.python):
            raise ConfigError(
                '[policy] (vllm) mode = "local" runs vLLM in this process: leave out base_urls '
                'and python, or set mode = "server".'
            )
        if not self.base_urls:
            self._found = find_vllm("" if self.mode == "local" else self.python)
            if self.sleep_mode and self._found.on_cpu:
                raise ConfigError(
                    f"[policy] (vllm) sleep_mode = true frees a GPU, and {self._found} runs on the "
                    "CPU: leave it out."
                )
        exporter = Exporter(source, untie=self._found is not None and self._found.on_cpu)
        root = context.out / "vllm" if context.out else Path(tempfile.gettempdir()) / "rti-vllm"
        folders = WeightFolders(Path(self.weights_dir) if self.weights_dir else root)
        launch = self.launch(context)
        if self.mode == "local":
            from rti_vllm.local import Local

            assert self._found is not None
            self._local = Local(launch, self._found, exporter, folders, self.score_cached)
            self._lockstep = Lockstep(self._local.run)
            return
        from rti_vllm.client import Client
        from rti_vllm.fleet import Fleet
        from rti_vllm.launch import SERVED_NAME
        from rti_vllm.remote import Remote
        from rti_vllm.server import Server

        server = None
        if self._found is not None:
            server = Server(launch, self._found, root / f"server-{os.getpid()}.log")
        client = Client(
            tuple(self.base_urls) or ("http://127.0.0.1",),
            timeout_s=self.timeout_s,
            retries=self.retries,
            connections=self.connections,
            model=self.served_model if server is None else SERVED_NAME,
        )
        fleet = Fleet(client, exporter, folders, server, self.max_restarts, self.sleep_mode)
        self._remote = Remote(fleet, self.score_cached)

    @property
    def version(self) -> int:
        """Number of updates behind the weights."""
        return self._version

    @property
    def usage(self) -> Mapping[str, float]:
        """Counters.

        Tokens sampled and scored; stale samples (the weights changed while they were under way);
        scores that the cache could not give; pushes and restarts; and seconds: of requests (their
        sum, so that sixty-four together count sixty-four times) or of the engine, of pushes, of
        starts.
        """
        if self._remote is not None:
            return {**self._counts, **self._remote.usage}
        return {**self._counts, **(self._local.counts if self._local is not None else {})}

    def describe(self) -> str:
        """Which vLLM this is, in words."""
        if self.base_urls:
            return f"vLLM at {', '.join(self.base_urls)}"
        where = "in this process" if self.mode == "local" else "as a server of its own"
        return f"{self._found} {where}"

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        """One completion a prompt, with the version its last try was dispatched under.

        With `params.schema` the logprobs are those of the constrained distribution.

        Raises:
            InfrastructureError: when no server answers within the bound of tries.
            RunError: for a prompt that does not fit, or a server that is not set up for this.
        """
        from rti_vllm.wire import completion_of

        pairs = list(zip(prompts, keys, strict=True))
        if self._local is not None:
            from rti_vllm.local import SampleRequest

            order = [
                (0, key.task, key.rollout, key.turn, key.role, key.attempt, prompt)
                for prompt, key in pairs
            ]
            batch = [SampleRequest(prompt, params, key, stop) for prompt, key in pairs]
            sampled = _or_raise(await self._lockstep.call(order, batch))
            done = [completion_of(s, self._version) for s in sampled]
        else:
            done = await _all([self._sample_one(p, params, k, stop) for p, k in pairs])
        self._counts["sampled_tokens"] += sum(len(c.token_ids) for c in done)
        return done

    async def _sample_one(
        self, prompt: Ids, params: SamplingParams, key: RequestKey, stop: Ids
    ) -> Completion:
        from rti_vllm.wire import completion_of

        assert self._remote is not None
        seen = _Dispatch(self)
        sampled = await self._remote.sample(prompt, params, key, stop, seen.note)
        self._counts["stale_samples"] += seen.stale
        return completion_of(sampled, seen.version)

    async def score(
        self, prompts: Sequence[Ids], completions: Sequence[Ids], version: int
    ) -> list[Floats]:
        """Logprobs of completions, under the weights of `version` or not at all."""
        self._check(version, self._version)
        pairs = list(zip(prompts, completions, strict=True))
        if self._local is not None:
            from rti_vllm.local import ScoreRequest

            order = [(1, "", 0, 0, "", 0, prompt + completion) for prompt, completion in pairs]
            batch = [ScoreRequest(prompt, completion) for prompt, completion in pairs]
            scores: list[Floats] = _or_raise(await self._lockstep.call(order, batch))
        else:
            scores = await _all([self._score_one(p, c, version) for p, c in pairs])
        self._counts["scored_tokens"] += sum(map(len, completions))
        return scores

    async def _score_one(self, prompt: Ids, completion: Ids, version: int) -> Floats:
        assert self._remote is not None
        seen = _Dispatch(self)
        scores = await self._remote.score(prompt, completion, seen.note)
        if seen.stale:
            self._check(version, None)
        self._check(version, seen.version)
        return scores

    def _check(self, asked: int, held: int | None) -> None:
        if asked != held:
            now = "the weights changed meanwhile" if held is None else f"they are version {held}"
            raise StaleVersionError(
                f"asked to score under the weights of version {asked}, but {now}: PPL, token "
                "weights and rollout_logprobs must come from the version that sampled the draft"
            )

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Push weights to every server (or into the engine) and empty the prefix caches."""
        self._epoch += 2 - (self._epoch + 1) % 2  # odd while weights change, and if that fails
        if self._local is not None:
            self._local.load(weights)
        else:
            assert self._remote is not None
            await self._remote.fleet.load(weights)
        self._version = version
        self._epoch += 1

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        """Run episodes together; results in order. The first error is raised once all ended."""
        if self._local is not None:
            return await self._lockstep.gather(coroutines)
        return await _all(coroutines)

    async def sleep(self) -> None:
        """Free the GPU until the next load, with `sleep_mode`."""
        if self._local is not None:
            self._local.sleep()
        elif self._remote is not None:
            await self._remote.fleet.sleep()

    async def close(self) -> None:
        """End what was started here."""
        if self._local is not None:
            self._local.close()
        elif self._remote is not None:
            await self._remote.fleet.close()


@define
class _Dispatch:
    """What the policy held when a request was last sent."""

    policy: Any
    version: int = field(init=False, default=0)
    epoch: int = field(init=False, default=0)

    def note(self) -> None:
        self.version, self.epoch = self.policy._version, self.policy._epoch

    @property
    def stale(self) -> bool:
        """Whether weights changed, or were changing, between then and now."""
        return self.epoch != self.policy._epoch or self.epoch % 2 == 1


async def _all(coroutines: Sequence[Awaitable[T]]) -> list[T]:
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _or_raise(results: Sequence[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, RtiError):
            raise result
    return list(results)
