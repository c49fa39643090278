"""iperf 2 prints its sum last, without a word for it."""

import pytest

from nixwulf.outputs import ParseError, iperf3

# hand-made: iperf 2 is no program of the driver
# (form: https://sourceforge.net/p/iperf2/code/ci/master/tree/doc/)
TEXT = """\
------------------------------------------------------------
Client connecting to 10.77.1.12, TCP port 5001
TCP window size: 85.0 KByte (default)
------------------------------------------------------------
[  3] local 10.77.1.11 port 41874 connected with 10.77.1.12 port 5001
[  4] local 10.77.1.11 port 41876 connected with 10.77.1.12 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0- 1.0 sec  0.54 GBytes  4.60 Gbits/sec
[  4]  0.0- 1.0 sec  0.55 GBytes  4.80 Gbits/sec
[SUM]  0.0- 1.0 sec  1.09 GBytes  9.40 Gbits/sec
[  3]  0.0-10.0 sec  5.40 GBytes  4.62 Gbits/sec
[  4]  0.0-10.0 sec  5.50 GBytes  4.74 Gbits/sec
[SUM]  0.0-10.0 sec  10.9 GBytes  9.36 Gbits/sec
"""


def test_the_longest_line_of_all_streams_is_the_result():
    (found,) = iperf3.read(TEXT)
    (metric,) = found.metrics
    assert metric.observed["sent_gbps"] == 9.36
    assert found.parameters == {"streams": 2, "direction": "forward", "seconds": 10}
    assert found.note == "iperf 2"


def test_datagrams_of_iperf_2_are_refused():
    with pytest.raises(ParseError):
        iperf3.read(TEXT.replace("TCP port", "UDP port"))
