import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.parsers import ParseError
from nixwulf.parsers.perftest import Bandwidth, Latency, parse
from tool_outputs import fixture, reference, truncations

# hand-made: no RDMA device is at hand, and this kernel has no soft RoCE
# (form: RESULT_FMT_LAT in https://github.com/linux-rdma/perftest/blob/master/src/perftest_parameters.h)
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          0.81           2.58         0.85                0.85             0.06            0.89                    2.58
"""  # noqa: E501
# hand-made: as above (form: RESULT_FMT in the same file)
BANDWIDTH = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             11000.00           1000.00              0.016000
"""


def test_a_latency_has_its_percentiles():
    (row,) = parse(LATENCY)
    assert row == Latency(64, 1000, 0.81, 2.58, 0.85, 0.85, 0.06, 0.89, 2.58)


def test_megabytes_a_second_become_gigabits_and_are_binary():
    (row,) = parse(BANDWIDTH)
    assert row.average_gbps == 8.3886


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        (
            "perftest-lat-ib-with-cpufreq-warning.txt",
            1,
            Latency(2, 1000, 1.76, 6.12, 1.79, 1.80, 0.06, 1.88, 6.12),
        ),
        (
            "bench-mellanox-lat-row-plain.txt",
            1,
            Latency(64, 1000, 0.81, 2.58, 0.85, 0.85, 0.06, 0.89, 2.58),
        ),
        (
            "nvidia-ib_write_bw-spark-client1.txt",
            5,
            Bandwidth(65536, 882805, None, 92.57, 0.176554),
        ),
        (
            "nvidia-ib_write_bw-spark-client2.txt",
            6,
            Bandwidth(65536, 927940, None, 97.28, 0.185548),
        ),
        (
            "gb10blog-ib_write_bw-two-links-interleaved.txt",
            2,
            Bandwidth(1048576, 70121, None, 98.04, 0.011687),
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
    times = [(row.typical, row.p99) for row in rows if isinstance(row, Latency)]
    assert (typical, p99) in times


def test_no_device_is_perftests_own_words():
    with pytest.raises(ParseError, match="Unable to find the Infiniband/RoCE device"):
        parse(fixture("perftest/no-device.txt"))


def test_other_columns_are_one_sentence():
    with pytest.raises(ParseError, match="row in line 2 has other columns"):
        # hand-made: as above (form: RESULT_FMT_LAT_DUR in the same file)
        parse("#bytes #iterations t_avg[usec] tps[average]\n 2 1000 1.8 550000.00\n")
    with pytest.raises(ParseError, match="no row by line 1"):
        parse("---")


PUBLISHED = [
    "perftest-lat-ib-with-cpufreq-warning.txt",
    "bench-mellanox-lat-row-plain.txt",
    "nvidia-ib_write_bw-spark-client1.txt",
    "gb10blog-ib_write_bw-two-links-interleaved.txt",
    "hellas-perftest-rxe-tb0.csv.txt",
]


@pytest.mark.parametrize(
    "name", ["perftest/no-device.txt", "perftest/no-such-device.txt", *PUBLISHED]
)
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
