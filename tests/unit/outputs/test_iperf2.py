"""iperf 2 prints its sum last, without a word for it."""

import pytest

from nixwulf.outputs import ParseError, all_tools, iperf3
from tool_outputs import IPERF2


def test_the_longest_line_of_all_streams_is_the_result():
    (found,) = iperf3.read(IPERF2)
    (metric,) = found.metrics
    assert metric.observed["sent_gbps"] == 9.36
    assert found.parameters == {"streams": 2, "direction": "forward", "seconds": 10}
    assert found.note == "iperf 2"


def test_datagrams_of_iperf_2_are_refused():
    with pytest.raises(ParseError):
        iperf3.read(IPERF2.replace("TCP port", "UDP port"))


def test_it_is_a_tool_of_its_own_name():
    assert [one.name for one in all_tools().values() if one.recognises(IPERF2)] == ["iperf2"]
