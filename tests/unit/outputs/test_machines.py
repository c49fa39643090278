"""Tools that measure machines and their fabric: what is parsed, and what an import calls it."""

import json
import re
import statistics

import pytest

from nixwulf.core.errors import InputError
from nixwulf.outputs import (
    ParseError,
    ToolFailed,
    hpl,
    iperf3,
    nccl,
    perftest,
    ping,
    sockperf,
)
from nixwulf.outputs.iperf3 import IntervalRow
from nixwulf.outputs.nccl import NcclRow
from nixwulf.outputs.perftest import LatencyRow
from nixwulf.results.importing import UserMetadata
from tool_outputs import ALL_TO_ALL, IPERF3, MACOS, NCCL, PATHS, PERFTEST, by_name, fixture

ONE = fixture("hpl/one-problem.txt")
(ROW,) = (line for line in ONE.splitlines(keepends=True) if line.startswith("WR"))
(PASSED,) = (line for line in ONE.splitlines(keepends=True) if line.endswith("PASSED\n"))
SECONDS, GFLOPS = ROW.split()[5:]


def test_the_hpl_part_of_hpcc_has_what_xhpl_prints():
    (solution,) = hpl.parse(ONE)
    assert solution.problem == hpl.Problem(1000, 80, 1, 2)
    assert (solution.seconds, solution.gflops) == (float(SECONDS), float(GFLOPS))
    flops = 2 / 3 * 1000**3 + 3 / 2 * 1000**2
    assert solution.gflops == pytest.approx(flops / solution.seconds / 1e9, rel=0.05)


def test_each_problem_is_a_solution():
    found = hpl.parse(fixture("hpl/two-problems.txt"))
    assert [(each.problem.n, each.residual < 16) for each in found] == [(1000, True), (1200, True)]


SERVER = fixture("iperf3/server-both-ways.txt")
BOTH_WAYS = json.loads(fixture("iperf3/both-ways.json"))


def gbps(text):
    """The rates that lines of text in kbit/s have, in the order of the lines."""
    return [int(rate) / 1e6 for rate in re.findall(r"(\d+) Kbits/sec", text)]


def of_json(total):
    return BOTH_WAYS["end"][total]["bits_per_second"] / 1e9


def test_both_directions_are_as_the_client_sees_them_whoever_prints_them():
    flows = iperf3.parse(SERVER)
    *_, received, sent = gbps(SERVER)
    kept = [line for line in SERVER.splitlines() if "[RX-S]" in line and "(omitted)" not in line]
    assert [row.gbps for row in flows["forward"].rows] == gbps("\n".join(kept))[:-1]
    assert flows["forward"].received_gbps == received
    assert flows["reverse"].sent_gbps == sent
    assert flows["reverse"].retransmits == int(SERVER.split()[-2])


def test_intervals_that_were_to_be_omitted_are_left_out():
    printed, omitted = SERVER.count("[RX-S]") - 1, SERVER.count("(omitted)") // 2
    assert omitted > 0
    assert [len(flow.rows) for flow in iperf3.parse(SERVER).values()] == [printed - omitted] * 2


def test_the_json_of_a_test_both_ways_has_both():
    flows = iperf3.parse(fixture("iperf3/both-ways.json"))
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
    assert list(iperf3.parse(text)) == ["forward"]
    streams = [stream["receiver"] for stream in json.loads(text)["end"]["streams"]]
    assert len(streams) == 4
    assert iperf3.parse(text)["forward"].received_gbps == pytest.approx(
        sum(stream["bits_per_second"] for stream in streams) / 1e9, rel=0.01
    )


def test_a_test_that_was_stopped_keeps_its_intervals():
    text = fixture("iperf3/stopped.json")
    sums = [interval["sum"] for interval in json.loads(text)["intervals"]]
    assert len(sums) > 2
    assert iperf3.parse_unfinished(text)["forward"].rows == tuple(
        IntervalRow(each["start"], each["end"], round(each["bits_per_second"] / 1e9, 6))
        for each in sums
    )
    assert iperf3.parse_unfinished("nonsense") == {}


def test_round_trips_are_in_microseconds_with_every_sample():
    replies = ping.parse(fixture("ping/replies.txt"))
    assert len(replies.samples) == 20
    assert replies.lost == 0
    last = fixture("ping/replies.txt").splitlines()[-1]
    least, mean, most = map(float, re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/", last).groups())
    assert (min(replies.samples), max(replies.samples)) == (least * 1000, most * 1000)
    assert statistics.mean(replies.samples) == pytest.approx(mean * 1000, abs=1.0)


def test_ping_of_macos_is_understood():
    assert ping.parse(MACOS).samples == (42.0, 1020.0)
    assert ping.parse(MACOS).lost == 1


def test_packets_that_did_not_come_back_are_counted():
    for name in ("no-answer", "host-unreachable"):
        replies = ping.parse(fixture(f"ping/{name}.txt"))
        assert (replies.samples, replies.lost) == ((), 3)
    assert "Destination Host Unreachable" in fixture("ping/host-unreachable.txt")


def test_a_summary_alone_is_the_mean_with_its_deviation(records):
    lines = fixture("ping/replies.txt").splitlines(keepends=True)
    (summary,) = (line for line in lines if line.startswith("rtt "))
    least, mean, most, deviation = map(float, re.findall(r"[\d.]+", summary))
    (record,) = records("".join(lines[:1] + lines[-4:]))
    (metric,) = record["metrics"]
    assert (metric["value"], metric["stddev"]) == (
        round(mean * 1000, 1),
        round(deviation * 1000, 1),
    )
    assert metric["observed"] == {
        "lost": 0,
        "round_trips": 20,
        "min_us": least * 1000,
        "max_us": most * 1000,
    }
    (mac,) = records(MACOS[MACOS.index("---") :])
    assert (mac["metrics"][0]["value"], mac["metrics"][0]["observed"]["lost"]) == (531.0, 1)


def test_every_round_trip_of_the_log_is_kept_in_order():
    found = sockperf.parse(fixture("sockperf/tcp.txt"))
    rows = [line for line in fixture("sockperf/tcp.txt").splitlines() if line[:1].isdigit()]
    assert len(found.samples) == len(rows)
    assert len(rows) > 10
    assert found.samples[0] == float(rows[0].split(", ")[3])
    assert 0 < found.span_s < 1


TABLE = fixture("nccl-tests/decode.txt")
FIRST = TABLE.splitlines()[4]
# hand-made: RCCL writes it on AMD's GPUs (form: WARN in
# https://github.com/ROCm/rccl/blob/rocm-6.2.2/src/init.cc)
IOMMU = """
n1:15718:15718 [0] /src/init.cc:163 NCCL WARN Missing "iommu=pt" from kernel command line
"""


def test_a_row_has_both_placements():
    table = nccl.parse(TABLE)
    alike = {"time": 20.08, "algbw": 0.05, "busbw": 0.05}
    assert table.rows[0] == NcclRow(1024, {"out-of-place": alike, "in-place": alike})
    assert [row.bytes for row in table.rows] == [1 << power for power in range(10, 19)]
    assert table.average_gbs == 1.80688


def columns_without(text, *names):
    """A table of nccl-tests less the columns of these names."""
    head = next(line for line in text.splitlines() if "#wrong" in line).lstrip("# ").split()
    kept = [at for at, name in enumerate(head) if name not in names]
    lines = []
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        row = len(words) == len(head) and (words == head or words[0].isdecimal())
        mark = "# " if words == head else "  "
        lines.append(mark + " ".join(words[at] for at in kept) if row else line)
    return "\n".join(lines)


@pytest.mark.parametrize("names", [["count"], ["root", "redop"], ["algbw"], ["#wrong"], ["time"]])
def test_columns_are_found_by_their_names(names):
    less = nccl.parse(columns_without(TABLE, *names))
    for row, whole in zip(less.rows, nccl.parse(TABLE).rows, strict=True):
        assert row.bytes == whole.bytes
        for placement, values in whole.placed.items():
            kept = {name: one for name, one in values.items() if name not in names}
            assert row.placed[placement] == kept


def test_a_row_with_another_number_of_columns_than_its_head_is_refused():
    text = columns_without(TABLE, "count").replace("# size type", "# size count type")
    with pytest.raises(ParseError, match="no whole row of 1024 bytes|no size by line"):
        nccl.parse(text)


def test_both_bandwidths_and_values_that_nobody_checked_are_in_the_record(records):
    (record,) = records(NCCL.replace("0.04   0.04   0 ", "0.05   0.04   N/A "))
    rate = [m for m in record["metrics"] if m["name"] == "all_reduce_algorithm_bandwidth"]
    assert rate[0]["value"] == pytest.approx(0.4)
    assert "did not check" in record["warnings"][0]


def test_a_warning_of_the_library_is_no_failure_of_the_test():
    assert nccl.parse(IOMMU + TABLE) == nccl.parse(TABLE)
    assert nccl.failure(IOMMU + TABLE) is None


def test_a_test_that_failed_is_quoted_by_its_first_line():
    text = fixture("nccl-tests/no-gpu.txt")
    assert (nccl.failure(text) or "").endswith(
        "'CUDA driver version is insufficient for CUDA runtime version'"
    )
    with pytest.raises(ParseError, match="nccl-tests failed in line 6: .*driver version"):
        nccl.parse(text)


def test_a_row_that_the_librarys_log_cut_in_two_is_not_left_out():
    with pytest.raises(ParseError, match="no whole row of 1024 bytes in line 5"):
        nccl.parse(fixture("nccl-tests/row-cut.txt"))


# Of times that tools/fixtures/perftest_table.c gave to perftest's own functions.
LATENCY = fixture("perftest/lat.txt")


def test_a_latency_has_its_percentiles():
    (row,) = perftest.parse(LATENCY)
    assert row == LatencyRow(64, 1002, 1.5, 2.5, 2.0, 2.0, 0.0, 2.49, 2.5)


def test_megabytes_a_second_become_gigabits_and_are_binary():
    (row,) = perftest.parse(fixture("perftest/bw.txt"))
    assert (row.bytes, row.iterations) == (65536, 1000)
    assert row.average_gbps == pytest.approx(6250 * 2**20 * 8 / 1e9, abs=1e-3)
    assert row.message_rate_mpps == 0.1


def test_gigabits_a_second_stay_as_they_are():
    (row,) = perftest.parse(fixture("perftest/gbits.txt"))
    assert row.average_gbps == pytest.approx(row.peak_gbps, abs=0.01) == 52.43


def rates(text):
    """Gbit/s of each of its lines."""
    return [int(rate) / 1e6 for rate in re.findall(r"(\d+) Kbits/sec", text)]


def test_hpcc_prints_its_program_and_at_most_how_many_nodes(records):
    (record,) = records("hpl/one-problem.txt", UserMetadata(("lab",), nodes=2))
    gflops = by_name(record)["gflops"]
    assert gflops["unit"] == "Gflop/s"
    assert gflops["conditions"]["program"] == "hpcc"
    assert gflops["conditions"].keys() == {"n", "nb", "p", "q", "program", "variant"}
    assert gflops["conditions"]["variant"] == "WR11C2R4"
    with pytest.raises(InputError, match="--nodes 3 contradicts .* which has 2 processes"):
        records("hpl/one-problem.txt", UserMetadata(("lab",), nodes=3))


def test_iperf3_of_several_streams_has_them_and_what_arrived(records):
    (record,) = records("iperf3/4-streams.json")
    case = record["case"]
    assert (case["nodes"], case["transport"]) == (2, "tcp")
    assert case["parameters"] == {"streams": 4, "direction": "forward", "seconds": 2}
    (metric,) = record["metrics"]
    assert (metric["name"], metric["unit"], metric["state"]) == ("bandwidth", "Gbit/s", "cold")
    end = json.loads(fixture("iperf3/4-streams.json"))["end"]
    received, sent = (end[f"sum_{it}"]["bits_per_second"] / 1e9 for it in ("received", "sent"))
    observed = metric["observed"]
    assert (observed["received_gbps"], observed["sent_gbps"]) == pytest.approx(
        (received, sent), abs=1e-6
    )
    sums = [
        interval["sum"] for interval in json.loads(fixture("iperf3/4-streams.json"))["intervals"]
    ]
    mean = statistics.fmean(each["bits_per_second"] / 1e9 for each in sums)
    # The sender's intervals are no samples where more than 1 % of them was still in buffers.
    in_buffers = abs(mean - received) > 0.01 * received
    assert ("samples" in metric) is not in_buffers
    assert metric["value"] == pytest.approx(received if in_buffers else mean, abs=1e-6)


def test_iperf3_both_ways_is_a_metric_each_way_with_its_intervals(records):
    (record,) = records("iperf3/both-ways.json")
    directions = {m["conditions"]["direction"]: m for m in record["metrics"]}
    assert directions.keys() == {"forward", "reverse"}
    # Beside an omitted interval, iperf3 3.12 may print one of milliseconds.
    lasted = [
        interval["sum"]["seconds"]
        for interval in json.loads(fixture("iperf3/both-ways.json"))["intervals"]
        if not interval["sum"]["omitted"]
    ]
    whole = [seconds for seconds in lasted if seconds > 0.25]
    assert len(directions["reverse"]["samples"]) == len(whole) > 2
    assert record["case"]["parameters"]["direction"] == "bidir"


def test_text_of_iperf3_has_as_much_as_its_json(records):
    (record,) = records(IPERF3)
    assert record["case"]["parameters"] == {"streams": 1, "direction": "forward", "seconds": 2}
    (metric,) = record["metrics"]
    first, second, sent, received = rates(IPERF3)
    assert metric["samples"] == [first, second]
    assert metric["conditions"] == {"direction": "forward", "interval_s": 1.0}
    (retransmits,) = re.findall(r"(\d+) +sender", IPERF3)
    assert metric["observed"] == {
        "sent_gbps": sent,
        "received_gbps": received,
        "retransmits": int(retransmits),
    }


def test_intervals_with_one_left_out_are_no_samples(records):
    whole = re.sub(r"0\.00-2\.0\d", "0.00-3.00", IPERF3)
    (record,) = records(whole.replace("1.00-2.00", "2.00-3.00"))
    (metric,) = record["metrics"]
    received = rates(IPERF3)[-1]
    assert (metric["value"], "samples" in metric) == (received, False)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("to-itself", "connected a machine to itself"), ("udp", "was of UDP")],
)
def test_iperf3_of_one_machine_or_of_udp_is_refused(records, name, sentence):
    with pytest.raises(InputError, match=sentence):
        records(f"iperf3/{name}.txt")


def test_round_trips_keep_their_samples_and_percentiles(records):
    (ping,) = records("ping/replies.txt")
    metric = by_name(ping)["ping_round_trip"]
    assert ping["case"]["benchmark"] == "latency"
    assert metric["conditions"] == {"bytes": 64}
    assert (len(metric["samples"]), metric["percentiles"]["p99"]) == (20, max(metric["samples"]))
    (sockperf,) = records("sockperf/tcp.txt")
    metric = by_name(sockperf)["tcp_round_trip"]
    logged = len(re.findall(r"^\d+, ", fixture("sockperf/tcp.txt"), re.MULTILINE))
    assert (metric["state"], metric["observed"]) == ("warm", {"round_trips": logged})
    assert sockperf["case"]["transport"] == "tcp"


def test_nccl_tests_tell_collective_hosts_and_transport(records):
    (record,) = records(NCCL)
    case = record["case"]
    assert (case["benchmark"], case["nodes"], case["transport"]) == ("collectives", 2, "rdma")
    times = [m for m in record["metrics"] if m["name"] == "all_reduce_time"]
    assert {m["conditions"]["placement"]: m["value"] for m in times} == {
        "out-of-place": 26.5,
        "in-place": 26.1,
    }
    assert by_name(record)["all_reduce_average_bandwidth"]["value"] == pytest.approx(0.36)
    (cut,) = records(NCCL.split("\n", 4)[4], UserMetadata(("dgx-spark",), nodes=2))
    assert "collective_time" in by_name(cut)


def test_perftest_prints_its_operation(records):
    (record,) = records(PERFTEST)
    (metric,) = record["metrics"]
    assert (metric["name"], metric["value"]) == ("rdma_latency", 2.0)
    assert metric["conditions"] == {"operation": "read", "qps": 1, "mtu": 128, "bytes": 64}
    assert (metric["observed"]["p99_us"], record["case"]["transport"]) == (2.49, "rdma")


@pytest.mark.parametrize(
    ("title", "operation"),
    [
        ("RDMA_Write Post List BW Test", "write"),
        ("Atomic FETCH_AND_ADD BW Test", "atomic fetch_and_add"),
        ("Send Bidirectional Post List BW Test", "send"),
    ],
)
def test_the_operation_and_the_post_list_are_conditions(records, title, operation):
    # hand-made: titles and the line of the list (form: ctx_print_test_info of
    # https://github.com/linux-rdma/perftest/blob/9d86b34/src/perftest_parameters.c)
    head = f" {title}\n Number of qps   : 8\n Post List       : 64\n TX depth        : 128\n"
    (record,) = records(head + fixture("perftest/gbits.txt"))
    (metric,) = record["metrics"]
    found = metric["conditions"]
    assert (found["operation"], found["qps"], found["post_list"]) == (operation, 8, 64)
    assert found.get("bidirectional", False) == ("Bidirectional" in title)


def test_three_residuals_of_a_result_and_one_that_was_cut_off_change_nothing(records):
    said = UserMetadata(("lab",), nodes=2)
    (whole,) = records(ONE, said)
    (three,) = records(ONE.replace(PASSED, PASSED * 3), said)
    assert three["metrics"] == whole["metrics"]
    (cut,) = records(PASSED + ONE, said)
    assert cut["metrics"] == whole["metrics"]
    (two,) = records(ONE.replace(PASSED, PASSED + ROW), said)
    assert two["metrics"] == whole["metrics"]
    assert "no residual check" in two["warnings"][0]


def test_a_path_is_a_case_with_its_latency_in_microseconds(records):
    found = {record["fabric"]["name"]: record for record in records(PATHS)}
    (latency, bandwidth) = found["Ethernet (LAN)"]["metrics"]
    assert (latency["name"], latency["value"]) == ("ping_round_trip", 74.0)
    assert (bandwidth["name"], bandwidth["value"]) == ("bandwidth", 0.94)
    values = {name: m["value"] for name, m in by_name(found["RDMA (RoCE)"]).items()}
    assert values == {"rdma_latency": 5.23, "rdma_bandwidth": 50.64}
    assert found["RDMA (RoCE)"]["case"]["transport"] == "rdma"


def test_a_path_whose_tool_failed_is_left_out(records):
    (found,) = records(PATHS.replace("0.074 ms", "N/A     "))
    assert found["fabric"]["name"] == "RDMA (RoCE)"


def test_all_to_all_gives_time_and_rate(records):
    (record,) = records(ALL_TO_ALL, UserMetadata(("dgx-spark",), nodes=2))
    values = [(m["name"], m["value"], m["conditions"]) for m in record["metrics"]]
    sizes = {"bytes": 4096}
    assert values == [("all_to_all_time", 20.5, sizes), ("all_to_all_rank_rate", 3.2, sizes)]


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        (
            hpl,
            fixture("hpl/residual-failed.txt"),
            r"residual check FAILED in line \d+ with 0\.0072",
        ),
        (hpl, ROW + ROW + PASSED, "result in line 1 has no residual check"),
        (hpl, PASSED, "no result before it"),
        # hand-made: hpcc takes another grid where xhpl refuses, and xhpl is not in Debian
        # (form: HPL_pdinfo.c in https://www.netlib.org/benchmark/hpl/hpl-2.3.tar.gz)
        (hpl, ">>> Need at least 4 processes for these tests <<<\n", "Need at least 4 processes"),
        (hpl, fixture("hpl/no-mpirun.txt"), "no result by line 1"),
        (hpl, ROW.replace(SECONDS, "0.1.5") + PASSED, "numbers before line 2 are none"),
        (iperf3, fixture("iperf3/refused.json"), "server: Connection refused"),
        (iperf3, fixture("iperf3/refused.txt"), "server: Connection refused"),
        (iperf3, fixture("iperf3/no-route.txt"), "server: Network is unreachable"),
        (iperf3, fixture("iperf3/wrong-parameter.txt"), "parameter error - cannot be both"),
        (iperf3, fixture("iperf3/unknown-option.txt"), "unrecognized option '--no-such-option'"),
        (iperf3, fixture("iperf3/stopped.json"), "interrupt - the client has terminated"),
        # no output: JSON without what iperf3 always has
        (iperf3, '{"start": {}}', "no summary by line 1"),
        # no output: JSON without what iperf3 always has
        (iperf3, '{"start":\n', "line 2: Expecting value, expected a whole JSON object"),
        # no output: JSON without what iperf3 always has
        (iperf3, '{"intervals": [{"sum": 3}]}', "lacks what a test has"),
        (iperf3, "{" * 3000, "expected a whole JSON object"),
        # no output: JSON without what iperf3 always has
        (iperf3, '{"a":' + "[" * 100_000, "expected JSON as iperf3 writes it"),
        (iperf3, "", "no interval"),
        (nccl, TABLE.replace(FIRST, FIRST[:-1] + "7"), "7 wrong values of 1024 bytes in line 5"),
        (nccl, TABLE.replace(FIRST, FIRST[:-1] + "N/A"), "N/A wrong values"),
        (nccl, TABLE.replace(": 0 OK", ": 3 FAILED"), "3 values out of bounds in line 14"),
        (nccl, TABLE.replace(": 1.80688", ": 0"), "built without MPI"),
        (nccl, TABLE.partition("# Avg")[0], "no '# Avg bus bandwidth'"),
        (nccl, TABLE.replace("20.08", "a"), "a word for a number in line 5"),
        (perftest, fixture("perftest/no-device.txt"), "Unable to find the Infiniband/RoCE device"),
        # hand-made: perftest prints it where it runs for a time, which the driver never asks for
        # (form: RESULT_FMT_LAT_DUR in
        # https://github.com/linux-rdma/perftest/blob/9d86b34/src/perftest_parameters.h)
        (
            perftest,
            "#bytes #iterations t_avg[usec] tps[average]\n 2 1000 1.8 550000.00\n",
            "row in line 2 has no result",
        ),
        (perftest, "---", "no row by line 1"),
        (ping, fixture("ping/no-route.txt"), "no 'packets transmitted' by line 1"),
        # 3.7 exits 0 when it cannot connect.
        (
            sockperf,
            fixture("sockperf/refused.txt"),
            r"sockperf failed: Can`t connect socket \(errno=111",
        ),
    ],
)
def test_what_is_no_result_is_one_sentence(tool, text, words):
    with pytest.raises(ParseError, match=words):
        tool.parse(text)


FAILED = PASSED.replace("PASSED", "FAILED")


@pytest.mark.parametrize("text", [ROW + PASSED + ROW + FAILED, ROW + FAILED + ROW + PASSED])
def test_a_wrong_result_leaves_the_others_of_its_output(text):
    (found,) = hpl.read(text)
    assert len(found.metrics[0].samples) == 1
    assert "FAILED" in found.warnings[0]


def test_one_wrong_residual_of_three_makes_a_result_wrong():
    with pytest.raises(ToolFailed):
        hpl.read(ROW + PASSED + FAILED + FAILED)
