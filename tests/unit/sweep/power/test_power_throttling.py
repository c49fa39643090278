"""A run that was slowed down says by what; one that was not says nothing."""

import pytest

from nixwulf.nodes.power import Samples
from nixwulf.sweep.power import throttling

WINDOW = (10.0, 20.0)


def held(key, *points):
    return throttling(Samples((), {key: points}, ()), WINDOW)


def test_a_counter_counts_from_the_last_point_before_the_window():
    points = [(5.0, 1.0), (9.0, 4.0), (15.0, 4.0), (19.9, 7.0), (25.0, 90.0)]
    assert held("count:core_throttle", *points) == [{"counter": "core_throttle_count", "events": 3}]
    assert held("count:core_throttle", (5.0, 4.0), (15.0, 4.0), (25.0, 9.0)) == []


def test_a_counter_that_was_first_read_in_the_window_counts_from_there():
    found = held("count:package_throttle", (11.0, 40.0), (19.0, 42.0))
    assert found == [{"counter": "package_throttle_count", "events": 2}]


@pytest.mark.parametrize(
    ("bits", "meaning"),
    [
        (0x04, "software power cap"),
        (0x08, "hardware slowdown"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "hardware power brake"),
    ],
)
def test_a_gpu_says_why_it_slowed_down_and_in_what_share_of_samples(bits, meaning):
    points = [(9.0, bits), (11.0, bits), (12.0, 0), (13.0, 0), (14.0, 0x1)]
    assert held("bits:nvidia:0", *points) == [
        {"counter": f"nvidia GPU 0: {meaning}", "share": 0.25}
    ]


def test_a_gpu_that_is_idle_or_has_the_clocks_that_were_asked_for_is_not_throttled():
    assert held("bits:nvidia:0", (11.0, 0x1), (12.0, 0x2), (13.0, 0x100 | 0x10)) == []


def test_a_pi_says_what_holds_now_and_what_began_between_two_samples():
    now = held("bits:vcgencmd", (9.0, 0x50000), (11.0, 0x50005), (12.0, 0x50000))
    assert now == [
        {"counter": "vcgencmd: under-voltage", "share": 0.5},
        {"counter": "vcgencmd: throttled", "share": 0.5},
    ]
    between = held("bits:vcgencmd", (9.0, 0x0), (11.0, 0x0), (12.0, 0x80000))
    assert between == [{"counter": "vcgencmd: soft temperature limit", "events": 1}]


def test_what_happened_to_a_pi_since_its_boot_is_not_this_runs():
    assert held("bits:vcgencmd", (9.0, 0x50000), (11.0, 0x50000)) == []


def test_a_mac_under_thermal_pressure_says_so():
    assert held("pressure", (11.0, 0.0), (12.0, 1.0)) == [
        {"counter": "macOS thermal pressure", "share": 0.5}
    ]
