"""--fail-below over many cases: how often nothing is found where nothing is."""

import numpy as np
import pytest

from false_alarms import Setting, Sweeps, shares, simulated
from nixwulf.results.compare import interval as intervals
from nixwulf.results.compare.interval import shown_below

LIMIT = 0.95


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "_RESAMPLES", 200)


@pytest.mark.slow
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


def test_what_is_exactly_known_is_below_or_not():
    alike = [[2.0, 2.0, 2.0]]
    same = intervals.ratio_interval({0: alike}, {0: alike}, distribution=False)
    slow = intervals.ratio_interval({0: alike}, {0: [[1.0, 1.0, 1.0]]}, distribution=False)
    assert shown_below([same, slow], LIMIT) == [slow]
