from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.perftest import BandwidthRow, LatencyRow, parse
from tool_outputs import FIXTURES, fixture, reference, truncations

# Of times that tools/fixtures/perftest_table.c gave to perftest's own functions.
LATENCY = fixture("perftest/lat.txt")


def test_a_latency_has_its_percentiles():
    (row,) = parse(LATENCY)
    assert row == LatencyRow(64, 1002, 1.5, 2.5, 2.0, 2.0, 0.0, 2.49, 2.5)


def test_megabytes_a_second_become_gigabits_and_are_binary():
    (row,) = parse(fixture("perftest/bw.txt"))
    assert (row.bytes, row.iterations) == (65536, 1000)
    assert row.average_gbps == pytest.approx(6250 * 2**20 * 8 / 1e9, abs=1e-3)
    assert row.message_rate_mpps == 0.1


def test_gigabits_a_second_stay_as_they_are():
    (row,) = parse(fixture("perftest/gbits.txt"))
    assert row.average_gbps == pytest.approx(row.peak_gbps, abs=0.01) == 52.43


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        (
            "perftest-lat-ib-with-cpufreq-warning.txt",
            1,
            LatencyRow(2, 1000, 1.76, 6.12, 1.79, 1.80, 0.06, 1.88, 6.12),
        ),
        (
            "bench-mellanox-lat-row-plain.txt",
            1,
            LatencyRow(64, 1000, 0.81, 2.58, 0.85, 0.85, 0.06, 0.89, 2.58),
        ),
        (
            "nvidia-ib_write_bw-spark-client1.txt",
            5,
            BandwidthRow(65536, 882805, None, 92.57, 0.176554),
        ),
        (
            "nvidia-ib_write_bw-spark-client2.txt",
            6,
            BandwidthRow(65536, 927940, None, 97.28, 0.185548),
        ),
        (
            "gb10blog-ib_write_bw-two-links-interleaved.txt",
            2,
            BandwidthRow(1048576, 70121, None, 98.04, 0.011687),
        ),
    ],
)
def test_published_outputs_give_their_figures(name, count, first):
    rows = parse(reference(name))
    assert len(rows) == count
    assert rows[0] == first


@pytest.mark.parametrize(
    ("name", "count", "typical", "p99"),
    [
        ("hellas-perftest-rxe-tb0.csv.txt", 84, 65.28, 68.24),
        ("hellas-perftest-rxe-ethernet.csv.txt", 84, 24.31, 39.37),
        ("hellas-perftest-native4rail.csv.txt", 186, 6.94, 8.82),
    ],
)
def test_the_published_tables_of_a_runner_give_their_figures(name, count, typical, p99):
    rows = parse(reference(name))
    assert len(rows) == count
    times = [(row.typical, row.p99) for row in rows if isinstance(row, LatencyRow)]
    assert (typical, p99) in times


def test_no_device_is_perftests_own_words():
    with pytest.raises(ParseError, match="Unable to find the Infiniband/RoCE device"):
        parse(fixture("perftest/no-device.txt"))


def test_other_columns_are_one_sentence():
    with pytest.raises(ParseError, match="row in line 2 has other columns"):
        # hand-made: perftest prints it where it runs for a time, which the driver never asks for
        # (form: RESULT_FMT_LAT_DUR in
        # https://github.com/linux-rdma/perftest/blob/9d86b34/src/perftest_parameters.h)
        parse("#bytes #iterations t_avg[usec] tps[average]\n 2 1000 1.8 550000.00\n")
    with pytest.raises(ParseError, match="no row by line 1"):
        parse("---")


OURS = [f"perftest/{path.name}" for path in sorted(Path(FIXTURES, "perftest").iterdir())]
PUBLISHED = [
    "perftest-lat-ib-with-cpufreq-warning.txt",
    "bench-mellanox-lat-row-plain.txt",
    "nvidia-ib_write_bw-spark-client1.txt",
    "gb10blog-ib_write_bw-two-links-interleaved.txt",
    "hellas-perftest-rxe-tb0.csv.txt",
]


@pytest.mark.parametrize("name", OURS + PUBLISHED)
def test_any_truncation_is_a_result_or_the_parsers_own_error(name):
    for text in truncations(reference(name) if name in PUBLISHED else fixture(name)):
        try:
            assert parse(text)
        except ParseError:
            continue


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    # no output: the first word of a head, before any text
    for given_text in (text, LATENCY + text, f"#bytes {text}\n{text}", f"timestamp_utc,\n{text}"):
        try:
            parse(given_text)
        except ParseError:
            continue
