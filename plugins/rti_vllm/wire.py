"""What is said to a vLLM server, and how its answers are read. No network in here.

Requests spell out every sampling parameter: a server fills those left out from the model's
generation_config.json (top_k = 20 for Qwen3, say), and what it then samples is not the policy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

from rti import Completion, Floats, Ids, RequestKey, RunError, SamplingParams

COMPLETIONS = "/v1/completions"
GENERATE = "/inference/v1/generate"
SEED_MASK = (1 << 63) - 1
"""vLLM takes seeds of a signed 64-bit integer."""
ROUNDING = 1e-3
Sampled = tuple[Ids, Floats, Literal["stop", "length"]]


class BadReply(Exception):
    """An answer that is no answer; the text says what is wrong with it."""


def seed_of(key: RequestKey) -> int:
    """The request's seed as vLLM takes it."""
    return key.seed64() & SEED_MASK


def sampling(params: SamplingParams, key: RequestKey, stop: Ids) -> dict[str, Any]:
    """Sampling parameters by vLLM's names, for a request body or for `vllm.SamplingParams`.

    Only `stop` ends a turn (`ignore_eos`), as with every other policy; an answer that follows a
    schema may also end with the model's own end token, which closes the grammar.
    """
    return {
        "max_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": seed_of(key),
        "stop_token_ids": list(stop),
        "ignore_eos": not params.schema,
        "logprobs": 0,
    }


def sample_body(prompt: Ids, params: SamplingParams, key: RequestKey, stop: Ids) -> dict[str, Any]:
    """A request for one completion, in token ids.

    Raises:
        RunError: for a schema that is no JSON.
    """
    body = {
        **sampling(params, key, stop),
        "prompt": list(prompt),
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
    }
    if params.schema:
        body["structured_outputs"] = {"json": parse_schema(params.schema)}
    return body


def parse_schema(schema: str) -> Any:
    """A schema from its JSON text."""
    try:
        return json.loads(schema)
    except ValueError as error:
        raise RunError(f"[policy] (vllm) SamplingParams.schema is no JSON: {error}") from error


def read_completion(reply: Any, stop: Ids, schema: str) -> Sampled:
    """Ids, logprobs and finish of a completion.

    Raises:
        BadReply: when something is missing or does not fit.
        RunError: when the server tells logits instead of logprobs.
    """
    choice = _only_choice(reply)
    ids, reason = choice.get("token_ids"), choice.get("finish_reason")
    logprobs = _table(choice.get("logprobs")).get("token_logprobs")
    if not _are_ids(ids):
        raise BadReply("it has no token_ids (vLLM 0.32 or later gives them)")
    return checked(tuple(ids), logprobs, reason, stop, schema)


def checked(ids: Ids, logprobs: Any, reason: Any, stop: Ids, schema: str) -> Sampled:
    """The parts of a completion, once they fit together. Raises as `read_completion`."""
    if reason not in ("stop", "length"):
        raise BadReply(f"the completion ended by {reason!r}")
    told = isinstance(logprobs, Sequence) and not isinstance(logprobs, str)
    if not told or len(logprobs) != len(ids):
        number = len(logprobs) if told else "no"
        raise BadReply(f"it has {number} logprobs for {len(ids)} tokens")
    if reason == "stop" and not schema and ids[-1] not in stop:
        raise BadReply(
            f"the completion stopped at token {ids[-1]}, which is no end-of-turn token "
            f"({', '.join(map(str, stop))})"
        )
    return ids, _finite(logprobs), reason


def score_body(ids: Ids) -> dict[str, Any]:
    """A request for the logprobs of a text. The server computes all of it again."""
    return {"prompt": list(ids), "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}


def cached_score_body(ids: Ids) -> dict[str, Any]:
    """The same, on top of what the server's prefix cache holds: see `read_cached_scores`.

    `detokenize` must be off: of cached tokens the server has no logprobs, and on a CPU it would
    decode whatever ids its memory holds in their place.
    """
    return {
        "token_ids": list(ids),
        "sampling_params": {
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
            "skip_reading_prefix_cache": False,
            "detokenize": False,
        },
    }


def read_scores(reply: Any, completion: Ids) -> Floats:
    """Logprobs of the completion out of a `score_body` answer. Raises as `read_completion`."""
    return completion_scores(_only_choice(reply).get("prompt_logprobs"), completion)


def read_cached_scores(reply: Any, prompt: Ids, completion: Ids) -> Floats | None:
    """The same out of a `cached_score_body` answer; None when it cannot vouch for all tokens.

    The server computes logprobs from the first token that its cache does not hold. They are
    whole when that token is the prompt's last one or comes before it.
    """
    answer = _table(reply)
    cached = _table(_table(answer.get("usage")).get("prompt_tokens_details")).get("cached_tokens")
    if type(cached) is not int or not 0 <= cached < len(prompt):
        return None
    try:
        return completion_scores(answer.get("prompt_logprobs"), completion)
    except BadReply:
        return None


def completion_scores(entries: Any, completion: Ids) -> Floats:
    """The last entries of prompt logprobs, each held against the id that it must be of."""
    if not completion:
        return ()
    if not isinstance(entries, Sequence) or len(entries) < len(completion):
        raise BadReply("it has no prompt_logprobs for the completion")
    found = []
    for token, entry in zip(completion, entries[-len(completion) :], strict=True):
        if not isinstance(entry, Mapping):
            raise BadReply("its prompt_logprobs are no table of tokens")
        told = entry.get(str(token), entry.get(token))  # JSON has strings for keys
        logprob = told.get("logprob") if isinstance(told, dict) else getattr(told, "logprob", None)
        if logprob is None:
            raise BadReply(f"its prompt_logprobs do not name token {token}")
        found.append(logprob)
    return _finite(found)


def completion_of(sampled: Sampled, version: int) -> Completion:
    """What the run gets."""
    ids, logprobs, finish = sampled
    return Completion(ids, logprobs, finish, version)


def _only_choice(reply: Any) -> Mapping[str, Any]:
    choices = _table(reply).get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadReply("it does not hold one choice")
    return choices[0]


def _table(value: Any) -> Mapping[str, Any]:
    """A JSON object, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def _are_ids(ids: Any) -> TypeGuard[list[int]]:
    return isinstance(ids, list) and bool(ids) and all(type(i) is int and i >= 0 for i in ids)


def _finite(values: Sequence[Any]) -> Floats:
    if not all(type(v) in (int, float) and math.isfinite(v) for v in values):
        raise BadReply("a logprob is no finite number")
    if any(v > ROUNDING for v in values):
        raise RunError(
            f"[policy] (vllm) the server tells a logprob of {max(values):g}, above 0: it gives "
            "logits. Start it with --logprobs-mode raw_logprobs."
        )
    return tuple(float(v) for v in values)
