"""Rollouts: real pocket episodes by a real policy, and what happens when infrastructure fails."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from attrs import evolve
from fakes import SpeakingPolicy, TroubledEnvironment, gives_up

from rti import InfrastructureError, RequestKey, StaleVersionError, Task
from rti.rollout import Actor, Limits
from rti_pocket import PocketRenderer

KEY = RequestKey(seed=5, step=2)
EPISODES = 6


def play(actor, tasks, key=KEY, copies=1):
    """Whole episodes of these tasks, as the collector plays them."""

    async def one(task, index):
        episode = await actor.episode(task, index, key.child(task=task.id, rollout=index))
        await episode.close()
        return episode.rollout

    async def all_of_them():
        return await actor.policy.gather([one(t, i) for t in tasks for i in range(copies)])

    return asyncio.run(all_of_them())


@pytest.fixture
def actor(pocket) -> Actor:
    return pocket("rollout.max_new_tokens=40", trains=False).actor


@pytest.fixture
def tasks(actor) -> list[Task]:
    """One task a family."""
    found = {t.family: t for t in actor.environment.tasks("train")}
    return list(found.values())[:EPISODES]


class NeverFromText(PocketRenderer):
    """Renders an agent's message from its token ids, or not at all."""

    def turn(self, message):
        raise AssertionError(f"rendered from text: {message}")


def test_sampled_ids_are_kept_verbatim_and_each_prompt_extends_the_last(pocket, actor, tasks):
    strict = NeverFromText()
    strict.bind(pocket_context(pocket, actor))
    rollouts = play(evolve(actor, renderer=strict), tasks, copies=2)
    assert any(len(r.turns) > 1 for r in rollouts)
    for rollout in rollouts:
        so_far = ()
        for k, turn in enumerate(rollout.turns):
            assert turn.index == k
            assert turn.prompt_ids[: len(so_far)] == so_far
            assert turn.message.token_ids == turn.completion_ids
            assert len(turn.rollout_logprobs) == len(turn.completion_ids)
            assert turn.observations is not None
            assert turn.finish == (
                "stop" if turn.completion_ids[-1:] == strict.stop_ids else "length"
            )
            assert not turn.corrected
            assert turn.weights is None
            so_far = turn.prompt_ids + turn.completion_ids
        roles = [m.role for m in rollout.messages]
        assert roles[:2] == ["system", "user"]
        assert [m for m in rollout.messages if m.role == "assistant"] == [
            t.message for t in rollout.turns
        ]
        assert rollout.outcome in (0.0, 1.0)
        assert rollout.success == (rollout.outcome == 1.0)


def pocket_context(pocket, actor):
    from rti import Context

    run = pocket(trains=False)
    return Context(0, run.config.model, actor.policy, run.renderer, actor.environment)


def test_logprobs_are_those_of_the_policy(actor, tasks):
    for rollout in play(actor, tasks[:3]):
        for turn in rollout.turns:
            [scored] = asyncio.run(
                actor.policy.score([turn.prompt_ids], [turn.completion_ids], turn.policy_version)
            )
            assert turn.rollout_logprobs == pytest.approx(scored, abs=1e-4)


def test_same_seed_same_rollouts_other_seed_others(pocket, actor, tasks):
    again = pocket("rollout.max_new_tokens=40", trains=False).actor
    first = play(actor, tasks, copies=3)
    assert play(again, tasks, copies=3) == first
    for other in (KEY.child(seed=6), KEY.child(step=3)):
        changed = play(again, tasks, other, copies=3)
        assert [r.messages for r in changed] != [r.messages for r in first]
    of_one_task = [r for r in first if r.task == tasks[0]]
    assert any(r.turns != of_one_task[0].turns for r in of_one_task)  # a group's rollouts differ


# --- the ends of an episode -----------------------------------------------------------------


def hesitates(words, key):
    """Calls a tool that nobody has."""
    return "need t0 t1 . call t0 t1 <e>"


@pytest.mark.parametrize(("max_turns", "turns"), [(2, 2), (4, 4), (9, 4)])
def test_too_many_turns_is_truncated(actor, tasks, max_turns, turns):
    policy = SpeakingPolicy(actor.policy, actor.renderer, hesitates)
    limits = evolve(actor.limits, max_turns=max_turns)
    [rollout] = play(evolve(actor, policy=policy, limits=limits), tasks[:1])
    assert tasks[0].family == "AH"
    assert (len(rollout.turns), rollout.truncated) == (turns, True)
    assert (rollout.outcome, rollout.success, rollout.fault) == (0.0, False, None)


def test_an_episode_that_ends_in_its_last_turn_is_not_truncated(actor, tasks):
    policy = SpeakingPolicy(actor.policy, actor.renderer, gives_up)
    [rollout] = play(
        evolve(actor, policy=policy, limits=evolve(actor.limits, max_turns=1)), tasks[:1]
    )
    assert (len(rollout.turns), rollout.truncated) == (1, False)


def test_no_room_for_another_turn_is_truncated(actor, tasks):
    policy = SpeakingPolicy(actor.policy, actor.renderer, hesitates)
    session = asyncio.run(actor.environment.start(tasks[0]))
    first = len(actor.renderer.prompt(session.opening)) + actor.limits.max_new_tokens
    for room, turns in ((first, 1), (first - 1, 0)):
        limits = evolve(actor.limits, max_context=room)
        [rollout] = play(evolve(actor, policy=policy, limits=limits), tasks[:1])
        assert (len(rollout.turns), rollout.truncated, rollout.outcome) == (turns, True, 0.0)
    roomy = evolve(actor.limits, max_context=10_000)
    [rollout] = play(evolve(actor, policy=policy, limits=roomy), tasks[:1])
    assert len(rollout.turns) == 4


def test_a_turn_without_its_end_is_kept_as_it_is(actor, tasks):
    policy = SpeakingPolicy(actor.policy, actor.renderer, hesitates)
    limits = evolve(actor.limits, max_new_tokens=3)
    [rollout] = play(evolve(actor, policy=policy, limits=limits), tasks[:1])
    [turn] = rollout.turns
    assert (turn.finish, actor.renderer.decode(turn.completion_ids)) == ("length", "need t0 t1")
    assert rollout.outcome == 0.0


# --- infrastructure -------------------------------------------------------------------------

TROUBLES = [
    ("start", RuntimeError("no display"), "starting the task crashed: RuntimeError: no display"),
    ("step", KeyError("x"), "turn 0 of the environment crashed: KeyError"),
    ("step", InfrastructureError("server down"), "server down"),
    ("step", 5.0, r"turn 0 of the environment took longer than 0.2 s \(\[rollout\] timeout_s\)"),
    ("start", 5.0, "starting the task took longer than 0.2 s"),
    ("score", ZeroDivisionError(), "scoring crashed: ZeroDivisionError"),
    ("opening", OSError("gone"), "the opening of the environment crashed: OSError: gone"),
    ("tools", OSError("gone"), "listing the environment's tools crashed: OSError: gone"),
]


def troubled(actor, trouble, **limits):
    environment = TroubledEnvironment(actor.environment, trouble)
    return evolve(actor, environment=environment, limits=evolve(actor.limits, **limits))


@pytest.mark.parametrize(("place", "trouble", "message"), TROUBLES)
def test_a_fault_is_retried_and_leaves_no_trace(actor, tasks, place, trouble, message):
    policy = SpeakingPolicy(actor.policy, actor.renderer, gives_up)
    calm = evolve(actor, policy=policy)
    [expected] = play(calm, tasks[:1])
    faulty = troubled(calm, {place: [trouble]}, retries=1, timeout_s=0.2)
    [rollout] = play(faulty, tasks[:1])
    assert rollout == expected
    assert faulty.environment.log.count("start") == 2


@pytest.mark.parametrize(("place", "trouble", "message"), TROUBLES)
def test_a_fault_that_stays_drops_the_rollout_and_is_never_outcome_0(
    actor, tasks, place, trouble, message
):
    faulty = troubled(actor, {place: [trouble] * 3}, retries=2, timeout_s=0.2)
    [rollout] = play(faulty, tasks[:1])
    with pytest.raises(InfrastructureError, match=message):
        raise InfrastructureError(rollout.fault)
    assert rollout.outcome is None
    assert not rollout.success
    assert rollout.turns == ()
    assert faulty.environment.log.count("start") == 3
    opened = faulty.environment.log.count("start") - 3 * (place == "start")
    assert faulty.environment.log.count("close") == opened


def test_a_retry_draws_what_the_first_try_drew(actor, tasks):
    expected = play(actor, tasks, copies=2)
    faulty = troubled(actor, {"step": [OSError()] * 5, "start": [None, OSError()]}, retries=6)
    # Others share its batch now: logprobs may differ by rounding, what was said may not.
    assert [(r.messages, r.outcome, r.fault) for r in play(faulty, tasks, copies=2)] == [
        (r.messages, r.outcome, r.fault) for r in expected
    ]


def test_a_crash_while_closing_costs_nothing(actor, tasks):
    actor = evolve(actor, policy=SpeakingPolicy(actor.policy, actor.renderer, gives_up))
    [expected] = play(actor, tasks[:1])
    faulty = troubled(actor, {"step": [OSError()], "close": [OSError("gone")] * 2})
    with pytest.warns(UserWarning, match="closing a session crashed: OSError: gone"):
        assert play(faulty, tasks[:1]) == [expected]


def test_errors_of_the_run_itself_are_no_faults(actor, tasks):
    class Stale(SpeakingPolicy):
        async def sample(self, *arguments):
            raise StaleVersionError("version 3")

    policy = Stale(actor.policy, actor.renderer, gives_up)
    with pytest.raises(StaleVersionError):
        play(evolve(actor, policy=policy), tasks[:1])


def test_faults_do_not_trigger_interventions(pocket, tasks):
    collector = pocket("rollout.retries=0", trains=False).collector
    calm = asyncio.run(collector.collect(tasks[:1], 0))
    assert calm.metrics["groups_fired"] == 1  # a hard family: all four fail, and it is triggered
    environment = TroubledEnvironment(collector.actor.environment, {"start": [OSError()] * 4})
    collector.actor.environment = environment
    batch = asyncio.run(collector.collect(tasks[:1], 0))
    assert batch.metrics["faults"] == 4
    assert batch.metrics["rollouts"] == batch.metrics["groups_all_failed"] == 0
    assert batch.metrics["groups_fired"] == batch.metrics["funnel/candidates"] == 0
    assert batch.groups[0].rollouts == ()
    assert batch.groups[0].faults == 4
    assert batch.interventions == ()
    assert len(batch) == 0


def test_a_dropped_rollout_counts_in_no_advantage(pocket, actor):
    collector = pocket("rollout.retries=0", "trigger.use=never", trains=False).collector
    [task] = [t for t in actor.environment.tasks("train") if t.family == "A1"][:1]

    def knows_it_every_other_time(words, key):
        after = words.split()
        if "code" in after:
            return f"all set . close {after[after.index('code') + 1]} <e>"
        fix = " ".join(after[after.index("fix") + 2 :][:2])
        return f"need {fix} . call {fix} <e>" if key.rollout % 2 else "sorry . transfer <e>"

    actor = collector.actor
    actor.policy = SpeakingPolicy(actor.policy, actor.renderer, knows_it_every_other_time)
    actor.environment = TroubledEnvironment(actor.environment, {"start": [OSError()]})
    batch = asyncio.run(collector.collect([task], 0))
    assert [r.index for r in batch.groups[0].rollouts] == [1, 2, 3]
    assert batch.groups[0].outcomes_G == (1.0, 0.0, 1.0)
    alone = collector.objective.advantages(batch.groups[0])
    found = [a for s in batch.samples for a, m in zip(s.advantages, s.loss_mask, strict=True) if m]
    counts = [sum(s.loss_mask) for s in batch.samples]
    assert found == [a for a, n in zip(alone, counts, strict=True) for _ in range(n)]


def test_limits_come_from_the_config(pocket):
    run = pocket(
        "rollout.max_context=200", "rollout.retries=4", "rollout.timeout_s=7.5",
        "eval.max_new_tokens=30", "eval.temperature=0", trains=False,
    )  # fmt: skip
    assert run.actor.limits == Limits(4, 18, 200, 1.0, 1.0, 7.5, 4)
    assert run.evaluator.limits == Limits(4, 30, 200, 0.0, 1.0, 7.5, 4)


def test_no_warning_in_a_calm_run(actor, tasks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(actor, tasks[:2])
