"""vLLM in this process: `vllm.LLM` under lockstep batching."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from rti import (
    Floats,
    Ids,
    InfrastructureError,
    RequestKey,
    RtiError,
    RunError,
    SamplingParams,
)
from rti_vllm import wire
from rti_vllm.installed import Found
from rti_vllm.launch import Launch
from rti_vllm.weights import Exporter, WeightFolders
from rti_vllm.wire import BadReply, Sampled


@frozen
class SampleRequest:
    """One prompt to complete."""

    prompt: Ids
    params: SamplingParams
    key: RequestKey
    stop: Ids


@frozen
class ScoreRequest:
    """One completion to score after its prompt."""

    prompt: Ids
    completion: Ids


Request = SampleRequest | ScoreRequest


@define(eq=False)
class Local:
    """An engine in this process, started when it is first needed."""

    launch: Launch
    found: Found
    exporter: Exporter
    folders: WeightFolders
    score_cached: bool = True
    counts: dict[str, float] = field(
        factory=lambda: dict.fromkeys(
            ("engine_seconds", "scores_recomputed", "pushes", "push_seconds", "start_seconds"), 0.0
        )
    )
    _llm: Any = field(init=False, default=None, repr=False)
    _asleep: bool = field(init=False, default=False)

    def run(self, requests: list[Request]) -> list[Sampled | Floats | RtiError]:
        """Sample and score one batch; a request that cannot be served has its error as result."""
        llm = self._open()
        longest = llm.llm_engine.model_config.max_model_len
        results: dict[int, Sampled | Floats | RtiError] = {
            i: _too_long(request, longest)
            for i, request in enumerate(requests)
            if _length(request) >= longest
        }
        samples = [
            (i, r) for i, r in enumerate(requests) if isinstance(r, SampleRequest)
            if i not in results
        ]  # fmt: skip
        scores = [
            (i, r) for i, r in enumerate(requests) if isinstance(r, ScoreRequest)
            if i not in results
        ]  # fmt: skip
        results |= self._sample(samples)
        results |= self._score(scores)
        return [results[i] for i in range(len(requests))]

    def _sample(
        self, requests: Sequence[tuple[int, SampleRequest]]
    ) -> dict[int, Sampled | Floats | RtiError]:
        outputs = self._generate(
            [r.prompt for _, r in requests], [_sampling(r) for _, r in requests]
        )
        results: dict[int, Sampled | Floats | RtiError] = {}
        for (i, request), output in zip(requests, outputs, strict=True):
            answer = output.outputs[0]
            ids = tuple(answer.token_ids)
            logprobs = [
                step[token].logprob for token, step in zip(ids, answer.logprobs, strict=True)
            ]
            try:
                results[i] = wire.checked(
                    ids, logprobs, answer.finish_reason, request.stop, request.params.schema
                )
            except BadReply as error:
                results[i] = InfrastructureError(f"[policy] (vllm) in this process: {error}")
        return results

    def _score(
        self, requests: Sequence[tuple[int, ScoreRequest]]
    ) -> dict[int, Sampled | Floats | RtiError]:
        results: dict[int, Sampled | Floats | RtiError] = {}
        for cached in (True, False) if self.score_cached else (False,):
            left = [(i, r) for i, r in requests if i not in results]
            if not cached and self.score_cached:
                self.counts["scores_recomputed"] += len(left)
            texts = [r.prompt + r.completion for _, r in left]
            outputs = self._generate(texts, [_scoring(cached)] * len(left))
            for (i, request), output in zip(left, outputs, strict=True):
                if cached and (output.num_cached_tokens or 0) >= len(request.prompt):
                    continue
                try:
                    results[i] = wire.completion_scores(output.prompt_logprobs, request.completion)
                except BadReply as error:
                    if not cached:
                        results[i] = InfrastructureError(
                            f"[policy] (vllm) in this process: {error}"
                        )
        return results

    def _generate(self, texts: Sequence[Ids], params: Sequence[Any]) -> Sequence[Any]:
        if not texts:
            return ()
        began = time.perf_counter()
        try:
            prompts = [{"prompt_token_ids": list(ids)} for ids in texts]
            outputs: Sequence[Any] = self._llm.generate(prompts, list(params), use_tqdm=False)
            return outputs
        except Exception as error:  # whatever vLLM raises, the engine is not to be trusted again
            raise RunError(
                f"[policy] (vllm) vLLM in this process failed: {type(error).__name__}: {error}. "
                "Go on with --resume; with mode = 'server' a run outlives this."
            ) from error
        finally:
            self.counts["engine_seconds"] += time.perf_counter() - began

    def load(self, weights: Mapping[str, Any]) -> None:
        """Hand the weights over in memory, and forget what was cached of the old ones.

        Raises:
            RunError: when vLLM does not take them.
        """
        began = time.perf_counter()
        llm = self._open()
        tensors = self.exporter.tensors(weights)
        if self._asleep:
            llm.wake_up()
            self._asleep = False
        try:
            llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(tensors.items())})
        except Exception as error:  # vLLM raises what its workers raised
            raise RunError(
                f"[policy] (vllm) vLLM did not take the new weights: {type(error).__name__}: "
                f"{error}"
            ) from error
        if llm.reset_prefix_cache() is False:
            raise RunError("[policy] (vllm) vLLM's prefix cache still holds the old weights' keys.")
        self.counts["pushes"] += 1
        self.counts["push_seconds"] += time.perf_counter() - began

    def sleep(self) -> None:
        """Free the accelerator until the next load."""
        if self._llm is not None and self.launch.sleep and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def close(self) -> None:
        """Drop the engine and the weights folder."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
        self.folders.remove()

    def _open(self) -> Any:
        if self._llm is not None:
            if self._asleep:
                self._llm.wake_up()
                self._asleep = False
            return self._llm
        began = time.perf_counter()
        os.environ.update(
            self.launch.settings(self.found) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        )
        from vllm import LLM

        self._llm = LLM(model=str(self._folder()), **self.launch.arguments_of_llm(self.found))
        self.counts["start_seconds"] += time.perf_counter() - began
        return self._llm

    def _folder(self) -> Path:
        if not self.exporter.unties:
            return self.exporter.source
        folder = self.folders.next()
        self.exporter.write(folder)
        return folder


def _length(request: Request) -> int:
    after = len(request.completion) if isinstance(request, ScoreRequest) else 0
    return len(request.prompt) + after


def _too_long(request: Request, longest: int) -> RtiError:
    text = (
        f"[policy] (vllm) a text of {_length(request)} tokens does not fit into max_model_len = "
        f"{longest}."
    )
    if isinstance(request, SampleRequest) and request.key.role == "agent":
        return RunError(f"{text} Set [rollout] max_context below it, or raise max_model_len.")
    return InfrastructureError(f"{text} Raise [policy] max_model_len.")


def _sampling(request: SampleRequest) -> Any:
    from vllm import SamplingParams as Params
    from vllm.sampling_params import StructuredOutputsParams

    given = wire.sampling(request.params, request.key, request.stop)
    if request.params.schema:
        schema = wire.parse_schema(request.params.schema)
        given["structured_outputs"] = StructuredOutputsParams(json=schema)
    return Params(**given, detokenize=False)


def _scoring(cached: bool) -> Any:
    from vllm import SamplingParams as Params

    return Params(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        detokenize=False,
        skip_reading_prefix_cache=not cached,
    )
