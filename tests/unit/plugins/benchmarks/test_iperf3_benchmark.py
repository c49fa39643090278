"""What iperf3 is started with, and what counts as a stall."""

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.link import RoundTrips, iperf3_server
from nixwulf.outputs.iperf3 import IntervalRow, whole
from nixwulf.plugins.benchmarks.iperf3 import BENCHMARK, client_arguments, stalls
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Run
from nixwulf.sweep.plan import make_plan, parse_sweep


def plan(transport="tcp", nodes=2, cluster="lab", warm_up=True, **parameters):
    matrix = {
        "benchmark": ["iperf3"],
        "nodes": [nodes],
        "transport": [transport],
        "parameters": {key: [value] for key, value in parameters.items()},
    }
    document = {"name": "links", "matrix": matrix, "warm_up": warm_up}
    return make_plan(parse_sweep(document, "links.yaml"), load_cluster(cluster))


def arguments(tmp_path, **options):
    made = plan(**options)
    run = Run("x-r0", made.cases[0], made.cluster, (), "", Limits(), tmp_path, 0.0)
    return " ".join(client_arguments(run, "10.77.1.12"))


def rows(*rates):
    return [IntervalRow(float(second), second + 1.0, rate) for second, rate in enumerate(rates)]


def test_the_server_listens_on_the_fabrics_address_for_one_test():
    assert " ".join(iperf3_server("10.77.1.12")) == (
        "iperf3 -s -1 -B 10.77.1.12 -p 50151 --forceflush"
    )


def test_the_client_gets_streams_direction_seconds_and_intervals(tmp_path):
    common = "iperf3 -c 10.77.1.12 -p 50151 -J --connect-timeout 3000"
    assert arguments(tmp_path) == f"{common} -t 5 -i 0.5 -P 1 -O 1"
    assert arguments(tmp_path, streams=4, direction="bidir", seconds=60) == (
        f"{common} -t 60 -i 1 -P 4 --bidir -O 1"
    )
    assert arguments(tmp_path, direction="reverse", seconds=1, warm_up=False) == (
        f"{common} -t 1 -i 0.1 -P 1 -R"
    )


def test_rdma_and_one_node_are_no_cases():
    point = {"nodes": 2, "transport": "rdma"}
    assert BENCHMARK.unsupported(point) == "iperf3 runs over tcp only"
    assert "one node has none" in BENCHMARK.unsupported({"nodes": 1})


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((9.1, 9.4, 9.3), ""),
        ((9.1, 0.0, 0.0, 9.3, 0.05), "1.0-3.0 s, 4.0-5.0 s"),
        ((0.0, 0.0), "0.0-2.0 s"),
        ((), ""),
    ],
)
def test_intervals_without_traffic_are_stalls(rates, expected):
    assert stalls(rows(*rates)) == expected


def test_a_last_interval_of_milliseconds_is_no_stall_at_the_end():
    measured = [*rows(9.1, 9.3), IntervalRow(2.0, 2.004, 0.0)]
    assert stalls(measured) == "2.0-2.0 s"
    assert whole(measured, 1.0) == list(rows(9.1, 9.3))


def test_round_trips_say_their_median_and_95th_percentile():
    trips = RoundTrips((42.0, 1020.0, 50.0), 1)
    assert trips.median == 50.0
    assert trips.document()["p95"] == 1020.0
