"""Scores by the trainer: the same weights, another backend, one source for every number."""

from __future__ import annotations

import asyncio

import pytest
from attrs import define, field

from rti import ConfigError, StaleVersionError
from rti.scoring import TrainerScores

PROMPTS = [(1, 2, 3), (4, 5)]
COMPLETIONS = [(6, 7), (8, 9, 10)]


@define
class Scorer:
    """A trainer's score, which tells what it was asked."""

    asked: list = field(factory=list)

    def score(self, prompts, completions):
        self.asked.append((tuple(prompts), tuple(completions)))
        return [[-0.5] * len(c) for c in completions]


@pytest.fixture
def policy(pocket):
    return pocket(trains=False).policy


def test_the_trainer_scores_and_the_policy_does_the_rest(policy):
    trainer, built = Scorer(), []
    scores = TrainerScores(policy, lambda: built.append(1) or trainer)
    assert scores.version == policy.version == 0
    assert built == []  # nothing was scored yet
    before = scores.usage["scored_tokens"]
    found = asyncio.run(scores.score(PROMPTS, COMPLETIONS, 0))
    assert found == [(-0.5, -0.5), (-0.5, -0.5, -0.5)]
    asyncio.run(scores.score(PROMPTS, COMPLETIONS, 0))
    assert built == [1]
    assert trainer.asked[0] == (tuple(PROMPTS), tuple(COMPLETIONS))
    assert scores.usage["scored_tokens"] == before + 10
    assert policy.usage["scored_tokens"] == before


def test_another_version_is_refused(policy):
    scores = TrainerScores(policy, Scorer)
    with pytest.raises(StaleVersionError, match="version 3"):
        asyncio.run(scores.score(PROMPTS, COMPLETIONS, 3))


def test_a_trainer_that_cannot_score_is_named(policy):
    scores = TrainerScores(policy, lambda: object())
    with pytest.raises(ConfigError, match=r'score_by = "trainer": object cannot score'):
        asyncio.run(scores.score(PROMPTS, COMPLETIONS, 0))


def test_every_number_of_a_correction_comes_from_the_trainer(pocket):
    """PPL, both terms of the weight, and the loss's behaviour logprobs."""
    run = pocket(
        "intervention.score_by=trainer", "gate.delta=inf", "rollout.max_new_tokens=40",
        "rollout.group_size=6",
    )  # fmt: skip
    scorer = Scorer()
    run.actor.policy._score = scorer.score
    tasks = [t for t in run.environment.tasks("train") if t.family in ("AH", "BH")][:6]
    batch = asyncio.run(run.collector.collect(tasks, 0))
    scored = [r for r in batch.interventions if r.rollout_logprobs]
    assert scored
    assert scorer.asked
    assert all(set(r.rollout_logprobs) == {-0.5} for r in scored)
    weighed = [r for r in scored if r.corrector_logprobs]
    assert all(set(r.corrector_logprobs) == {-0.5} for r in weighed)
    turns = [t for g in batch.groups for r in g.rollouts for t in r.turns]
    assert all(set(t.rollout_logprobs) == {-0.5} for t in turns if t.corrected)
    assert all(set(t.rollout_logprobs) != {-0.5} for t in turns if not t.corrected)
