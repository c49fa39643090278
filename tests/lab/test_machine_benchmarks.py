"""The benchmarks of the machines themselves, on real programs, and what their faults leave."""

import threading
import time
from functools import partial

import pytest
from lab_under_test import Silent, recorded

from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

PROGRESS_S = 4
PROGRAMS_LEFT = """
grep -ls -e iperf3 -e sockperf -e hpcc -e xhpl -e orted /proc/[0-9]*/comm || true
"""


def plan_for(cluster, benchmark, nodes=2, fabric="gbe5", limits=None, samples=1, **parameters):
    document = {
        "name": "machines",
        "matrix": {
            "benchmark": [benchmark],
            "nodes": [nodes],
            "fabric": [fabric],
            "parameters": {key: [value] for key, value in parameters.items()},
        },
        "samples": samples,
        "limits": limits or {"wall_s": 120, "progress_s": 30},
    }
    return make_plan(parse_sweep(document, "machines.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster, "iperf3"), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, PROGRAMS_LEFT)


def signal_program(nodes, name, program, signal):
    script = (
        'for comm in $(grep -lx "$1" /proc/[0-9]*/comm); do process=${comm%/comm}; '
        'kill "$2" "${process#/proc/}"; done'
    )
    nodes.nodes[name].script(script, program, signal)


def once_running(nodes, name, program, action):
    """Do something to a node once a program has run there for a second."""

    def watch():
        deadline = time.monotonic() + 60
        script = 'grep -lx "$1" /proc/[0-9]*/comm || true'
        while time.monotonic() < deadline:
            if nodes.nodes[name].script(script, program):
                time.sleep(1)
                action()
                return
            time.sleep(0.1)

    def on_phase(phase):
        if phase == "measure":
            threading.Thread(target=watch, daemon=True).start()

    return on_phase


def metrics_of(record):
    assert record["outcome"] == "ok", record.get("failure")
    return record["metrics"]


def test_iperf3_keeps_the_intervals_of_both_directions(run, cluster):
    plan = plan_for(cluster, "iperf3", direction="bidir", seconds=2, streams=2)
    forward, reverse = metrics_of(run(plan))
    assert [m["conditions"]["direction"] for m in (forward, reverse)] == ["forward", "reverse"]
    for metric in (forward, reverse):
        assert len(metric["samples"]) > 3
        assert 0 < metric["value"] < 5, "more than the link was shaped to"
        assert metric["conditions"].keys() == {"worker", "direction", "interval_s"}
    assert forward["observed"]["retransmits"] >= 0


def test_a_receiver_that_stops_inside_a_test_is_a_hang_with_its_stall(run, nodes, cluster):
    stop = once_running(
        nodes, "n1", "iperf3", lambda: signal_program(nodes, "n2", "iperf3", "-STOP")
    )
    limits = {"wall_s": 120, "progress_s": PROGRESS_S}
    begin = time.monotonic()
    record = run(plan_for(cluster, "iperf3", seconds=5, limits=limits), stop)
    assert record["outcome"] == "hang"
    assert "It carried nothing in" in record["failure"]["reason"]
    assert "10 of 10 pings to 'n2' came back after it." in record["failure"]["reason"]
    assert time.monotonic() - begin < 60, "the wall limit ended it, not the progress limit"


def test_latency_is_a_distribution_of_each_method_and_size(run, cluster):
    metrics = metrics_of(run(plan_for(cluster, "latency", count=100)))
    assert [(m["name"], m["conditions"]["bytes"]) for m in metrics] == [
        ("ping_round_trip", 64),
        ("ping_round_trip", 4096),
        ("tcp_round_trip", 64),
        ("tcp_round_trip", 4096),
    ]
    for metric in metrics:
        spread = metric["percentiles"]
        assert 400 < spread["p50"] <= spread["p95"] <= spread["p99"], "less than was shaped"
        assert metric["conditions"].keys() == {"worker", "bytes"}
    assert [m["observed"].keys() for m in metrics] == [{"lost"}] * 2 + [{"round_trips"}] * 2


def hpl_plan(cluster, **options):
    return plan_for(cluster, "hpl", fabric="rdma-like", nb=80, threads=1, **options)


def test_hpl_over_two_nodes_may_be_silent_and_passes_its_residual_check(run, cluster):
    limits = {"wall_s": 120, "progress_s": 6}
    gflops, seconds = metrics_of(run(hpl_plan(cluster, n=400, samples=2, limits=limits)))
    assert gflops["unit"] == "Gflop/s"
    assert len(gflops["samples"]) == len(seconds["samples"]) == 2
    assert (gflops["conditions"]["p"], gflops["conditions"]["q"]) == (1, 2)


def test_a_rank_that_is_killed_is_failed(run, nodes, cluster):
    kill = once_running(nodes, "n2", "hpcc", lambda: signal_program(nodes, "n2", "hpcc", "-KILL"))
    record = run(hpl_plan(cluster, n=2000), kill)
    assert record["outcome"] == "failed"
    assert "hpcc" in record["failure"]["reason"]


def test_a_rank_that_is_stopped_is_a_hang(run, nodes, cluster):
    stop = once_running(nodes, "n2", "hpcc", lambda: signal_program(nodes, "n2", "hpcc", "-STOP"))
    limits = {"wall_s": 120, "progress_s": PROGRESS_S}
    begin = time.monotonic()
    record = run(hpl_plan(cluster, n=2000, limits=limits), stop)
    assert record["outcome"] == "hang"
    assert time.monotonic() - begin < 60, "the wall limit ended it, not the progress limit"


def test_a_grid_that_does_not_fit_is_one_sentence(run, cluster):
    record = run(hpl_plan(cluster, n=100, ranks_per_node=2))
    assert record["outcome"] == "skipped"
    assert "too few for the grid 2 x 2" in record["failure"]["reason"]
