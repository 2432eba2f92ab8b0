"""The warning that final ids are made up more often: silent on chance, quick on a climb."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rti.watch import Watch, climbed


def warned(shares: Sequence[float], counts: Sequence[int] | int = 60) -> list[int]:
    """The steps that were warned of."""
    watch = Watch()
    per_step = [counts] * len(shares) if isinstance(counts, int) else counts
    steps = [
        {"made_up": s, "made_up_values": float(n)} for s, n in zip(shares, per_step, strict=True)
    ]
    return [i for i, metrics in enumerate(steps) if watch.step(metrics)]


def drawn(
    chances: Sequence[float], count: int, rng: random.Random, spread: float = 3.5, size: int = 8
) -> list[float]:
    """Shares of steps of `count` ids in groups of `size` that are alike.

    Their variance is `spread` times that of independent draws.
    """
    alike = (1 / ((spread - 1) / (size - 1))) - 1  # of a beta distribution, its α + β
    shares = []
    for chance in chances:
        made = 0
        for _ in range(count // size):
            own = rng.betavariate(chance * alike, (1 - chance) * alike) if chance else 0.0
            made += sum(rng.random() < own for _ in range(size))
        shares.append(made / count)
    return shares


def test_the_draws_are_as_unlike_as_they_say() -> None:
    shares = drawn([0.3] * 2000, 48, random.Random(0))
    mean = sum(shares) / 2000
    variance = sum((s - mean) ** 2 for s in shares) / 2000
    assert 3.2 < variance / (0.3 * 0.7 / 48) < 3.8


def test_a_level_run_is_not_warned_of_though_ids_of_a_group_are_alike() -> None:
    rng, false = random.Random(0), 0
    for count, runs in ((24, 60), (96, 15)):
        for chance in (0.05, 0.15, 0.3, 0.5):
            for _ in range(runs):
                false += bool(warned(drawn([chance] * 200, count, rng), count))
    assert false <= 3  # of 300
    assert warned(drawn([0.0] * 200, 24, rng), 24) == []


@pytest.mark.parametrize(
    ("begins", "low", "high", "takes"),
    [(0, 0.05, 0.6, 20), (15, 0.05, 0.6, 20), (15, 0.0, 0.3, 1), (15, 0.0, 0.3, 20)],
)
def test_a_climb_is_told_within_ten_steps_of_having_risen(
    begins: int, low: float, high: float, takes: int
) -> None:
    rise = [low + (high - low) * (i + 1) / takes for i in range(takes)]
    chances = [low] * begins + rise + [high] * 10
    rng = random.Random(1)
    for count, enough in ((24, 18), (48, 20), (96, 20)):
        assert sum(bool(warned(drawn(chances, count, rng), count)) for _ in range(20)) >= enough


def test_a_climb_is_told_once_and_again_when_it_goes_on() -> None:
    climb = [0.02] * 15 + [0.3] * 30 + [0.9] * 30
    first, *later = warned(climb)
    assert 15 <= first <= 25
    assert later
    assert 45 <= later[0] <= 55
    assert warned(climb[:45]) == [first]


@pytest.mark.parametrize(
    "shares", [[0.0] * 60, [0.3] * 60, [0.9] * 10 + [0.1] * 50, [0.0, 0.05] * 30]
)
def test_level_and_falling_shares_are_not_told(shares: list[float]) -> None:
    assert warned(shares) == []


def test_few_ids_are_no_climb() -> None:
    assert not climbed((0, 3), (1, 2))
    assert not climbed((0, 500), (2, 2))  # though no id was made up for long
    assert climbed((0, 300), (60, 300))
    assert not climbed((0, 0), (5, 5))
    assert not climbed((0, 5), (0, 0))
    watch = Watch()
    assert not any(watch.step({"made_up_values": 0.0}) for _ in range(30))


def test_the_warning_says_how_far_and_where_to_look() -> None:
    watch = Watch("runs/x")
    said = [watch.step({"made_up": s, "made_up_values": 90.0}) for s in [0.0] * 15 + [0.6] * 15]
    [words] = filter(None, said)
    assert "of the last 10 steps', up from 0%." in words
    assert "`rti report runs/x`" in words
    assert "look at [verifier] and [veto]" in words


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40))
def test_any_run_is_watched(steps: list[tuple[int, int]]) -> None:
    watch = Watch()
    for made, more in steps:
        count = made + more
        watch.step({"made_up_values": float(count)} | ({"made_up": made / count} if count else {}))
