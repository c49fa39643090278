import re
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.ping import parse
from tool_outputs import FIXTURES, fixture, truncations

# hand-made: no Mac is at hand (form: ping(8) of macOS)
MACOS = """\
PING 10.77.1.12 (10.77.1.12): 56 data bytes
64 bytes from 10.77.1.12: icmp_seq=0 ttl=64 time=0.042 ms
Request timeout for icmp_seq 1
64 bytes from 10.77.1.12: icmp_seq=2 ttl=64 time=1.020 ms

--- 10.77.1.12 ping statistics ---
3 packets transmitted, 2 packets received, 33.3% packet loss
round-trip min/avg/max/stddev = 0.042/0.531/1.020/0.489 ms
"""


def test_round_trips_are_in_microseconds_with_every_sample():
    replies = parse(fixture("ping/replies.txt"))
    assert len(replies.samples) == 20
    assert replies.lost == 0
    last = fixture("ping/replies.txt").splitlines()[-1]
    least, mean, most = map(float, re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/", last).groups())
    assert (min(replies.samples), max(replies.samples)) == (least * 1000, most * 1000)
    assert statistics.mean(replies.samples) == pytest.approx(mean * 1000, abs=1.0)


def test_ping_of_macos_is_understood():
    assert parse(MACOS).samples == (42.0, 1020.0)
    assert parse(MACOS).lost == 1


def test_packets_that_did_not_come_back_are_counted():
    for name in ("no-answer", "host-unreachable"):
        replies = parse(fixture(f"ping/{name}.txt"))
        assert (replies.samples, replies.lost) == ((), 3)
    assert "Destination Host Unreachable" in fixture("ping/host-unreachable.txt")


def test_a_ping_that_did_not_start_is_one_sentence():
    with pytest.raises(ParseError, match="no 'packets transmitted' by line 1"):
        parse(fixture("ping/no-route.txt"))


OURS = [path.read_text() for path in sorted(Path(FIXTURES, "ping").iterdir())]


@pytest.mark.parametrize("text", [*OURS, MACOS])
def test_any_truncation_is_a_result_or_the_parsers_own_error(text):
    for part in truncations(text):
        try:
            assert parse(part).lost >= 0
        except ParseError:
            continue


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    for given_text in (text, f"time={text} ms 3 packets transmitted, {text} received"):
        try:
            parse(given_text)
        except ParseError:
            continue
