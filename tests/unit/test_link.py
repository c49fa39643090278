import pytest

from nixwulf.errors import NixwulfError
from nixwulf.link import parse_iperf3, parse_ping

PING = """\
PING 10.77.1.12 (10.77.1.12) 56(84) bytes of data.
64 bytes from 10.77.1.12: icmp_seq=1 ttl=64 time=0.042 ms
64 bytes from 10.77.1.12: icmp_seq=2 ttl=64 time=1.02 ms
64 bytes from 10.77.1.12: icmp_seq=4 ttl=64 time=0.050 ms

--- 10.77.1.12 ping statistics ---
4 packets transmitted, 3 received, 25% packet loss, time 30ms
"""


def test_round_trips_are_in_microseconds_with_every_sample():
    trips = parse_ping(PING)
    assert trips is not None
    assert trips.samples == (42.0, 1020.0, 50.0)
    assert trips.median == 50.0
    assert trips.lost == 1
    assert trips.document()["p95"] == 1020.0


def test_no_packet_that_came_back_is_no_round_trip():
    assert parse_ping("4 packets transmitted, 0 received, 100% packet loss") is None


def test_the_error_key_of_iperf3_decides_because_3_12_exits_0():
    with pytest.raises(NixwulfError, match="unable to connect to server"):
        parse_iperf3('{"start": {}, "error": "unable to connect to server: Connection refused"}')
    with pytest.raises(NixwulfError, match="gave no JSON"):
        parse_iperf3("iperf3: parameter error")
