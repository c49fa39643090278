"""Confidence intervals of ratios: how often they hold the truth, and what they do not depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.results.compare.interval import ratio_interval

SAMPLES = st.lists(st.floats(1, 1000), min_size=3, max_size=6)
SIDE = st.lists(SAMPLES, min_size=1, max_size=3)


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
