"""Reports of run folders in which not only llama-bench left records."""

import io
import re

import pytest
from rich.console import Console

from mixed_run import write_mixed_run
from nixwulf.report import summary_of
from nixwulf.report.findings import findings
from nixwulf.report.render import to_csv, to_html, to_markdown, to_terminal
from nixwulf.report.summary import summarize
from nixwulf.results.record import sealed
from nixwulf.results.store import read_folder
from record_factory import case, machines, metric, ok, write_run


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return summary_of(write_mixed_run(tmp_path_factory.mktemp("mixed")))


def printed(summary, width=80):
    out = io.StringIO()
    to_terminal(summary, Console(file=out, width=width))
    return out.getvalue()


def section_of(summary, benchmark):
    (section,) = [one for one in summary.sections if one.setting.benchmark == benchmark]
    return section


def sentences(summary, benchmark):
    return findings(section_of(summary, benchmark))


def of(records, folder):
    return summarize(read_folder(write_run(folder, records)))


def test_each_benchmark_is_a_section_and_those_of_engines_come_first(summary):
    assert [section.name for section in summary.sections] == [
        "llama.cpp, llama-bench, tiny",
        "llama.cpp, serve, tiny",
        *("hpl", "iperf3", "latency", "perftest"),
    ]


def test_every_form_gives_each_metric_its_own_unit(summary):
    for text in (to_html(summary), to_markdown(summary), printed(summary)):
        for unit in ("tok/s", "Gbit/s", "Gflop/s", "ms", "µs"):
            assert unit in text
        assert "TTFT" in text
    rows = to_csv(summary.folder.records)
    assert {"tok/s", "Gbit/s", "Gflop/s", "ms", "us"} <= set(re.findall(r"[\w/]+", rows))


def test_percentiles_stand_beside_the_mean_of_a_distribution(summary):
    (line,) = [
        line
        for line in section_of(summary, "serve").lines
        if line.what == "one node, concurrency 1"
    ]
    assert line.values["ttft"].spread == ("11.0", "11.5", "22.4")
    assert line.values["throughput"].spread == ("", "", "")
    assert re.search(r"TTFT ms +11\.5 ± 2\.5 +11\.0 +11\.5 +22\.4", printed(summary))
    assert re.search(r"TTFT ms \| 11\.5 ± 2\.5 \| 11\.0 \| 11\.5 \| 22\.4", to_markdown(summary))


def test_only_work_that_nodes_share_has_a_speed_up(summary):
    scaled = {
        (line.setting.benchmark, name)
        for line in summary.lines
        for name, value in line.values.items()
        if line.nodes > 1 and value.speed_up is not None
    }
    assert scaled == {
        ("llama-bench", "prompt"),
        ("llama-bench", "decode"),
        ("serve", "decode"),
        ("serve", "throughput"),
        ("hpl", "performance"),
    }


def test_a_time_is_best_where_it_is_shortest(summary):
    assert sentences(summary, "latency")[0] == (
        "With bytes 64: Median round trip is shortest on 2 nodes over rdma-like (round trip 24 "
        "µs), at 24.0 µs, and longest on 2 nodes over gbe2g5 (round trip 1.01 ms), at 1010 µs."
    )


def test_a_time_that_grows_with_the_round_trip_is_no_speed_that_does_not_fall(tmp_path):
    records = [
        ok(
            case(2, fabric, benchmark="serve"),
            [metric("ttft", [time, time * 1.01], unit="ms", distribution=True)],
            rtt_us=rtt,
        )
        for fabric, rtt, time in (("near", 20.0, 10.0), ("far", 900.0, 40.0))
    ]
    first, second = findings(of(records, tmp_path).sections[0])
    assert first.startswith("Median time to first token (TTFT) is shortest on 2 nodes in tensor")
    assert second == (
        "Median time to first token (TTFT) in tensor on 2 nodes grows from 10.0 to 40.0 ms (by "
        "300 %) as the measured round trip grows from 20 µs to 900 µs."
    )


def test_work_on_machines_is_compared_with_one_node(summary):
    assert sentences(summary, "hpl")[0] == (
        "Performance on one node: 61.0 Gflop/s. The best case of several nodes, 4 nodes over "
        "rdma-like (round trip 24 µs), gives 171 Gflop/s (2.80 × that); the slowest, 2 nodes over "
        "rdma-like (round trip 24 µs), 104 Gflop/s (1.70 × that)."
    )


def test_parameters_that_differ_tell_lines_of_one_table_apart(summary):
    lines = section_of(summary, "serve").lines
    assert [line.axes for line in lines] == [{"concurrency": n} for n in (1, 4, 16)] * 2


def test_metrics_of_one_name_are_distinguished_by_what_differs_in_the_run(summary):
    lines = section_of(summary, "latency").lines
    assert [line.variant for line in lines] == ["bytes 64", "bytes 4096"] * 3


def test_what_was_observed_does_not_part_repetitions(tmp_path):
    of_ = machines("iperf3", 2, {"streams": 1})
    records = []
    for repetition, retransmits in enumerate((0, 17)):
        measured = metric("bandwidth", [9.0], unit="Gbit/s", conditions={"worker": "n2"})
        measured |= {"observed": {"retransmits": retransmits}}
        records.append(ok(of_, [measured], repetition=repetition))
    (line,) = of(records, tmp_path).lines
    assert line.values["bandwidth"].n_runs == 2


def test_three_numbers_of_a_parameter_make_a_curve(summary):
    page = to_html(summary)
    for label in (
        "Throughput, 2 nodes, tensor: tok/s by concurrency",
        "TTFT, 2 nodes, tensor: ms, less is better by concurrency",
        "Latency, 2 nodes, verb send: µs, less is better by bytes",
    ):
        assert f'aria-label="{label}"' in page


def test_links_are_not_drawn_over_their_own_round_trip(summary):
    labels = re.findall('aria-label="([^"]*) by measured round trip', to_html(summary))
    assert labels == ["Decode, pipeline: tok/s", "Decode, tensor: tok/s"]


def test_a_failure_names_its_benchmark_where_there_are_several(summary):
    for text in (to_html(summary), to_markdown(summary), printed(summary)):
        assert "of hpl, 4 nodes, gbe2g5, nb 256" in text


def test_warnings_of_runs_reach_the_reader_with_their_cases(summary):
    for text in (to_html(summary), to_markdown(summary), printed(summary, 200)):
        assert "The client itself was busy for 50% of the time" in text
        assert "serve, one node, concurrency 16" in text
    assert '<a href="#warnings" class="bad">1 warning</a> about these numbers' in to_html(summary)


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_keeps_to_its_columns(summary, width):
    assert max(map(len, printed(summary, width).splitlines())) <= width


def test_the_sentence_of_a_waived_gate_is_a_warning(tmp_path):
    said = {"gate": "mtu", "node": "n2", "state": "waived", "sentences": ["Its MTU is 1500."]}
    record = sealed({**ok(case(2), {"decode": [9.0]}), "waived": ["mtu"], "gates": [said]})
    page = to_html(of([record], tmp_path))
    assert "Gate &#39;mtu&#39; was waived on n2: Its MTU is 1500." in page


def test_speeds_beside_their_watts_are_still_one_row_a_case(tmp_path):
    measured = [
        metric("prompt", [2600.0]),
        metric("decode", [410.0, 412.0]),
        metric("prompt_per_wall_watt", [21.0], unit="tok/s/W"),
        metric("decode_per_wall_watt", [3.4], unit="tok/s/W"),
    ]
    shown = printed(of([ok(case(1), measured), ok(case(2), measured)], tmp_path))
    assert re.search(r"^1 single .* 2600 +411 ± 1 +3\.40 +21\.0 +ok", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 80
