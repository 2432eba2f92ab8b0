"""Evaluation: the policy alone, every task so many times, faults left out."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve
from fakes import SpeakingPolicy, TroubledEnvironment, gives_up
from hypothesis import given
from hypothesis import strategies as st

from rti import ConfigError, RunError, Task
from rti.engine import evaluate_run
from rti.evaluate import evaluate, pick_tasks


def task(family, number):
    return Task(f"{family}-{number}", family)


TASKS = [task(f, i) for f, n in (("AH", 4), ("BH", 2), ("A1", 3)) for i in range(n)]


@pytest.fixture
def run(pocket):
    return pocket("rollout.retries=0", "environment.test_tasks=3", trains=False)


def solves_even_trials(words, key):
    """Solves A3 (nobody has the tool: hand over) in even trials, and calls tools in odd ones."""
    return "need t0 t1 . call t0 t1 <e>" if key.rollout % 2 else "sorry . transfer <e>"


@pytest.fixture
def actor(run):
    policy = SpeakingPolicy(run.policy, run.renderer, solves_even_trials)
    return evolve(run.evaluator, policy=policy)


def tasks_of(run, *families):
    return [t for t in run.environment.tasks("test") if t.family in families]


def evaluated(actor, tasks, trials=4, **kwargs):
    return asyncio.run(evaluate(actor, tasks, trials, 0, **kwargs))


# --- which tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("families", "most", "wanted"),
    [
        ((), 0, [t.id for t in TASKS]),
        ((), 99, [t.id for t in TASKS]),
        (("BH",), 0, ["BH-0", "BH-1"]),
        (("BH", "AH"), 3, ["AH-0", "AH-1", "BH-0"]),
        ((), 7, ["AH-0", "AH-1", "AH-2", "BH-0", "BH-1", "A1-0", "A1-1"]),
    ],
)
def test_tasks_are_shared_evenly_between_families_and_the_first_ones(families, most, wanted):
    assert [t.id for t in pick_tasks(TASKS, families, most)] == wanted


@given(st.integers(1, 9))
def test_as_many_tasks_as_asked_for(most):
    assert len(pick_tasks(TASKS, (), most)) == most


def test_an_unknown_family_or_an_empty_split_is_an_error():
    with pytest.raises(
        ConfigError, match=r"\[eval\] families: no task is of family 'CX'; there are"
    ):
        pick_tasks(TASKS, ("AH", "CX"), 0)
    with pytest.raises(ConfigError, match=r"the split has no tasks"):
        pick_tasks([], (), 0)


# --- the numbers ----------------------------------------------------------------------------


def test_successes_metrics_and_families(run, actor):
    tasks = tasks_of(run, "A3", "AH")
    result = evaluated(actor, tasks)
    easy, hard = tasks_of(run, "A3"), tasks_of(run, "AH")
    assert {t: row for t, row in result.successes.items() if t in {e.id for e in easy}} == {
        t.id: (True, False, True, False) for t in easy
    }
    assert all(not any(result.successes[t.id]) for t in hard)
    m = result.metrics
    assert (m["pass@1"], m["pass@4"], m["pass^4"]) == (0.25, 0.5, 0.0)
    assert (m["tasks"], m["trials"], m["faults"]) == (6, 4, 0)
    assert m["outcome"] == 0.25
    assert m["truncated"] == 0.5
    assert m["turns"] == pytest.approx((1 + 4) / 2)
    half = {"pass@1": 0.5, "pass@4": 1.0, "pass^4": 0.0, "tasks": 3.0}
    assert result.by_family == {"A3": half, "AH": {**dict.fromkeys(half, 0.0), "tasks": 3.0}}
    assert result.families == {t.id: t.family for t in tasks}
    assert result.subset(["A3"], [1, 2]) == pytest.approx(
        {"pass@1": 0.5, "pass@2": 5 / 6, "pass^2": 1 / 6}
    )
    assert result.policy_version == 0


def test_a_single_trial(run, actor):
    result = evaluated(actor, tasks_of(run, "A3"), trials=1)
    assert result.metrics["pass@1"] == 1.0
    assert not any("^" in name for name in result.metrics)


def test_other_ks(run, actor):
    result = evaluated(actor, tasks_of(run, "A3"), ks=(2,))
    assert result.metrics["pass@2"] == pytest.approx(5 / 6)
    assert "pass@1" not in result.metrics


def test_a_fault_is_left_out_and_never_a_failure(run, actor):
    environment = TroubledEnvironment(actor.environment, {"start": [None, OSError("down")]})
    tasks = tasks_of(run, "A3")[:2]
    result = evaluated(evolve(actor, environment=environment), tasks)
    assert (result.faults, result.metrics["faults"]) == (1, 1)
    assert [len(row) for row in result.successes.values()] == [3, 4]
    assert result.successes[tasks[0].id] == (True, True, False)  # the odd trial met the fault
    assert result.metrics["pass@1"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    # pass@4 over the tasks that have four whole trials.
    assert result.metrics["pass@4"] == 1.0
    assert environment.log.count("close") == 7


def test_nothing_but_faults_is_an_error(run, actor):
    environment = TroubledEnvironment(actor.environment, {"start": [OSError("down")] * 99})
    with pytest.raises(RunError, match=r"\[eval\] all 12 rollouts .* down\. Nothing was measured"):
        evaluated(evolve(actor, environment=environment), tasks_of(run, "A3"))


def test_many_sessions_are_played_in_portions_of_whole_tasks(run, actor):
    whole = evaluated(actor, tasks_of(run, "A3", "AH"))
    live, most = 0, 0

    class Counting(TroubledEnvironment):
        def next_trouble(self, where):
            nonlocal live, most
            live += (where == "start") - (where == "close")
            most = max(most, live)
            return 0.0

    some = evaluated(
        evolve(actor, environment=Counting(actor.environment)),
        tasks_of(run, "A3", "AH"),
        at_once=9,
    )
    assert some.successes == whole.successes
    assert (live, most) == (0, 8)


# --- a whole run's --------------------------------------------------------------------------


def test_evaluation_never_intervenes_and_draws_alike_each_time(pocket):
    run = pocket(
        'eval.families=["AH"]', "eval.tasks=2", "eval.trials=3", "trigger.use=always", trains=False
    )

    class Never:
        def __getattr__(self, name):
            raise AssertionError("a role was asked during evaluation")

    repairer = run.collector.repairer
    repairer.validator = repairer.corrector = repairer.weighter = run.collector.trigger = Never()
    spoken = SpeakingPolicy(run.policy, run.renderer, gives_up)
    run.evaluator.policy = spoken
    first = asyncio.run(evaluate_run(run))
    assert first.metrics["pass@3"] == 0.0
    keys = [key for _, key in spoken.asked]
    assert {(k.role, k.attempt, k.step) for k in keys} == {("agent", 0, -1)}
    assert {k.rollout for k in keys} == {0, 1, 2}
    asyncio.run(evaluate_run(run))
    again = [key for _, key in spoken.asked][len(keys) :]
    assert again == keys


def test_the_environments_probe_joins_the_metrics(pocket):
    run = pocket("eval.tasks=1", "eval.trials=1", trains=False)
    metrics = asyncio.run(evaluate_run(run)).metrics
    assert metrics["probe_ppl"] > 1
    assert {"probe_ppl/AH", "probe_ppl/BH", "pass@1"} <= metrics.keys()
    again = asyncio.run(evaluate_run(run)).metrics
    assert again["probe_ppl"] == pytest.approx(metrics["probe_ppl"], rel=1e-4)
