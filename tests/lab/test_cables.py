"""Three nodes in a ring of cables: each cable is measured, proved and judged by itself."""

from itertools import permutations

import pytest
from lab_under_test import Silent

from nixwulf.inventory.cluster import parse_cluster
from nixwulf.ops.preflight import preflight
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us
from nixwulf.sweep import session as bench
from nixwulf.sweep.plan import make_plan, parse_sweep

PAIRS = [("n1", "n2"), ("n1", "n3"), ("n2", "n3")]
OF_MACHINES = {"benchmark": ["iperf3"], "parameters": {"seconds": [1]}}
OF_LLAMA = {
    "model": ["tiny"],
    "parallelism": ["pipeline"],
    "parameters": {"n_prompt": [16], "n_gen": [4], "threads": [1]},
}


@pytest.fixture(scope="module")
def cluster():
    common = {"kind": "ethernet", "speed_gbps": 1, "mtu": 1500, "shape": {"rate_gbps": 1}}
    fabrics = {
        "office": {**common, "subnet": "10.91.0.0/24"},
        "ring": {**common, "subnet": "10.92.0.0/24", "link_prefix": 30, "control": "office"},
    }
    document = {"name": "ring", "lab": {"nodes": 3}, "fabrics": fabrics}
    return parse_cluster(document, "ring.toml")


def plan_for(cluster, matrix):
    document = {
        "name": "cables",
        "models": {"tiny": {"random": {"layers": 3}}},
        "matrix": {"nodes": [3], "fabric": ["ring"], **matrix},
        "samples": 1,
        "limits": {"wall_s": 120, "progress_s": 30},
    }
    return make_plan(parse_sweep(document, "cables.yaml"), cluster)


@pytest.fixture(scope="module")
def session(cluster):
    with bench.session(plan_for(cluster, OF_LLAMA), Silent()) as connected:
        yield connected


def record_of(session, cluster, folder, matrix):
    plan = plan_for(cluster, matrix)
    return bench.run_one(session, plan, folder, plan.cases[0], 0, lambda phase: None)


def test_a_cable_joins_two_nodes_and_nothing_passes_through_a_node(session, cluster):
    nodes = {node.name: node for node in cluster.nodes}
    for one, two in permutations(nodes, 2):
        address = nodes[two].end_to("ring", one).address
        session.nodes[one].script(f"ping -n -c 1 -W 2 {address}")
    beyond = nodes["n3"].end_to("ring", "n2").address
    ping = f"ping -n -c 1 -W 1 {beyond} >/dev/null 2>&1 || echo unreached"
    assert session.nodes["n1"].script(ping).strip() == "unreached"


def test_every_cable_is_probed_and_measured_and_the_worst_one_is_the_fabrics(
    session, cluster, tmp_path
):
    slow = "tc qdisc add dev cable-n3 root tbf rate 50mbit burst 128kb limit 1mb"
    session.nodes["n2"].script(slow)
    try:
        record = record_of(session, cluster, tmp_path, OF_MACHINES)
    finally:
        session.nodes["n2"].script("tc qdisc del dev cable-n3 root")
    assert record["outcome"] == "ok", record.get("failure")
    links = record["fabric"]["links"]
    assert [(link["from"], link["to"]) for link in links] == PAIRS
    rates = [link["bandwidth"]["value"] for link in links]
    assert record_bandwidth_gbps(record) == rates[2] < min(rates[:2])
    trips = [(link["rtt_before"]["median"] + link["rtt_after"]["median"]) / 2 for link in links]
    assert record_rtt_us(record) == max(trips)
    measured = [metric["conditions"] for metric in record["metrics"]]
    assert [(one.get("from", "n1"), one["worker"]) for one in measured] == PAIRS


def test_a_model_over_three_nodes_crosses_the_cables_from_the_head(session, cluster, tmp_path):
    record = record_of(session, cluster, tmp_path, OF_LLAMA)
    assert record["outcome"] == "ok", record.get("failure")
    transport = record["sanity"]["transport"]
    assert transport["proved"]
    assert transport["counters"]["n1"]["fabric"]["interface"] == "cable-n2, cable-n3"
    addresses = {cluster.nodes[n].end_to("ring", "n1").address for n in (1, 2)}
    (bench_line,) = (
        one["argv"] for one in record["commands"] if one["argv"][0].endswith("llama-bench")
    )
    served = bench_line[bench_line.index("--rpc") + 1].split(",")
    assert addresses <= {one.partition(":")[0] for one in served}


def test_an_mtu_that_is_wrong_on_one_cable_is_refused_there(session, cluster):
    session.nodes["n2"].script("ip link set cable-n3 mtu 1400")
    try:
        results = preflight(cluster, session.nodes, gates=["fabric", "path-mtu"]).results
    finally:
        session.nodes["n2"].script("ip link set cable-n3 mtu 1500")
    (refused,) = (result for result in results if result.state == "refused")
    assert (refused.gate, refused.node) == ("fabric", "n2")
    (sentence,) = refused.sentences
    assert "Node 'n2' has MTU 1400 on 'cable-n3'" in sentence
    again = preflight(cluster, session.nodes, gates=["fabric", "path-mtu"]).results
    assert {result.state for result in again} == {"ok"}
