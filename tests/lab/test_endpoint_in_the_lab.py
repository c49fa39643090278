"""A llama-server that somebody else has started on a node of the lab, measured as it is."""

import os
import statistics
import time
from contextlib import contextmanager
from functools import partial

import pytest
from lab_under_test import Silent, recorded

from nixwulf.llm import random_gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.engines import find
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan
from nixwulf.sweep.sweep_file import parse_sweep

PORT, LOCKED = 18080, 18081
URL = f"http://127.0.0.1:{PORT}"
KEY = "s3cr3t-of-the-endpoint"
# The servers of these tests go on; no run starts another one.
LEFT = "grep -ls rpc-server /proc/[0-9]*/comm || true"
LOAD = {"n_prompt": 64, "n_gen": 32, "requests": 4}


def plan_for(cluster, name="mine", benchmark="serve", nodes=1, progress_s=60, **parameters):
    given = {"url": URL, **(LOAD if benchmark == "serve" else {}), **parameters}
    matrix = {
        "engine": ["endpoint"],
        "benchmark": [benchmark],
        "model": ["it"],
        "nodes": [nodes],
        "fabric": ["rdma-like"],
        "parallelism": ["single" if nodes == 1 else "pipeline"],
        "parameters": {key: [value] for key, value in given.items()},
    }
    document = {
        "name": "endpoint",
        "models": {"it": {"served": name}},
        "matrix": matrix,
        "samples": 2,
        "limits": {"wall_s": 120, "progress_s": progress_s},
    }
    return make_plan(parse_sweep(document, "endpoint.yaml"), cluster)


@contextmanager
def llama_server(node, folder, port, *more):
    """As its user starts it, with room for two of the longest prompts of a judged text."""
    program = str(find("llama.cpp").find_local().programs["llama-server"])
    model = str(random_gguf.ensure(RandomModel(layers=4)))
    argv = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", "1", *more]
    started = OwnedProcess.start(node, f"user-{port}", [*argv, "--no-webui"], {}, folder)
    try:
        deadline = time.monotonic() + 60
        ready = f"(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo ready"
        while "ready" not in node.run(["bash", "-c", ready]).stdout:
            assert started.running, started.errors
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def nodes(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    with session.session(plan_for(cluster), Silent()) as connected:
        head = connected.nodes["n1"]
        open_one = llama_server(head, folder, PORT, "-a", "mine", "-np", "1", "-c", "2048")
        locked = llama_server(head, folder, LOCKED, "-a", "mine", "--api-key", KEY)
        with open_one, locked:
            yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, LEFT)


def metrics_of(record):
    assert record["outcome"] == "ok", record.get("failure")
    return {metric["name"]: metric for metric in record["metrics"]}


def test_what_runs_is_measured_as_it_is_and_its_program_and_version_are_asked(run, cluster):
    record = run(plan_for(cluster))
    print(record)
    metrics = metrics_of(record)
    ours, own = (metrics[name]["samples"] for name in ("decode", "server_decode"))
    ratio = statistics.median(one / other for one, other in zip(ours, own, strict=True))
    assert ratio == pytest.approx(1, abs=0.1)
