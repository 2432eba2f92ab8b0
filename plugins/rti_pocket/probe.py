"""A fixed probe: how surprising the right turn is to the policy, where its habit goes wrong.

The mean perplexity of intervened turns falls early and then spikes, since only odd failures
remain. These turns stay the same from start to end.
"""

from __future__ import annotations

import math
import random
import statistics
from functools import lru_cache

from rti import Ids, Policy, Renderer
from rti_pocket.lessons import observed, opening
from rti_pocket.world import HARD, PocketTask, expert, habit, in_words, make_task, react

PROBES = 40
"""Probe turns a hard family."""


@lru_cache(maxsize=1)
def probe_turns() -> tuple[tuple[str, str, str], ...]:
    """(family, words before the critical turn, the right turn in the agent's own style)."""
    rng = random.Random("probe")
    turns = []
    for family in HARD:
        for _ in range(PROBES):
            task = make_task(rng, family, "test")
            before, seen = critical_state(rng, task)
            turns.append((family, before, in_words(rng, expert(task, seen))))
    return tuple(turns)


def critical_state(rng: random.Random, task: PocketTask) -> tuple[str, list[str]]:
    """Play a hard task by habit up to the turn at which the habit goes wrong."""
    words, seen = opening(task), list[str]()
    while habit(task, seen) == expert(task, seen):
        action = habit(task, seen)
        reply = react(task, action)
        assert reply.observation is not None
        words = " ".join((words, in_words(rng, action), observed(reply.observation)))
        seen.append(reply.observation)
    return words, seen


async def probe_perplexity(policy: Policy, renderer: Renderer) -> dict[str, float]:
    """Median perplexity of the probe turns by family, and of all of them."""
    turns = probe_turns()
    prompts: list[Ids] = [renderer.encode(before) for _, before, _ in turns]
    answers: list[Ids] = [renderer.encode(turn) for _, _, turn in turns]
    scored = await policy.score(prompts, answers, policy.version)
    values = [math.exp(-math.fsum(row) / len(row)) for row in scored]
    found = {"probe_ppl": statistics.median(values)}
    for family in HARD:
        of_family = [v for v, (name, _, _) in zip(values, turns, strict=True) if name == family]
        found[f"probe_ppl/{family}"] = statistics.median(of_family)
    return found
