"""Batched sampling and scoring of a transformers model over reused prefixes.

Layout of one batch (row i has c_i reused and n_i new tokens, both padded on the left):

    | pad | c_i reused | pad | n_i new | generated …
    0               C              C+N

Positions are given explicitly, so the gaps are invisible to the model; a mask hides them.
All keys and values live in one tensor (layers, 2, rows, heads, columns, head_dim): a row is put
in, and taken out, by one copy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from attrs import define, field, frozen

from rti import Completion, Floats, Ids, RequestKey, RunError, SamplingParams
from rti_hf.kvstore import KVStore


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


@define
class Usage:
    """What the model has done so far."""

    sampled_tokens: int = 0
    scored_tokens: int = 0
    prefill_tokens: int = 0
    reused_tokens: int = 0
    forward_seconds: float = 0.0


class _Slots:
    """A transformers cache that writes into a preallocated buffer instead of growing by copies."""

    is_compileable = False

    def __init__(self, buffer: torch.Tensor, used: int) -> None:
        self.buffer, self.used = buffer, used

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        stop = self.used + keys.shape[2]
        layer = self.buffer[layer_idx]
        layer[0, :, :, self.used : stop] = keys
        layer[1, :, :, self.used : stop] = values
        return layer[0, :, :, :stop], layer[1, :, :, :stop]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.used

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.used

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.used + query_length, 0


@define
class _Prefill:
    """Rows after their new tokens went through the model."""

    hidden_B_N_D: torch.Tensor
    buffer: torch.Tensor
    valid_B_T: torch.Tensor
    reused_B: list[int]
    new_B: list[int]
    reused_width: int
    new_width: int

    @property
    def used(self) -> int:
        return self.reused_width + self.new_width


@define
class Decoder:
    """Samples and scores with one model. Equal requests give equal results, in equal batches."""

    model: Any
    store: KVStore
    max_rows: int
    max_tokens: int
    usage: Usage = field(factory=Usage)

    def __attrs_post_init__(self) -> None:
        config = self.model.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise RunError(
                f"[model] {config.model_type} has layers of kinds {sorted(kinds)}; the hf policy "
                "keeps its own key-value cache and handles models with full attention only."
            )

    # --- sampling ---------------------------------------------------------------------------

    @torch.inference_mode()
    def sample(self, requests: Sequence[SampleRequest], version: int) -> list[Completion]:
        """One completion a request, in order."""
        results: list[Completion | None] = [None] * len(requests)
        for chunk in self._chunks(
            [len(r.prompt) + r.params.max_new_tokens for r in requests],
            [(r.params, r.stop) for r in requests],
        ):
            for i, done in zip(
                chunk, self._sample_chunk([requests[i] for i in chunk], version), strict=True
            ):
                results[i] = done
        return [r for r in results if r is not None]

    def _sample_chunk(self, requests: list[SampleRequest], version: int) -> list[Completion]:
        params, stop = requests[0].params, requests[0].stop
        device = self.model.device
        rows = len(requests)
        room = params.max_new_tokens
        # The G rollouts of a group start from one prompt: compute it once, then copy the row.
        unique: dict[Ids, int] = {}
        owner = [unique.setdefault(r.prompt, len(unique)) for r in requests]
        state = self._prefill(list(unique), [len(p) - 1 for p in unique], room)
        last_B_D = state.hidden_B_N_D[:, -1]
        buffer, valid_B_T = state.buffer, state.valid_B_T
        if len(unique) < rows:
            index = torch.tensor(owner, device=device)
            last_B_D, valid_B_T = last_B_D[index], valid_B_T[index]
            buffer = buffer.index_select(2, index)
        cache = _Slots(buffer, state.used)
        uniforms_B_T = torch.from_numpy(
            np.stack([_uniforms(r.key, room) for r in requests]).T.copy()
        ).T.to(device)
        stops = torch.tensor(stop, device=device)
        position_B = torch.tensor([len(r.prompt) for r in requests], device=device)
        tokens: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        stopped = [False] * rows
        alive = list(range(rows))  # original row of each row of the batch
        head = self.model.get_output_embeddings()
        for t in range(room):
            logits_B_V = head(last_B_D).float()
            token_B, logprob_B = _draw(logits_B_V, uniforms_B_T[:, t], params)
            ends_B = torch.isin(token_B, stops)
            running: list[int] = []
            for b, (token, logprob, ends) in enumerate(
                zip(token_B.tolist(), logprob_B.tolist(), ends_B.tolist(), strict=True)
            ):
                i = alive[b]
                if stopped[i]:
                    continue
                tokens[i].append(token)
                logprobs[i].append(logprob)
                stopped[i] = ends
                if not ends:
                    running.append(b)
            if not running or t == room - 1:
                break
            if len(running) <= len(alive) // 2:
                kept = set(running)
                self._keep(requests, tokens, state, owner, cache.buffer, alive, kept)
                index = torch.tensor(running, device=device)
                alive = [alive[b] for b in running]
                cache.buffer = cache.buffer.index_select(2, index)
                token_B, valid_B_T = token_B[index], valid_B_T[index]
                uniforms_B_T, position_B = uniforms_B_T[index], position_B[index]
            seen = cache.used + 1
            last_B_D = self._forward(
                token_B[:, None], position_B[:, None] + t, valid_B_T[:, None, None, :seen], cache
            )[:, 0]
            cache.used = seen
        self._keep(requests, tokens, state, owner, cache.buffer, alive, set())
        self.usage.sampled_tokens += sum(map(len, tokens))
        return [
            Completion(tuple(ids), tuple(lps), "stop" if ended else "length", version)
            for ids, lps, ended in zip(tokens, logprobs, stopped, strict=True)
        ]

    def _keep(
        self,
        requests: list[SampleRequest],
        tokens: list[list[int]],
        state: _Prefill,
        owner: list[int],
        buffer: torch.Tensor,
        alive: list[int],
        but: set[int],
    ) -> None:
        """Store finished agent rows: only what an agent said is ever continued."""
        for b, i in enumerate(alive):
            if b in but or requests[i].key.role != "agent":
                continue
            reused, new = state.reused_B[owner[i]], state.new_B[owner[i]]
            generated = len(tokens[i]) - 1
            row = buffer[:, :, b]
            block = torch.cat(
                (
                    row[:, :, :, state.reused_width - reused : state.reused_width],
                    row[:, :, :, state.used - new : state.used + generated],
                ),
                dim=3,
            )
            ids = requests[i].prompt + tuple(tokens[i][:generated])
            self.store.put(ids, (len(requests[i].prompt) - 1,), block)

    # --- scoring ----------------------------------------------------------------------------

    @torch.inference_mode()
    def score(self, requests: Sequence[ScoreRequest]) -> list[Floats]:
        """Logprobs in nats, at temperature 1, of each completion's tokens."""
        results: list[Floats] = [()] * len(requests)
        lengths = [len(r.prompt) + len(r.completion) for r in requests]
        for chunk in self._chunks(lengths, [None] * len(requests)):
            part = [requests[i] for i in chunk]
            state = self._prefill(
                [r.prompt + r.completion for r in part], [len(r.prompt) - 1 for r in part], 0
            )
            wanted = [
                state.hidden_B_N_D[b, -len(r.completion) - 1 : -1] for b, r in enumerate(part)
            ]
            logits = self.model.get_output_embeddings()(torch.cat(wanted)).float()
            ids = torch.tensor([t for r in part for t in r.completion], device=logits.device)
            flat = logits.log_softmax(-1).gather(1, ids[:, None])[:, 0].tolist()
            at = 0
            for i, request in zip(chunk, part, strict=True):
                results[i] = tuple(flat[at : at + len(request.completion)])
                at += len(request.completion)
        self.usage.scored_tokens += sum(len(r.completion) for r in requests)
        return results

    # --- shared -----------------------------------------------------------------------------

    def _prefill(self, rows: list[Ids], reuse_at_most: list[int], room: int) -> _Prefill:
        """Run all tokens of `rows` that no stored prefix covers; leave `room` columns free."""
        device, dtype = self.model.device, self.model.dtype
        found = [self.store.longest(ids, n) for ids, n in zip(rows, reuse_at_most, strict=True)]
        reused = [length for length, _ in found]
        new = [len(ids) - length for ids, length in zip(rows, reused, strict=True)]
        C, N = max(reused), max(new)
        config = self.model.config.get_text_config()
        head_dim = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        shape = (config.num_hidden_layers, 2, len(rows), heads, C + N + room, head_dim)
        buffer = torch.zeros(shape, dtype=dtype, device=device)
        ids_B_N = torch.zeros(len(rows), N, dtype=torch.long)
        position_B_N = torch.zeros(len(rows), N, dtype=torch.long)
        valid_B_T = torch.zeros(len(rows), C + N + room, dtype=torch.bool)
        valid_B_T[:, C + N :] = True
        for b, (ids, (length, block)) in enumerate(zip(rows, found, strict=True)):
            if block is not None:
                buffer[:, :, b, :, C - length : C] = block
            ids_B_N[b, N - new[b] :] = torch.tensor(ids[length:])
            position_B_N[b, N - new[b] :] = torch.arange(length, len(ids))
            valid_B_T[b, C - length : C] = True
            valid_B_T[b, C + N - new[b] : C + N] = True
        valid_B_T = valid_B_T.to(device)
        # Nothing reused and nothing padded is plain causal attention, which has a faster kernel.
        plain = C == 0 and min(new) == N
        mask = None if plain else _mask(valid_B_T[:, : C + N], C, N)
        cache = _Slots(buffer, C)
        hidden = self._forward(ids_B_N.to(device), position_B_N.to(device), mask, cache)
        self.usage.prefill_tokens += sum(new)
        self.usage.reused_tokens += sum(reused)
        return _Prefill(hidden, buffer, valid_B_T, reused, new, C, N)

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        cache: _Slots,
    ) -> torch.Tensor:
        began = time.perf_counter()
        hidden: torch.Tensor = self.model.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        self.usage.forward_seconds += time.perf_counter() - began
        return hidden

    def _chunks(self, lengths: list[int], kinds: list[Any]) -> Iterator[list[int]]:
        """Rows of one kind and like length, at most `max_rows` and `max_tokens` together."""
        waiting = list(range(len(lengths)))
        while waiting:
            kind = kinds[waiting[0]]
            same = sorted((i for i in waiting if kinds[i] == kind), key=lambda i: -lengths[i])
            waiting = [i for i in waiting if kinds[i] != kind]
            while same:
                fit = max(1, min(self.max_rows, self.max_tokens // max(1, lengths[same[0]])))
                yield same[:fit]
                same = same[fit:]


def _mask(valid_B_K: torch.Tensor, reused: int, new: int) -> torch.Tensor:
    """Which keys each new token sees, shape (B, 1, new, reused + new)."""
    keys = reused + new
    causal = torch.ones(new, keys, dtype=torch.bool, device=valid_B_K.device).tril(reused)
    itself = torch.zeros(new, keys, dtype=torch.bool, device=valid_B_K.device)
    itself[:, reused:].fill_diagonal_(True)  # a padded query must see something, or it is NaN
    return ((causal & valid_B_K[:, None]) | itself)[:, None]


def _uniforms(key: RequestKey, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.Generator(np.random.Philox(key=key.seed64())).random(count)


def _draw(
    logits_B_V: torch.Tensor, uniform_B: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens by inverting the cumulative distribution, and their logprobs at temperature 1.

    One uniform number a token, from the request's own stream: who else is in the batch does not
    matter. The sum runs in float64, where 150k probabilities still add up.
    """
    logprobs_B_V = logits_B_V.log_softmax(-1)
    if params.temperature == 0:
        token_B = logits_B_V.argmax(-1)
    else:
        probs_B_V = (logits_B_V / params.temperature).softmax(-1).double()
        if params.top_p < 1:
            ordered, order = probs_B_V.sort(-1, descending=True)
            beyond = ordered.cumsum(-1) - ordered >= params.top_p
            probs_B_V = probs_B_V.scatter(-1, order, ordered.masked_fill(beyond, 0.0))
        cumulative = probs_B_V.cumsum(-1)
        target = uniform_B[:, None] * cumulative[:, -1:]
        token_B = torch.searchsorted(cumulative, target, right=True)[:, 0]
        token_B = token_B.clamp(max=logits_B_V.shape[-1] - 1)
    return token_B, logprobs_B_V.gather(1, token_B[:, None])[:, 0]
