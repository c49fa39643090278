"""Layers shared out over nodes of unequal speed, by real llama.cpp over RPC."""

import re
from dataclasses import replace
from functools import partial

import pytest
from lab_under_test import Silent, recorded

from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

SERVERS_LEFT = "grep -lsE 'rpc-server|llama-server' /proc/[0-9]*/comm || true"
FAST, SLOW = 80.0, 20.0


@pytest.fixture(scope="module")
def unequal(cluster):
    """The lab, whose first node is said to be the fastest."""
    speeds = [FAST, SLOW, SLOW, SLOW]
    nodes = [
        replace(node, memory_bandwidth_gbs=gbs)
        for node, gbs in zip(cluster.nodes, speeds, strict=True)
    ]
    return replace(cluster, nodes=tuple(nodes))


def plan_for(cluster, split):
    document = {
        "name": "unequal",
        "models": {"tiny": {"random": {"hidden": 768, "heads": 12, "feed_forward": 2048}}},
        "matrix": {
            "benchmark": ["llama-bench"],
            "model": ["tiny"],
            "nodes": [2],
            "fabric": ["rdma-like"],
            "parallelism": ["pipeline"],
            "parameters": {"split": [split], "threads": [1], "n_prompt": [32], "n_gen": [32]},
        },
        "samples": 3,
        "sanity": "short",
    }
    return make_plan(parse_sweep(document, "unequal.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(unequal):
    with session.session(plan_for(unequal, "auto"), Silent()) as connected:
        yield connected


def test_a_slower_node_gets_fewer_layers_and_the_text_stays(nodes, unequal, tmp_path):
    run = partial(recorded, nodes, tmp_path, SERVERS_LEFT)
    found = {split: run(plan_for(unequal, split)) for split in ("auto", "fastest", "bandwidth")}
    for record in found.values():
        assert record["outcome"] == "ok", record.get("failure")
        assert record["sanity"]["text"]["agrees"]
    sizes = {
        split: dict(re.findall(r"(n\d): ([\d.]+) MiB", record["engine"]["placed"]))
        for split, record in found.items()
    }
    share = {
        split: float(one["n2"]) / sum(map(float, one.values())) for split, one in sizes.items()
    }
    assert share["auto"] == pytest.approx(0.4, abs=0.05)
    assert share["fastest"] < share["bandwidth"] < share["auto"]
    given = {split: record["commands"][-1]["argv"] for split, record in found.items()}
    assert "-ts" not in given["auto"]
    assert given["fastest"][given["fastest"].index("-ts") + 1] == "8/1"
    assert given["bandwidth"][given["bandwidth"].index("-ts") + 1] == "7/2"
