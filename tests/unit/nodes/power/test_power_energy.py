"""Watts over a window are what the points say, and nothing where they say too little."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.nodes.power import average, integral, merged, peak, resolved, total


def constant(watts, end=10.0, step=0.2):
    return integral([(index * step, watts) for index in range(round(end / step) + 1)])


@given(st.floats(0, 1000), st.floats(0, 4), st.floats(1, 5))
def test_constant_power_is_its_own_average_wherever_the_window_lies(watts, begin, length):
    assert average(constant(watts), [(begin, begin + length)]) == pytest.approx(watts, abs=1e-6)


def test_power_is_averaged_over_time_and_not_over_points():
    joules = integral([(0.0, 10.0), (8.0, 10.0), (8.1, 90.0), (8.2, 90.0), (10.0, 90.0)])
    expected = (8 * 10 + 0.1 * 50 + 1.9 * 90) / 10
    assert average(joules, [(0.0, 10.0)]) == pytest.approx(expected)


def test_a_counters_joules_are_shared_out_between_its_points():
    counter = [(0.0, 100.0), (1.0, 110.0), (2.0, 150.0)]
    assert average(counter, [(0.5, 1.5)]) == pytest.approx(25.0)
    assert average(counter, [(0.0, 0.5), (1.5, 2.0)]) == pytest.approx(25.0)


def test_a_window_that_the_points_do_not_cover_has_no_average():
    joules = constant(5.0, end=8.0)
    assert average(joules, [(0.0, 8.5)]) == pytest.approx(5.0), "nine tenths are enough"
    assert average(joules, [(0.0, 10.0)]) is None
    assert average(joules, [(20.0, 30.0)]) is None
    assert average(joules[:1], [(0.0, 1.0)]) is None
    assert average([], [(0.0, 1.0)]) is None


def test_the_peak_is_the_highest_mean_of_a_second():
    watts = [(index / 10, 100.0 if 40 <= index <= 44 else 10.0) for index in range(101)]
    highest = peak(integral(watts), (0.0, 10.0))
    assert highest == pytest.approx(10 + 90 * 0.5, rel=0.01), "half a second of 100 W"
    assert peak(integral(watts), (5.0, 10.0)) == pytest.approx(10.0)
    assert peak(integral(watts), (0.0, 0.9)) is None


def test_channels_that_were_read_at_different_moments_add_up():
    first = integral([(0.0, 10.0), (1.0, 10.0), (2.0, 10.0)])
    second = integral([(0.1, 5.0), (1.1, 5.0), (2.1, 5.0)])
    assert average(total([first, second]), [(0.0, 2.0)]) == pytest.approx(15.0)


def test_windows_with_a_small_gap_are_one():
    assert merged([(3, 4), (0, 1), (1.1, 2)], 0.2) == [(0, 2), (3, 4)]
    assert merged([(0, 5), (1, 2)], 0.2) == [(0, 5)]


def test_a_window_needs_five_points():
    points = [(index * 0.2, 0.0) for index in range(50)]
    assert resolved(points, [(0.0, 1.0), (3.0, 4.0)])
    assert not resolved(points, [(0.0, 1.0), (3.01, 3.5)])
