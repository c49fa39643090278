import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.sockperf import parse
from tool_outputs import fixture, truncations


def test_every_round_trip_of_the_log_is_kept_in_order():
    found = parse(fixture("sockperf/tcp.txt"))
    rows = [line for line in fixture("sockperf/tcp.txt").splitlines() if line[:1].isdigit()]
    assert len(found.samples) == len(rows)
    assert len(rows) > 10
    assert found.samples[0] == float(rows[0].split(", ")[3])
    assert 0 < found.span_s < 1


def test_the_words_decide_because_3_7_exits_0_when_it_cannot_connect():
    with pytest.raises(ParseError, match=r"sockperf failed: Can`t connect socket \(errno=111"):
        parse(fixture("sockperf/refused.txt"))


def test_any_truncation_is_a_result_or_the_parsers_own_error():
    results = 0
    for text in truncations(fixture("sockperf/tcp.txt")):
        try:
            results += bool(parse(text).samples)
        except ParseError:
            continue
    assert results == 2, "a log is whole when its last line of dashes has begun"


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    # no output: the head of sockperf/tcp.txt, before any text
    for given_text in (text, f"packet, txTime(sec), rxTime(sec), rtt(usec)\n{text}\n---"):
        try:
            parse(given_text)
        except ParseError:
            continue
