import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.parsers import ParseError
from nixwulf.parsers.iperf3 import Row, parse, parse_unfinished
from tool_outputs import fixture, reference, truncations

SERVER_OF_A_TEST_BOTH_WAYS = """\
Server listening on 50151 (test #1)
[ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd
[  5][RX-S]   0.00-0.50   sec   170 MBytes  2857010 Kbits/sec                  (omitted)
[  8][TX-S]   0.00-0.50   sec   220 MBytes  3690530 Kbits/sec    0   2.15 MBytes       (omitted)
[  5][RX-S]   0.00-0.50   sec   226 MBytes  3795925 Kbits/sec
[  8][TX-S]   0.00-0.50   sec   234 MBytes  3921462 Kbits/sec    7   3.01 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[  5][RX-S]   0.00-0.50   sec   226 MBytes  3795925 Kbits/sec                  receiver
[  8][TX-S]   0.00-0.50   sec   234 MBytes  3921462 Kbits/sec    7             sender
"""


def test_both_directions_are_as_the_client_sees_them_whoever_prints_them():
    flows = parse(SERVER_OF_A_TEST_BOTH_WAYS)
    assert flows["forward"].rows == (Row(0.0, 0.5, 3.795925),)
    assert flows["forward"].received_gbps == 3.795925
    assert flows["reverse"].sent_gbps == 3.921462
    assert flows["reverse"].retransmits == 7


def test_intervals_that_were_to_be_omitted_are_left_out():
    assert [len(flow.rows) for flow in parse(SERVER_OF_A_TEST_BOTH_WAYS).values()] == [1, 1]


def test_the_json_of_a_test_both_ways_has_both():
    flows = parse(fixture("iperf3-bidir.json"))
    assert [round(row.gbps, 3) for row in flows["forward"].rows] == [2.358, 2.391]
    assert flows["forward"].received_gbps == 2.35975
    assert flows["reverse"].received_gbps == 2.410425
    assert flows["reverse"].retransmits == 0


def test_several_streams_are_one_flow():
    flows = parse(fixture("iperf3-4-streams.json"))
    assert list(flows) == ["forward"]
    assert 2.3 < flows["forward"].received_gbps < 2.5


@pytest.mark.parametrize(
    ("name", "direction", "sent", "received", "retransmits", "rows"),
    [
        ("hellas-iperf3-tbnet-1stream.txt", "forward", 9.34, 9.33, 0, 3),
        ("hellas-iperf3-tbnet-P4.txt", "forward", 9.51, 9.47, 0, 0),
        ("hellas-iperf3-tbnet-bidir.txt", "forward", 4.17, 4.17, 80, 3),
        ("hellas-iperf3-tbnet-bidir.txt", "reverse", 2.40, 2.39, 0, 3),
    ],
)
def test_published_outputs_give_their_figures(name, direction, sent, received, retransmits, rows):
    flow = parse(reference(name))[direction]
    assert (flow.sent_gbps, flow.received_gbps, flow.retransmits) == (sent, received, retransmits)
    assert len(flow.rows) == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"start": {}, "intervals": [], "end": {}, "error": "Connection refused"}', "refused"),
        ("iperf3: error - unable to connect to server: Connection refused", "unable to connect"),
        ("iperf3: parameter error - bandwidth", "parameter error"),
        ('{"start": {}}', "no summary by line 1"),
        ('{"start":\n', "line 2: Expecting value, expected a whole JSON object"),
        ('{"intervals": [{"sum": 3}]}', "lacks what a test has"),
        ("{" * 3000, "expected a whole JSON object"),
        ('{"a":' + "[" * 100_000, "expected JSON as iperf3 writes it"),
        ("", "no interval"),
    ],
)
def test_what_is_no_result_is_one_sentence(text, words):
    with pytest.raises(ParseError, match=words):
        parse(text)


def test_a_test_that_was_stopped_keeps_its_intervals():
    text = '{"intervals": [{"sum": {"start": 0, "end": 1, "bits_per_second": 2e9}}], "error": "x"}'
    assert parse_unfinished(text)["forward"].rows == (Row(0.0, 1.0, 2.0),)
    assert parse_unfinished("nonsense") == {}


PUBLISHED = [f"hellas-iperf3-tbnet-{kind}.txt" for kind in ("1stream", "P4", "bidir")]


@pytest.mark.parametrize("name", ["iperf3-bidir.json", "iperf3-4-streams.json", *PUBLISHED])
def test_any_truncation_is_a_result_or_the_parsers_own_error(name):
    for text in truncations(reference(name) if name in PUBLISHED else fixture(name)):
        try:
            assert all(flow.sent_gbps or flow.received_gbps for flow in parse(text).values())
        except ParseError:
            continue


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    for given_text in (text, "{" + text, f"[  5] {text} sec"):
        try:
            parse(given_text)
        except ParseError:
            continue
