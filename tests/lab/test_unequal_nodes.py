"""Layers shared out over nodes of unequal speed, by real llama.cpp over RPC."""

import os
import re
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from lab_under_test import Silent, recorded

from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan
from nixwulf.sweep.sweep_file import parse_sweep

SERVERS_LEFT = "grep -lsE 'rpc-server|llama-server' /proc/[0-9]*/comm || true"
FAST, SLOW = 80.0, 20.0
RUNS_S, STANDS_S = 0.005, 0.045


@pytest.fixture(scope="module")
def unequal(cluster):
    """The lab, whose second node is said to be slower; `slowed` makes it so."""
    speeds = [FAST, SLOW, SLOW, SLOW]
    nodes = [
        replace(node, memory_bandwidth_gbs=gbs)
        for node, gbs in zip(cluster.nodes, speeds, strict=True)
    ]
    return replace(cluster, nodes=tuple(nodes))


def plan_for(cluster, split):
    document = {
        "name": "unequal",
        # Large enough for a token to take longer than the turns of a slowed process.
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


def rpc_servers(address):
    """Processes of this machine that are RPC servers on an address."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"rpc-server" in words[0] and address.encode() in words:
            yield int(line.parent.name)


@contextmanager
def slowed(address):
    """The RPC server of a node has a tenth of its time, stopped and continued in turns."""
    over = threading.Event()

    def slow():
        while not over.is_set():
            found = list(rpc_servers(address))
            for _ in range(50):
                for number in found:
                    for one, seconds in ((signal.SIGSTOP, STANDS_S), (signal.SIGCONT, RUNS_S)):
                        try:
                            os.kill(number, one)
                        except ProcessLookupError:
                            break
                        time.sleep(seconds)
                if over.is_set() or not found:
                    time.sleep(0.05)
                    break

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_fewer_layers_on_a_slower_node_are_faster_and_the_text_stays(nodes, unequal, tmp_path):
    address = unequal.nodes[1].fabrics["rdma-like"].address
    run = partial(recorded, nodes, tmp_path, SERVERS_LEFT)
    found = {}
    with slowed(address):
        for split in ("auto", "fastest", "bandwidth"):
            found[split] = run(plan_for(unequal, split))
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
    speed = {
        split: next(m["value"] for m in record["metrics"] if m["name"] == "decode")
        for split, record in found.items()
    }
    assert speed["fastest"] > 1.2 * speed["auto"]
