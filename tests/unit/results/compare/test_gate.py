"""--fail-below over many cases: how often nothing is found where nothing is, and what is missed."""

import numpy as np
import pytest

from nixwulf.results.compare import interval as intervals
from nixwulf.results.compare.gate import power_of, shown_below

CASES = 20
LIMIT = 0.95


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "_RESAMPLES", 200)


def compared(random, noise, runs, ratio=1.0):
    """The interval of a case that was run in turn in one session."""
    a, b = (
        level * np.exp(random.normal(0, noise, (runs, 1)) + random.normal(0, 0.003, (runs, 3)))
        for level in (100.0, 100.0 * ratio)
    )
    return intervals.ratio_interval({0: a.tolist()}, {0: b.tolist()}, distribution=False)


@pytest.mark.parametrize("noise", [0.03, 0.06, 0.1])
@pytest.mark.parametrize("runs", [2, 3])
def test_of_20_cases_without_a_change_some_case_fails_in_at_most_5_of_100_sweeps(noise, runs):
    random = np.random.default_rng(3)
    alarms = sum(
        bool(shown_below([compared(random, noise, runs) for _ in range(CASES)], LIMIT))
        for _ in range(60)
    )
    assert alarms <= 3


@pytest.mark.parametrize("runs", [3, 6])
def test_the_power_that_is_said_is_how_often_a_slow_case_is_found(runs):
    random = np.random.default_rng(4)
    said, found, trials = 0.0, 0, 40
    for _ in range(trials):
        sweep = [compared(random, 0.03, runs) for _ in range(CASES - 1)]
        slow = compared(random, 0.03, runs, ratio=LIMIT**2)
        found += slow in shown_below([*sweep, slow], LIMIT)
        said += power_of([*sweep, slow], runs, LIMIT).caught
    assert found / trials == pytest.approx(said / trials, abs=0.15)


def test_as_many_runs_as_are_said_to_be_enough_are_enough():
    random = np.random.default_rng(6)
    three = power_of([compared(random, 0.03, 3) for _ in range(CASES)], 3, LIMIT)
    assert three.caught < 0.4
    many = power_of([compared(random, 0.03, three.runs) for _ in range(CASES)], three.runs, LIMIT)
    assert 0.6 < many.caught < 0.95


def test_an_assumed_session_effect_is_not_overcome_by_runs_but_by_running_in_turn():
    runs = [[100.0, 101.0, 99.0], [99.0, 100.0, 101.0], [101.0, 99.5, 100.5]]
    apart = intervals.ratio_interval({"mon": runs}, {"tue": runs}, distribution=False)
    power = power_of([apart], 3, LIMIT)
    assert power.runs is None
    assert power.in_turn <= 3


def test_what_is_exactly_known_is_below_or_not():
    alike = [[2.0, 2.0, 2.0]]
    same = intervals.ratio_interval({0: alike}, {0: alike}, distribution=False)
    slow = intervals.ratio_interval({0: alike}, {0: [[1.0, 1.0, 1.0]]}, distribution=False)
    assert shown_below([same, slow], LIMIT) == [slow]
    assert power_of([same, slow], 2, LIMIT) is None
