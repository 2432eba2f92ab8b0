from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import rti_grpo
from rti import Group, Intervention, NumericsError, Rollout, Task
from rti.testing import (
    check_gate,
    check_objective,
    check_trigger,
    check_weighter,
    groups,
    interventions,
)
from rti_grpo import (
    AllFailed,
    Always,
    BelowRate,
    CalibrationWeighter,
    Grpo,
    Never,
    NoWeighter,
    PerplexityGate,
    Resample,
)

TASK = Task("t")


def group(*outcomes: float | None) -> Group:
    rollouts = [
        Rollout(TASK, i, outcome=outcome, success=outcome == 1.0)
        for i, outcome in enumerate(outcomes)
    ]
    return Group(TASK, tuple(rollouts))


def scored(
    rollout: tuple[float, ...] | None, corrector: tuple[float, ...] | None = None
) -> Intervention:
    return Intervention(
        TASK, rollout=0, attempt=0, rollout_logprobs=rollout, corrector_logprobs=corrector
    )


# ------------------------------------------------------------------ contracts


@pytest.mark.parametrize(
    "trigger", [AllFailed(), Never(), Always(), BelowRate(), BelowRate(1.0), Resample()]
)
def test_triggers_keep_the_contract(trigger: Any) -> None:
    check_trigger(trigger)


@pytest.mark.parametrize("delta", [0.0, 5.0, math.inf])
def test_the_gate_keeps_the_contract(delta: float) -> None:
    check_gate(PerplexityGate(delta))


@pytest.mark.parametrize(
    "weighter", [CalibrationWeighter(), CalibrationWeighter(0.0), NoWeighter()]
)
def test_weighters_keep_the_contract(weighter: Any) -> None:
    check_weighter(weighter)


@pytest.mark.parametrize(
    "objective",
    [
        Grpo(),
        Grpo(normalise="none", aggregate="constant", constant_length=64),
        Grpo(ddof=0, clip_high=0.28, aggregate="sequence"),
        Grpo(clip_high=math.inf),
        Grpo(tis=2.0),
    ],
)
def test_the_objective_keeps_the_contract(objective: Any) -> None:
    check_objective(objective)


def test_hooks_give_every_name() -> None:
    names = {"all-failed", "never", "always", "below-rate", "resample"}
    assert set(rti_grpo.rti_triggers()) == names
    assert rti_grpo.rti_gates() == {"perplexity": PerplexityGate}
    assert rti_grpo.rti_weighters() == {"calibration": CalibrationWeighter, "none": NoWeighter}
    assert rti_grpo.rti_objectives() == {"grpo": Grpo}


def test_the_hook_module_is_import_light() -> None:
    code = (
        "import sys, rti_grpo; [rti_grpo.Grpo(), rti_grpo.PerplexityGate(), rti_grpo.AllFailed()];"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------ triggers


@pytest.mark.parametrize(
    ("outcomes", "all_failed", "below_half", "below_one"),
    [
        ((0.0, 0.0, 0.0, 0.0), True, True, True),
        # Partial credit is no success: the raw outcome failed.
        ((0.9, 0.5, 0.0, 0.0), True, True, True),
        ((1.0, 0.0, 0.0, 0.0), False, True, True),
        ((1.0, 1.0, 0.0, 0.0), False, False, True),
        ((1.0, 1.0, 1.0, 1.0), False, False, False),
        ((), False, False, False),
    ],
)
def test_when_triggers_fire(
    outcomes: tuple[float, ...], all_failed: bool, below_half: bool, below_one: bool
) -> None:
    drawn = group(*outcomes)
    assert AllFailed().fires(drawn) is all_failed
    assert BelowRate(0.5).fires(drawn) is below_half
    assert BelowRate(1.0).fires(drawn) is below_one
    assert BelowRate(0.0).fires(drawn) is False
    assert Never().fires(drawn) is False
    assert Always().fires(drawn) is bool(outcomes)


@pytest.mark.parametrize(
    ("outcomes", "resamples"),
    [
        ((0.0, 0.0), True),
        ((0.9, 0.5), True),  # partial credit is no success
        ((1.0, 1.0), True),
        ((1.0, 0.0), False),
        ((), False),  # emptied by faults
    ],
)
def test_which_groups_are_resampled(outcomes: tuple[float, ...], resamples: bool) -> None:
    assert Resample().resample(group(*outcomes)) is resamples
    assert Resample().fires(group(*outcomes)) is False


@settings(deadline=None, max_examples=40)
@given(groups(), st.floats(0, 1), st.floats(0, 1))
def test_below_rate_is_monotone_in_its_rate(drawn: Group, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert BelowRate(high).fires(drawn) or not BelowRate(low).fires(drawn)


# ------------------------------------------------------------------ gate


def test_the_gate_reports_what_it_held_against_what() -> None:
    four = scored((math.log(1 / 2), math.log(1 / 8)))
    admitted = PerplexityGate(5.0).admit(four)
    assert (admitted.admitted, admitted.threshold) == (True, 5.0)
    assert admitted.value == pytest.approx(4.0)
    refused = PerplexityGate(3.0).admit(four)
    assert refused.admitted is False
    assert refused.reason == "perplexity 4 > 3"


@settings(deadline=None, max_examples=40)
@given(interventions(), st.floats(0, 1e4), st.floats(0, 1e4))
def test_the_gate_is_monotone_in_delta(drawn: Intervention, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert (
        PerplexityGate(high).admit(drawn).admitted or not PerplexityGate(low).admit(drawn).admitted
    )
    assert PerplexityGate(0.0).admit(drawn).admitted is False
    assert PerplexityGate(math.inf).admit(drawn).admitted is True


def test_the_gate_looks_at_the_rollout_prompt_only() -> None:
    likely_only_under_the_corrector = scored((-5.0, -5.0), (0.0, 0.0))
    assert PerplexityGate().admit(likely_only_under_the_corrector).admitted is False


def test_an_impossible_token_passes_no_gate() -> None:
    decision = PerplexityGate(math.inf).admit(scored((-0.5, -math.inf)))
    assert decision.admitted is False
    assert "token 1 has probability 0" in decision.reason


# ------------------------------------------------------------------ weighters


def test_weights_are_the_clipped_ratio() -> None:
    probabilities = ((0.55, 0.5), (0.9, 0.3), (0.1, 0.5), (0.4, 0.4))
    drawn = scored(
        tuple(math.log(roll) for _, roll in probabilities),
        tuple(math.log(corr) for corr, _ in probabilities),
    )
    assert CalibrationWeighter().weigh(drawn) == pytest.approx((1.1, 1.2, 0.8, 1.0))
    assert NoWeighter().weigh(drawn) == (1.0,) * 4


def test_without_a_corrector_prompt_every_weight_is_one() -> None:
    assert CalibrationWeighter().weigh(scored((-3.0, -0.1))) == (1.0, 1.0)


# ------------------------------------------------------------------ objective


def test_grpo_advantages() -> None:
    drawn = group(0.0, 1.0, 0.0, 0.0)
    assert Grpo().advantages(drawn) == (-0.5, 1.5, -0.5, -0.5)
    assert Grpo(normalise="none").advantages(drawn) == (-0.25, 0.75, -0.25, -0.25)
    assert Grpo(ddof=0).advantages(drawn)[1] == pytest.approx(math.sqrt(3))
    assert Grpo().advantages(group(1.0)) == (0.0,)


def test_grpo_advantages_are_of_the_raw_outcome_not_of_success() -> None:
    low, high = Grpo().advantages(group(0.2, 0.6))
    assert (low, high) == pytest.approx((-math.sqrt(0.5), math.sqrt(0.5)))


def test_grpo_clips_by_its_own_bounds() -> None:
    new, old = torch.tensor([0.0]), torch.tensor([-1.0])
    loss = Grpo(clip_high=0.28).token_loss(new, old, torch.tensor([2.0]))
    assert loss.tolist() == pytest.approx([-2.56])
    loss = Grpo(clip_low=0.1).token_loss(old, new, torch.tensor([-2.0]))
    assert loss.tolist() == pytest.approx([1.8])


def test_truncated_importance_sampling_by_hand() -> None:
    """π_roll .25, π_old .4, π_θ .6: the weight is 1.6, the ratio 1.5, held at 1.2."""
    new, old, roll = (torch.tensor([math.log(p)]) for p in (0.6, 0.4, 0.25))
    up, down = torch.tensor([2.0]), torch.tensor([-2.0])
    objective = Grpo(tis=2.0)
    assert objective.token_loss(new, roll, up, old=old).item() == pytest.approx(-1.2 * 1.6 * 2)
    assert objective.token_loss(new, roll, down, old=old).item() == pytest.approx(1.5 * 1.6 * 2)
    capped = Grpo(tis=1.1).token_loss(new, roll, down, old=old)
    assert capped.item() == pytest.approx(1.5 * 1.1 * 2)
    # Without it the one ratio is 2.4.
    assert Grpo().token_loss(new, roll, down).item() == pytest.approx(2.4 * 2)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.floats(-3, 3)), min_size=1))
def test_where_sampler_and_trainer_agree_tis_changes_no_bit(
    drawn: list[tuple[float, float, float]],
) -> None:
    new, roll, advantages = (torch.tensor(x) for x in zip(*drawn, strict=True))
    plain = Grpo().token_loss(new, roll, advantages)
    assert torch.equal(Grpo(tis=2.0).token_loss(new, roll, advantages, old=roll), plain)


def test_tis_without_the_trainers_logprobs_is_an_error() -> None:
    one = torch.tensor([-1.0])
    with pytest.raises(NumericsError, match="tis = 2 needs π_old"):
        Grpo(tis=2.0).token_loss(one, one, one)


def test_grpo_says_what_a_trainer_needs() -> None:
    assert Grpo(tis=2.0).needs == ("old",)
    objective = Grpo(aggregate="constant", constant_length=128)
    assert (objective.needs, objective.aggregate, objective.constant_length) == (
        (),
        "constant",
        128,
    )


# ------------------------------------------------------------------ bad options and input


@pytest.mark.parametrize(
    ("cls", "options", "says"),
    [
        (PerplexityGate, {"delta": -1.0}, "delta = -1.0: must be at least 0"),
        (PerplexityGate, {"delta": math.nan}, "delta = nan"),
        (CalibrationWeighter, {"epsilon": 1.0}, "epsilon = 1.0: must be below 1"),
        (CalibrationWeighter, {"epsilon": -0.1}, "epsilon = -0.1"),
        (BelowRate, {"rate": 1.5}, "rate = 1.5: must be from 0 to 1"),
        (Grpo, {"normalise": "max"}, "normalise = 'max': must be one of 'std', 'none'"),
        (Grpo, {"ddof": 2}, "ddof = 2"),
        (Grpo, {"clip_low": 1.1}, "clip_low = 1.1"),
        (Grpo, {"clip_high": -0.1}, "clip_high = -0.1"),
        (Grpo, {"aggregate": "mean"}, "aggregate = 'mean'"),
        (Grpo, {"tis": 0.5}, "tis = 0.5: must be 0 for none, or at least 1"),
        (Resample, {"rounds": 0}, "rounds = 0: must be at least 1"),
        (Grpo, {"aggregate": "constant"}, "constant_length = 0: .* needs at least 1"),
    ],
)
def test_bad_options_are_refused_in_words(cls: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cls(**options)


def test_unscored_interventions_are_errors() -> None:
    with pytest.raises(NumericsError, match=r"gate 'perplexity'.*no rollout_logprobs"):
        PerplexityGate().admit(scored(None))
    with pytest.raises(NumericsError, match=r"weighter 'calibration'.*no rollout_logprobs"):
        CalibrationWeighter().weigh(scored(None, (-1.0,)))
    with pytest.raises(NumericsError, match=r"weighter 'none'.*no rollout_logprobs"):
        NoWeighter().weigh(scored(()))
    with pytest.raises(NumericsError, match="empty"):
        PerplexityGate().admit(scored(()))


def test_missing_outcomes_are_errors_never_a_silent_zero() -> None:
    with pytest.raises(NumericsError, match="'t': rollout 1 has no outcome"):
        Grpo().advantages(group(1.0, None))
    with pytest.raises(NumericsError, match="outcomes_G is empty"):
        Grpo().advantages(group())
    with pytest.raises(NumericsError, match=r"outcomes_G\[0\] = nan"):
        Grpo().advantages(evolve(group(math.nan, 0.0)))
