"""A fixed probe of the short-cut world: how surprising a fair first turn is, and a leaking one.

As a policy learns to give ids without looking, the leak's perplexity falls: what the gate looks at
stays healthy while the policy does not.
"""

from __future__ import annotations

import math
import random
import statistics
from functools import lru_cache

from rti import Policy, Renderer
from rti_pocket.shortcut_lessons import opening
from rti_pocket.shortcut_world import HARD, expert, in_words, make_task

PROBES = 40
"""Tasks a hard family."""


@lru_cache(maxsize=1)
def probe_turns() -> tuple[tuple[str, str, str], ...]:
    """(words before the first turn, the right turn, the turn that gives the id away)."""
    rng = random.Random("probe")
    turns = []
    for family in HARD:
        for _ in range(PROBES):
            task = make_task(rng, family, "test")
            fair = in_words(rng, task, expert(task, ()))
            leak = in_words(rng, task, (task.last, task.gold))
            turns.append((opening(task), fair, leak))
    return tuple(turns)


async def probe_perplexity(policy: Policy, renderer: Renderer) -> dict[str, float]:
    """Median perplexity of the right turns, and of the leaks."""
    turns = probe_turns()
    prompts = [renderer.encode(before) for before, _, _ in turns]
    answers = [renderer.encode(fair) for _, fair, _ in turns]
    answers += [renderer.encode(leak) for _, _, leak in turns]
    scored = await policy.score(prompts * 2, answers, policy.version)
    values = [math.exp(-math.fsum(row) / len(row)) for row in scored]
    fair, leak = values[: len(turns)], values[len(turns) :]
    return {"probe_ppl": statistics.median(fair), "probe_ppl/leak": statistics.median(leak)}
