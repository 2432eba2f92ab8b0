"""The live policy: does it score what it samples, repeat itself, and agree with the trainer?"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Sequence

from rti.doctor.finding import Finding, attempt
from rti.doctor.memory import loads
from rti.doctor.parts import Parts
from rti.interfaces import Policy
from rti.scoring import maybe
from rti.types import Completion, Floats, Ids, RequestKey, SamplingParams

WARN, FAIL = 0.1, 0.5
"""Differences of logprobs in nats: bfloat16 in two engines gives .04 in the mean and .26 at most,
and the calibration weight is clipped at .2; a mean of .5 is another model or another prompt."""
PROMPTS = 2
CPU_TOKENS, TOKENS = 4096, 65536
"""Of all prompts together: on a CPU a long prompt takes the better part of a minute."""


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """Load policy and trainer, sample a few tokens, score them."""
    if parts["policy"] is None or not parts.renderer_ready:
        return
    if parts.offline:
        yield Finding("note", "loads", "neither policy nor trainer is loaded offline")
        return
    too_much = loads(parts)
    if too_much:
        yield Finding("error", "loads", too_much)
        return
    for finding in await attempt("loads", _load, parts, "policy"):
        yield finding
    if parts["policy"] is None:
        return
    prompts = await _prompts(parts)
    sampled: list[Completion] = []
    for finding in await attempt("sampled", _agrees, parts, prompts, sampled):
        yield finding
    if sampled:
        for finding in await attempt("repeats", _repeats, parts, prompts, sampled):
            yield finding
    # A policy that shares the accelerator makes room, as it does in a run.
    await attempt("sleep", maybe, parts["policy"], "sleep")
    for finding in await attempt("loads", _load, parts, "trainer"):
        yield finding
    if parts["trainer"] is not None and sampled:
        for finding in await attempt("trainer", _trainer_agrees, parts, prompts, sampled):
            yield finding


def _load(parts: Parts, section: str) -> Finding:
    began = time.perf_counter()
    parts.bind(section)
    seconds = time.perf_counter() - began
    describe = getattr(parts[section], "describe", None)
    what = f": {describe()}" if callable(describe) else ""
    return Finding("ok", "loads", f"{parts.title(section)} loads in {seconds:.1f} s{what}")


async def _prompts(parts: Parts) -> list[Ids]:
    """Real prompts that leave room for the tokens: of the reference episode, else first ones.

    The last of an episode comes first: tools have answered in it.
    """
    at = parts.config
    limit = at.rollout.max_context or math.inf
    known = list(reversed(parts.episode.prompts)) if parts.episode else []
    if not known:
        for task in parts.tasks[:PROMPTS]:
            session = await parts["environment"].start(task)
            known.append(tuple(parts["renderer"].prompt(session.opening, session.tools)))
            await session.close()
    fitting = [p for p in known if len(p) + parts.settings.tokens <= limit] or known[-1:]
    left = CPU_TOKENS if at.model.device == "cpu" else TOKENS
    chosen: list[Ids] = []
    for prompt in fitting[:PROMPTS]:
        left -= len(prompt)
        if left >= 0 or not chosen:
            chosen.append(prompt)
    return chosen


async def _sample(parts: Parts, prompts: Sequence[Ids]) -> list[Completion]:
    """As rollouts do: one request each, gathered by the policy."""
    policy: Policy = parts["policy"]
    params = SamplingParams(parts.settings.tokens)
    seed = parts.config.run.seed

    async def one(i: int, prompt: Ids) -> Completion:
        key = RequestKey(seed, task="doctor", rollout=i, role="doctor")
        [completion] = await policy.sample([prompt], params, [key], parts["renderer"].stop_ids)
        return completion

    return await policy.gather([one(i, prompt) for i, prompt in enumerate(prompts)])


async def _agrees(parts: Parts, prompts: Sequence[Ids], sampled: list[Completion]) -> Finding:
    policy: Policy = parts["policy"]
    found = await _sample(parts, prompts)
    for completion in found:
        if not 0 < len(completion.token_ids) <= parts.settings.tokens or len(
            completion.token_ids
        ) != len(completion.logprobs):
            return Finding(
                "error",
                "sampled",
                f"the policy was asked for 1 to {parts.settings.tokens} tokens with a logprob each,"
                f" and gave {len(completion.token_ids)} with {len(completion.logprobs)}",
            )
    stale = {c.policy_version for c in found} - {policy.version}
    if stale:
        return Finding(
            "error",
            "sampled",
            f"the policy holds version {policy.version}, but stamps completions with "
            f"{sorted(stale)}: every one of them would be dropped as stale",
        )
    sampled += found
    ids = [c.token_ids for c in found]
    scored = await policy.score(prompts, ids, policy.version)
    return _compare(
        "sampled",
        "logprobs as sampled and as scored by the policy",
        [c.logprobs for c in found],
        scored,
        'The gate and the loss would rest on another distribution: use dtype = "float32", or set '
        '[intervention] score_by = "trainer".',
    )


async def _repeats(parts: Parts, prompts: Sequence[Ids], sampled: Sequence[Completion]) -> Finding:
    again = await _sample(parts, prompts)
    if [c.token_ids for c in again] == [c.token_ids for c in sampled]:
        return Finding("ok", "repeats", "equal keys draw equal tokens: a run can be repeated")
    return Finding(
        "warning",
        "repeats",
        "equal keys draw different tokens: this run cannot be repeated exactly, nor a resumed one "
        "go on as the uninterrupted would. Servers that batch by load do this; results then vary "
        "beyond the seed.",
    )


def _trainer_agrees(parts: Parts, prompts: Sequence[Ids], sampled: Sequence[Completion]) -> Finding:
    score = getattr(parts["trainer"], "score", None)
    if score is None:
        return Finding(
            "note",
            "trainer",
            f"{parts.title('trainer')} has no score(): its logprobs cannot be compared here. The "
            "first step's log_ratio metrics tell.",
        )
    by_trainer = parts.config.intervention.score_by == "trainer"
    return _compare(
        "trainer",
        "logprobs as sampled by the policy and as scored by the trainer",
        [c.logprobs for c in sampled],
        score(prompts, [c.token_ids for c in sampled]),
        "The importance ratio starts that far from 1. Use one dtype in both"
        + (
            "."
            if by_trainer
            else ', and [intervention] score_by = "trainer": then at least corrected turns are '
            "scored by the backend that takes the ratio."
        ),
    )


def _compare(
    check: str, what: str, one: Sequence[Floats], other: Sequence[Floats], way: str
) -> Finding:
    if [len(row) for row in one] != [len(row) for row in other]:
        return Finding(
            "error",
            check,
            f"{what}: {[len(row) for row in one]} and {[len(row) for row in other]} of them; there "
            "must be one a token",
        )
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    if not all(math.isfinite(a) and math.isfinite(b) and a <= 1e-3 and b <= 1e-3 for a, b in pairs):
        return Finding("error", check, f"{what}: some are not finite, or above 0. {way}")
    differences = [abs(a - b) for a, b in pairs]
    mean, most = sum(differences) / len(differences), max(differences)
    text = f"{what} differ by {mean:.2g} in the mean, {most:.2g} at most ({len(pairs)} tokens)"
    if mean > FAIL:
        return Finding("error", check, f"{text}: these are not the same model and prompt. {way}")
    if most > WARN:
        return Finding("warning", check, f"{text}, over {WARN}. {way}")
    return Finding("ok", check, text)
