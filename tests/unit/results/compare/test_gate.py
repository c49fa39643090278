"""--fail-below over many cases: how often nothing is found where nothing is, and what is missed."""

import numpy as np
import pytest

from false_alarms import Setting, Sweeps, shares, simulated
from nixwulf.results.compare import interval as intervals
from nixwulf.results.compare.gate import power_of, shown_below

CASES = 20
LIMIT = 0.95
SWEEPS = 400


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


@pytest.mark.parametrize(
    ("runs", "effect", "kind"),
    [
        ((3, 3), 0.02, "normal"),
        ((10, 3), 0.0, "normal"),
        ((20, 2), 0.0, "normal"),
        ((20, 2), 0.02, "normal"),
        ((20, 2), 0.0, "skewed"),
    ],
)
def test_of_20_cases_without_a_change_some_case_fails_in_at_most_5_of_100_sweeps(
    runs, effect, kind
):
    trials = 200
    sweeps = simulated(Setting(runs, 0.1, effect, kind), trials)
    # Not by found(): it leaves out what the method should.
    alarms = sum(bool(shown_below(sweeps.intervals(n), LIMIT)) for n in range(trials))
    assert alarms <= 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5


def test_the_simulation_leaves_out_no_sweep_in_which_something_is_found():
    sweeps = simulated(Setting((3, 3), 0.1, 0.02), 100).slowed(0.7)
    found = [
        {made.index(one) for one in shown_below(made, LIMIT)}
        for made in map(sweeps.intervals, range(100))
    ]
    assert any(found)
    assert list(sweeps.found(LIMIT)) == found


def test_the_simulation_makes_the_intervals_that_compare_makes(monkeypatch):
    monkeypatch.setattr(intervals, "_RESAMPLES", 1000)
    random = np.random.default_rng(1)
    samples = [100 * np.exp(random.normal(0, 0.1, (runs, 3))) for runs in (4, 3)]
    made = intervals.ratio_interval({0: samples[0]}, {1: samples[1]}, distribution=False)
    flat = [one.reshape(-1) for one in samples]
    of_each = [
        np.log(one @ shares(runs).T).var(ddof=1) * runs / (runs - 1)
        for one, runs in zip(flat, (4, 3), strict=True)
    ]
    centres = np.array([[np.log(flat[1].mean() / flat[0].mean())]])
    sweeps = Sweeps(Setting((4, 3), 0.1, 0.02), centres, tuple(np.array([[v]]) for v in of_each))
    (simulated_one,) = sweeps.intervals(0)
    assert simulated_one.basis == made.basis == "assumed"
    for name in ("centre", "error", "freedom", "low", "high"):
        assert getattr(simulated_one, name) == pytest.approx(getattr(made, name))
    assert [v.of for v in simulated_one.alike] == pytest.approx([v.of for v in made.alike])


@pytest.mark.parametrize("effect", [0.0, 0.02])
@pytest.mark.parametrize(
    "runs", [(3, 3), *(pytest.param(one, marks=pytest.mark.slow) for one in ((6, 6), (10, 3)))]
)
def test_the_power_that_is_said_is_how_often_a_slow_case_is_found(runs, effect):
    slow = simulated(Setting(runs, 0.03, effect), SWEEPS).slowed(LIMIT**2)
    found = np.mean([0 in cases for cases in slow.found(LIMIT)])
    said = np.mean([power_of(slow.intervals(n), min(runs), LIMIT).caught for n in range(5)])
    assert found == pytest.approx(said, abs=0.06)


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


def test_of_repeated_sessions_of_one_run_each_a_power_is_given():
    a = {day: [[100.0 + day, 101.0, 99.0]] for day in range(3)}
    b = {day: [[99.0 + day, 102.0, 98.0]] for day in range(3, 6)}
    power = power_of([intervals.ratio_interval(a, b, distribution=False)], 3, LIMIT)
    assert 0 < power.caught <= 1
    assert power.in_turn is None
