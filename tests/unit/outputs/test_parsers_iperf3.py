import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.iperf3 import IntervalRow, parse, parse_unfinished
from tool_outputs import FIXTURES, fixture, reference, truncations

SERVER = fixture("iperf3/server-both-ways.txt")
BOTH_WAYS = json.loads(fixture("iperf3/both-ways.json"))


def gbps(text):
    """The rates that lines of text in kbit/s have, in the order of the lines."""
    return [int(rate) / 1e6 for rate in re.findall(r"(\d+) Kbits/sec", text)]


def of_json(total):
    return BOTH_WAYS["end"][total]["bits_per_second"] / 1e9


def test_both_directions_are_as_the_client_sees_them_whoever_prints_them():
    flows = parse(SERVER)
    *_, received, sent = gbps(SERVER)
    kept = [line for line in SERVER.splitlines() if "[RX-S]" in line and "(omitted)" not in line]
    assert [row.gbps for row in flows["forward"].rows] == gbps("\n".join(kept))[:-1]
    assert flows["forward"].received_gbps == received
    assert flows["reverse"].sent_gbps == sent
    assert flows["reverse"].retransmits == int(SERVER.split()[-2])


def test_intervals_that_were_to_be_omitted_are_left_out():
    printed, omitted = SERVER.count("[RX-S]") - 1, SERVER.count("(omitted)") // 2
    assert omitted > 0
    assert [len(flow.rows) for flow in parse(SERVER).values()] == [printed - omitted] * 2


def test_the_json_of_a_test_both_ways_has_both():
    flows = parse(fixture("iperf3/both-ways.json"))
    assert [row.gbps for row in flows["forward"].rows] == pytest.approx(
        [
            interval["sum"]["bits_per_second"] / 1e9
            for interval in BOTH_WAYS["intervals"]
            if not interval["sum"]["omitted"]
        ],
        abs=1e-6,
    )
    assert len(flows["forward"].rows) >= 4
    assert flows["forward"].received_gbps == pytest.approx(of_json("sum_received"), abs=1e-6)
    assert flows["reverse"].received_gbps == pytest.approx(
        of_json("sum_received_bidir_reverse"), abs=1e-6
    )
    assert flows["reverse"].retransmits == BOTH_WAYS["end"]["sum_sent_bidir_reverse"]["retransmits"]


def test_several_streams_are_one_flow():
    text = fixture("iperf3/4-streams.json")
    assert list(parse(text)) == ["forward"]
    streams = [stream["receiver"] for stream in json.loads(text)["end"]["streams"]]
    assert len(streams) == 4
    assert parse(text)["forward"].received_gbps == pytest.approx(
        sum(stream["bits_per_second"] for stream in streams) / 1e9, rel=0.01
    )


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
        (fixture("iperf3/refused.json"), "server: Connection refused"),
        (fixture("iperf3/refused.txt"), "server: Connection refused"),
        (fixture("iperf3/no-route.txt"), "server: Network is unreachable"),
        (fixture("iperf3/wrong-parameter.txt"), "parameter error - cannot be both"),
        (fixture("iperf3/unknown-option.txt"), "unrecognized option '--no-such-option'"),
        (fixture("iperf3/stopped.json"), "interrupt - the client has terminated"),
        # no output: JSON without what iperf3 always has
        ('{"start": {}}', "no summary by line 1"),
        # no output: JSON without what iperf3 always has
        ('{"start":\n', "line 2: Expecting value, expected a whole JSON object"),
        # no output: JSON without what iperf3 always has
        ('{"intervals": [{"sum": 3}]}', "lacks what a test has"),
        ("{" * 3000, "expected a whole JSON object"),
        # no output: JSON without what iperf3 always has
        ('{"a":' + "[" * 100_000, "expected JSON as iperf3 writes it"),
        ("", "no interval"),
    ],
)
def test_what_is_no_result_is_one_sentence(text, words):
    with pytest.raises(ParseError, match=words):
        parse(text)


def test_a_test_that_was_stopped_keeps_its_intervals():
    text = fixture("iperf3/stopped.json")
    sums = [interval["sum"] for interval in json.loads(text)["intervals"]]
    assert len(sums) > 2
    assert parse_unfinished(text)["forward"].rows == tuple(
        IntervalRow(each["start"], each["end"], round(each["bits_per_second"] / 1e9, 6))
        for each in sums
    )
    assert parse_unfinished("nonsense") == {}


OURS = [f"iperf3/{path.name}" for path in sorted(Path(FIXTURES, "iperf3").iterdir())]
PUBLISHED = [f"hellas-iperf3-tbnet-{kind}.txt" for kind in ("1stream", "P4", "bidir")]


@pytest.mark.parametrize("name", OURS + PUBLISHED)
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
