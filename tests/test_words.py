"""Why a step learned nothing, for people."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rti import Batch, Decision, Intervention, Task, Verdict
from rti.types import Stage
from rti.words import explain, losses

TASK = Task("t", "f")


def record(stage: Any, **more: Any) -> Intervention:
    return Intervention(TASK, 0, 0, stage, **more)


def rejected(by: str = "self") -> Intervention:
    return record("rejected", verdicts=(Verdict(False, "wrong", by=by),))


def over(threshold: float = 5.0, by: str = "perplexity") -> Intervention:
    return record("gated", decisions=(Decision(False, 9.0, threshold, by=by),))


def step(*records: Intervention, **metrics: float) -> Batch:
    counted = {"groups": 8.0, "groups_all_failed": 8.0, "groups_fired": 8.0, **metrics}
    return Batch((), interventions=records, metrics=counted)


def test_what_refused_is_counted_and_named() -> None:
    said = explain(step(*[rejected()] * 5, *[over()] * 3))
    assert said == (
        "No signal: 8 of 8 groups all failed; no correction survived: 5 rejected by the Verifier, "
        "3 over δ = 5. The weights stay as they are."
    )


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([rejected("self"), rejected("leaks")], ["the Verifier 'self'", "the Verifier 'leaks'"]),
        ([over(by="at-most")], ["1 stopped by the gate 'at-most'"]),
        ([over(float("inf"))], ["1 over δ = inf"]),
        ([record("gated")], ["1 stopped by a gate"]),
        ([record("rejected", reason="empty")], ["1 unusable as written"]),
        ([record("vetoed"), record("vetoed")], ["2 had a diagnosis vetoed"]),
        ([record("failed")], ["1 resumed and failed again"]),
    ],
)
def test_each_way_to_be_lost(records: list[Intervention], words: list[str]) -> None:
    said = explain(step(*records))
    assert all(w in said for w in words)


def test_with_signal_it_says_how_much() -> None:
    said = explain(step(groups=1.0, groups_with_signal=1.0, rollouts_corrected=1.0))
    assert said == "1 of 1 group gives signal, with 1 repaired rollout."
    assert explain(step(groups_with_signal=3.0)) == "3 of 8 groups give signal."


def test_without_intervention_it_says_so() -> None:
    said = explain(step(groups_fired=0.0, groups_all_failed=5.0, groups_all_succeeded=3.0))
    assert "5 of 8 groups all failed, 3 all succeeded; no intervention was triggered" in said


stages = st.sampled_from(get_args(Stage)).flatmap(
    lambda stage: st.sampled_from(
        [record(stage), evolve(rejected(), stage=stage), evolve(over(), stage=stage)]
    )
)


@given(st.lists(stages, max_size=30))
def test_every_record_is_counted_once(records: list[Intervention]) -> None:
    parts = losses(tuple(records))
    assert sum(int(part.partition(" ")[0]) for part in parts) == len(records)
    assert explain(step(*records))
