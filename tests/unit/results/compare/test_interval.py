"""Confidence intervals of ratios: how often they hold the truth, and what they do not depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.results.compare import interval as intervals

SAMPLES = st.lists(st.floats(1, 1000), min_size=3, max_size=6)
SIDE = st.lists(SAMPLES, min_size=1, max_size=3)
DAYS = st.dictionaries(st.sampled_from(["mon", "tue", "wed"]), SIDE, min_size=1)


def ratio_interval(a, b, distribution):
    """Of runs that were run in turn, in one session."""
    return intervals.ratio_interval({0: a}, {0: b}, distribution)


def measured(random, sessions, runs, *, level=100.0, run_noise=0.01):
    """Samples of runs by session, of which each has a factor of its own."""
    return {
        session: [
            list(level * factor * np.exp(random.normal(0, run_noise) + random.normal(0, 0.003, 3)))
            for _ in range(runs)
        ]
        for session, factor in sessions.items()
    }


def coverage(sessions, runs, effect, *, in_turn=False, trials=200):
    """In how many of 100 comparisons of so many sessions a side the interval holds the truth."""
    random = np.random.default_rng(5)
    held = 0
    for _ in range(trials):
        factors = [np.exp(random.normal(0, effect, sessions)) for _ in "ab"]
        a = dict(enumerate(factors[0]))
        b = a if in_turn else dict(enumerate(factors[1], sessions))
        sides = measured(random, a, runs), measured(random, b, runs, level=90.0)
        interval = intervals.ratio_interval(*sides, distribution=False)
        held += interval.low <= 0.9 <= interval.high
    return 100 * held / trials


@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_interval_holds_the_true_ratio_in_95_of_100_cases(count):
    random = np.random.default_rng(7)
    trials = 400
    held = 0
    for _ in range(trials):
        a, b = random.normal(100, 3, count), random.normal(80, 3, count)
        interval = ratio_interval([a], [b], distribution=False)
        held += interval.low <= 0.8 <= interval.high
    assert 0.92 * trials <= held <= 0.99 * trials


def test_runs_that_differ_more_than_their_samples_make_it_wide():
    runs = [[100.0, 100.1, 99.9], [110.0, 110.1, 109.9], [90.0, 90.1, 89.9]]
    apart = ratio_interval(runs, runs, distribution=False)
    all_of_them = [sample for run in runs for sample in run]
    together = ratio_interval([all_of_them], [all_of_them], distribution=False)
    assert apart.low < 0.85 < together.low < 1 < together.high < 1.15 < apart.high


@settings(max_examples=30)
@given(SIDE, SIDE, st.booleans())
def test_the_other_way_round_it_is_the_inverse(a, b, distribution):
    there, back = ratio_interval(a, b, distribution), ratio_interval(b, a, distribution)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    assert there.low <= there.high


@settings(max_examples=30)
@given(SIDE, SIDE, st.floats(0.01, 100))
def test_a_factor_of_all_samples_is_a_factor_of_the_interval(a, b, factor):
    plain = ratio_interval(a, b, distribution=False)
    scaled = ratio_interval(a, [[factor * x for x in run] for run in b], distribution=False)
    expected = (plain.low * factor, plain.high * factor)
    assert (scaled.low, scaled.high) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("few", [[[1.0, 2.0]], [[1.0], [2.0]], [[0.0, 1.0, 2.0]]])
def test_too_few_samples_or_a_zero_have_none(few):
    enough = [[1.0, 2.0, 3.0]]
    assert ratio_interval(few, enough, distribution=False) is None
    assert ratio_interval(enough, few, distribution=False) is None


def test_samples_without_any_spread_give_the_ratio_itself():
    interval = ratio_interval([[2.0, 2.0, 2.0]], [[3.0, 3.0, 3.0]], distribution=False)
    assert (interval.low, interval.high) == (pytest.approx(1.5), pytest.approx(1.5))


@pytest.fixture
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "_RESAMPLES", 200)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("effect", [0.01, 0.02, 0.03])
@pytest.mark.parametrize("runs", [3, 10])
def test_repeated_sessions_show_how_much_they_differ(runs, effect):
    assert 91 <= coverage(3, runs, effect) <= 99


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("runs", [3, 10])
def test_one_session_a_side_is_covered_for_an_effect_of_up_to_three_percent(runs):
    assert coverage(1, runs, 0.03) >= 91
    assert coverage(1, runs, 0.01) >= 95


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("effect", [0.01, 0.03, 0.3])
def test_a_session_in_which_both_sides_were_run_in_turn_cancels_out(effect):
    assert 91 <= coverage(1, 3, effect, in_turn=True) <= 99.5


@settings(max_examples=30)
@given(DAYS, DAYS, st.booleans())
def test_sessions_the_other_way_round_give_the_inverse(a, b, distribution):
    there = intervals.ratio_interval(a, b, distribution)
    back = intervals.ratio_interval(b, a, distribution)
    assert there.basis == back.basis
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low), rel=1e-6)


def test_an_interval_says_what_its_session_effect_rests_on():
    run = [100.0, 101.0, 99.0]
    days = {day: [run, run] for day in ("mon", "tue")}
    basis = [
        intervals.ratio_interval(a, b, distribution=False).basis
        for a, b in (
            (days, days),
            ({"mon": [run]}, {"tue": [run]}),
            ({**days, "thu": [run]}, {"wed": [run]}),
        )
    ]
    assert basis == ["in turn", "assumed", "repeated"]
