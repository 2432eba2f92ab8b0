from __future__ import annotations

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import NumericsError
from rti.metrics import (
    all_of_k,
    bootstrap_interval,
    by_task,
    intervals,
    pass_at_k,
    pass_hat_k,
    summarise,
)

COUNTS = st.integers(1, 40).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)


def test_hand_computed() -> None:
    # Of 4 attempts 1 succeeds; 3 of the 6 pairs hold it, and none is two successes.
    assert pass_at_k(4, 1, 2) == 0.5
    assert pass_hat_k(4, 1, 2) == 0.0
    assert pass_hat_k(4, 3, 2) == 0.5


@pytest.mark.parametrize(("n", "c"), [(n, c) for n in range(1, 7) for c in range(n + 1)])
def test_against_enumeration(n: int, c: int) -> None:
    attempts = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        draws = list(itertools.combinations(attempts, k))
        assert pass_at_k(n, c, k) == float(Fraction(sum(map(any, draws)), len(draws)))
        assert pass_hat_k(n, c, k) == float(Fraction(sum(map(all, draws)), len(draws)))


@settings(deadline=None)
@given(COUNTS)
def test_bounds_and_duality(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    assert 0.0 <= pass_hat_k(n, c, k) <= c / n <= pass_at_k(n, c, k) <= 1.0
    # To fail at least once in k is not to succeed k times.
    assert pass_at_k(n, n - c, k) == pytest.approx(1.0 - pass_hat_k(n, c, k), abs=1e-15)
    assert pass_at_k(n, c, 1) == pass_hat_k(n, c, 1) == c / n


@settings(deadline=None)
@given(COUNTS)
def test_more_attempts_find_more_and_hold_less(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    if k < n:
        assert pass_at_k(n, c, k) <= pass_at_k(n, c, k + 1)
        assert pass_hat_k(n, c, k) >= pass_hat_k(n, c, k + 1)
    if c < n:
        assert pass_at_k(n, c, k) <= pass_at_k(n, c + 1, k)
        assert pass_hat_k(n, c, k) <= pass_hat_k(n, c + 1, k)
    assert pass_at_k(n, c, n) == float(c > 0)
    assert pass_hat_k(n, c, n) == float(c == n)


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_all_of_k_is_pass_hat_k_over_all_orders(successes: list[bool]) -> None:
    n, c = len(successes), sum(successes)
    assert all_of_k(successes, n) == pass_hat_k(n, c, n)
    for k in range(1, n + 1):
        orders = [all_of_k(order, k) for order in itertools.permutations(successes)]
        assert sum(orders) / len(orders) == pytest.approx(pass_hat_k(n, c, k))


def test_all_of_k_looks_at_the_first_attempts() -> None:
    assert all_of_k([True, True, False], 2) == 1.0
    assert all_of_k([False, True, True], 2) == 0.0
    for k in (0, 4):
        with pytest.raises(NumericsError, match=f"k = {k}"):
            all_of_k([True] * 3, k)


def test_numbers_a_task() -> None:
    assert by_task([[True, False, True], [False, False, True]], (1, 2)) == {
        "pass@1": [pytest.approx(2 / 3), pytest.approx(1 / 3)],
        "pass@2": [1.0, pytest.approx(2 / 3)],
        "pass^2": [pytest.approx(1 / 3), 0.0],
        "all-of-2": [0.0, 0.0],
    }


def test_exact_where_floats_would_lose_it() -> None:
    assert pass_at_k(10**6, 1, 3) == 3e-6
    assert pass_hat_k(2000, 1999, 1000) == 0.5


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (0, 0, 1), (4, 5, 2), (4, -1, 2)])
def test_impossible_counts_are_errors(n: int, c: int, k: int) -> None:
    for metric in (pass_at_k, pass_hat_k):
        with pytest.raises(NumericsError):
            metric(n, c, k)


def test_summary_means_over_tasks() -> None:
    successes = [[True, False, False, False], [True, True, True, True], [False] * 4]
    assert summarise(successes, (1, 4)) == {
        "pass@1": pytest.approx((0.25 + 1 + 0) / 3),
        "pass@4": pytest.approx(2 / 3),
        "pass^4": pytest.approx(1 / 3),
    }


def test_tasks_weigh_alike_however_many_attempts_they_had() -> None:
    assert summarise([[True] * 8, [False] * 2], (1,)) == {"pass@1": 0.5}


@pytest.mark.parametrize(
    ("successes", "ks", "says"),
    [
        ([], (1,), "no tasks"),
        ([[True]], (), "no k"),
        ([[True] * 8, [True] * 3], (1, 8), "task 1 has 3 attempts: pass@8 needs at least 8"),
        ([[]], (1,), "task 0 has 0 attempts"),
    ],
)
def test_what_cannot_be_summarised_says_so(
    successes: list[list[bool]], ks: tuple[int, ...], says: str
) -> None:
    with pytest.raises(NumericsError, match=says):
        summarise(successes, ks)
    with pytest.raises(NumericsError, match=says):
        intervals(successes, ks, seed=0)
    with pytest.raises(NumericsError, match=says):
        by_task(successes, ks)


def test_bootstrap_depends_on_its_seed_alone() -> None:
    values = [0.0, 0.125, 0.5, 1.0, 0.25, 0.75]
    first = bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) == first
    assert bootstrap_interval(values, seed=4, resamples=11) != first


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(0, 99))
def test_bootstrap_lies_within_the_values(values: list[float], seed: int) -> None:
    low, high = bootstrap_interval(values, seed=seed, resamples=50)
    assert min(values) <= low + 1e-12
    assert low <= high <= max(values) + 1e-12
    narrow = bootstrap_interval(values, seed=seed, resamples=50, level=0.5)
    assert low <= narrow[0] <= narrow[1] <= high


def test_bootstrap_agrees_with_the_normal_interval() -> None:
    values = [float(i % 2) for i in range(400)]
    low, high = bootstrap_interval(values, seed=0, resamples=2000)
    half = 1.96 * 0.5 / math.sqrt(400)
    assert low == pytest.approx(0.5 - half, abs=0.006)
    assert high == pytest.approx(0.5 + half, abs=0.006)


def test_intervals_hold_the_summary() -> None:
    successes = [[i % 3 == 0, True, False, i % 2 == 0] for i in range(30)]
    summary = summarise(successes, (1, 2))
    for name, (low, high) in intervals(successes, (1, 2), seed=0).items():
        assert low <= summary[name] <= high


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        ([], {}, "empty"),
        ([math.nan], {}, "NaN"),
        ([1.0], {"resamples": 0}, "resamples = 0"),
        ([1.0], {"level": 1.0}, "level = 1.0"),
    ],
)
def test_bad_bootstraps_name_themselves(
    values: list[float], options: dict[str, float], says: str
) -> None:
    with pytest.raises(NumericsError, match=says):
        bootstrap_interval(values, seed=0, **options)  # type: ignore[arg-type]


def test_imports_no_tensor_library() -> None:
    code = "import sys, rti.metrics; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
