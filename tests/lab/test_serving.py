"""Streamed requests to a real llama-server, alone and over RPC, and how each fault ends."""

import json
import statistics
import threading
import time
from functools import partial

import pytest
from lab_under_test import Silent, recorded

from nixwulf.plugins.runtime.texts import KINDS
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

PROGRESS_S = 20
# Of runs that hang: a test waits for it once or twice.
HANG_S = 4
THREADS = {"threads": 1}
ALONE = {"nodes": [1], "parallelism": ["single"]}
SERVERS_LEFT = "grep -lsE 'rpc-server|llama-server' /proc/[0-9]*/comm || true"


def plan_for(cluster, samples=1, matrix=None, progress_s=PROGRESS_S, **parameters):
    document = {
        "name": "serve",
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "benchmark": ["serve"],
            "model": ["tiny"],
            "nodes": [2],
            "fabric": ["rdma-like"],
            "parallelism": ["pipeline"],
            **(matrix or {}),
            "parameters": {name: [value] for name, value in (parameters | THREADS).items()},
        },
        "samples": samples,
        "limits": {"wall_s": 120, "progress_s": progress_s},
    }
    return make_plan(parse_sweep(document, "serve.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, SERVERS_LEFT)


def metrics_of(record):
    assert record["outcome"] == "ok", record.get("failure")
    return {metric["name"]: metric for metric in record["metrics"]}


def warnings_of(record):
    """All but those that a busy machine gives."""
    busy = ("read at once", "client itself was busy")
    return [w for w in record.get("warnings", ()) if not any(words in w for words in busy)]


def endless(cluster, matrix=None):
    """Many short passes: whatever happens after the first one happens in a stream."""
    load = {"n_prompt": 32, "n_gen": 64, "requests": 2, "concurrency": 2}
    return plan_for(cluster, 500, matrix, HANG_S, **load)


def in_a_stream(nodes, folder, name, program, signal):
    """Send a program of a node a signal once a pass has ended; the moment it was sent."""
    script = (
        'for comm in $(grep -ls "$1" /proc/[0-9]*/comm); do process=${comm%/comm}; '
        'kill "$2" "${process#/proc/}"; done'
    )
    sent = []

    def watch():
        deadline = time.monotonic() + 100
        while not list(folder.glob("raw/*/answers.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.02)
        nodes.nodes[name].script(script, program, signal)
        sent.append(time.monotonic())

    def on_phase(phase):
        if phase == "measure":
            threading.Thread(target=watch, daemon=True).start()

    return on_phase, sent


def test_one_request_at_a_time_agrees_with_the_servers_own_clock(run, cluster, tmp_path):
    plan = plan_for(cluster, matrix=ALONE, n_prompt=1400, n_gen=100, requests=4)
    metrics = metrics_of(record := run(plan))
    assert warnings_of(record) == []
    assert record["sanity"]["text"]["agrees"]
    for ours, server in (("decode", "server_decode"), ("ttft", "server_prompt")):
        pairs = zip(metrics[ours]["samples"], metrics[server]["samples"], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        assert ratio == pytest.approx(1, abs=0.1), f"{ours} is {ratio:.3f} times {server}"
    answers = [json.loads(line) for line in next(tmp_path.glob("raw/*/answers.jsonl")).open()]
    assert [answer["prompt_tokens"] for answer in answers] == [1400] * 4
    assert [answer["cached_tokens"] for answer in answers] == [0] * 4
    assert metrics["ttft"]["samples"] == [round(answer["came"][0], 4) for answer in answers]


@pytest.mark.parametrize(("parallelism", "api"), [("pipeline", "completions"), ("tensor", "chat")])
def test_requests_at_once_over_rpc_are_counted_and_their_fabric_is_proved(
    run, cluster, parallelism, api
):
    # Of a shorter answer a client that waits for a core reads most at once, and no decode is told.
    load = {"concurrency": 3, "requests": 6, "n_prompt": 96, "n_gen": 48, "api": api}
    record = run(plan_for(cluster, 2, {"parallelism": [parallelism]}, **load))
    metrics = metrics_of(record)
    assert warnings_of(record) == []
    transport = record["sanity"]["transport"]
    assert transport["proved"]
    assert transport["bytes"]["n2"] > 1_000_000
    counts = {name: len(metric["samples"]) for name, metric in metrics.items()}
    assert counts["ttft"] == counts["decode"] == 2 * 6
    assert counts["itl"] == 2 * 6 * (48 - 1)
    assert counts["throughput"] == counts["client_busy"] == 2
    assert set(metrics["itl"]["percentiles"]) == {"p50", "p95", "p99"}
    assert metrics["ttft"]["conditions"] == {**load, "ignore_eos": True}
    server = record["commands"][-1]
    size = server["argv"].index("-np")
    assert server["argv"][size : size + 4] == ["-np", "3", "-c", str(3 * (96 + 48 + 128))]
    assert server["environment"]["LLAMA_ARG_CACHE_RAM"] == "0"
    alone = metrics["decode"]["value"]
    assert metrics["throughput"]["value"] > alone, "requests at once give no more than one"


@pytest.mark.parametrize(("text", "api"), [("prose", "chat"), ("extraction", "completions")])
def test_natural_texts_have_their_length_in_the_servers_tokens(run, cluster, tmp_path, text, api):
    load = {"n_prompt": 640, "n_gen": 8, "requests": 3, "api": api, "text": text}
    record = run(plan_for(cluster, matrix=ALONE, **load))
    conditions = metrics_of(record)["ttft"]["conditions"]
    assert warnings_of(record) == []
    assert record["case"]["parameters"]["text"] == conditions["text"] == text
    assert conditions["text_digest"] == KINDS[text].digest
    answers = [json.loads(line) for line in next(tmp_path.glob("raw/*/answers.jsonl")).open()]
    assert [answer["prompt_tokens"] for answer in answers] == [640] * 3


def test_a_prompt_at_depth_computes_itself_alone_in_each_slot(run, cluster, tmp_path):
    load = {"n_prompt": 200, "n_gen": 8, "requests": 6, "concurrency": 2, "depth": 900}
    record = run(plan_for(cluster, 2, matrix=ALONE, **load))
    conditions = metrics_of(record)["ttft"]["conditions"]
    assert warnings_of(record) == []
    assert (conditions["n_depth"], conditions["depth_from"]) == (900, "cache")
    answers = [json.loads(line) for line in next(tmp_path.glob("raw/*/answers.jsonl")).open()]
    assert {answer["prompt_tokens"] for answer in answers} == {900 + 200}
    computed = [answer["timings"]["prompt_n"] for answer in answers]
    assert len(computed) == 12
    assert max(computed) <= 200
    assert min(computed) >= 200 - 6, "more than a word was in the cache"
    server = record["commands"][-1]
    assert "LLAMA_ARG_CACHE_PROMPT" not in server["environment"]
    assert server["argv"][server["argv"].index("-c") + 1] == str(2 * (900 + 200 + 8 + 128))


def test_depth_that_the_server_computes_again_is_not_called_cached(run, cluster):
    load = {"n_prompt": 100, "n_gen": 8, "requests": 2, "depth": 900}
    record = run(plan_for(cluster, matrix=ALONE, arguments="--no-cache-prompt", **load))
    assert metrics_of(record)["ttft"]["conditions"]["depth_from"] == "computed"
    assert any("have the 900 tokens before the prompt" in words for words in warnings_of(record))


REPLICAS = {"parallelism": ["replicas"]}


def test_replicas_share_the_requests_out_and_cross_no_fabric(run, cluster, tmp_path):
    record = run(plan_for(cluster, 2, REPLICAS, n_prompt=32, n_gen=16, requests=8, concurrency=4))
    whole = metrics_of(record)["throughput"]
    parts = [one for one in record["metrics"] if one["name"] == "replica_throughput"]
    assert [one["conditions"]["node"] for one in parts] == ["n1", "n2"]
    for all_of_it, *own in zip(whole["samples"], *(one["samples"] for one in parts), strict=True):
        assert sum(own) == pytest.approx(all_of_it, rel=1e-3)
    (file,) = tmp_path.glob("raw/*/answers.jsonl")
    servers = [json.loads(line)["server"] for line in file.read_text().splitlines()]
    assert len(servers) == 16
    assert set(servers) == {0, 1}
    assert "fabric" not in record
    assert record["sanity"].keys() == {"text"}
    assert record["engine"]["devices"] == "n1: CPU, n2: CPU"
    started = [one for one in record["commands"] if "llama-server" in one["argv"][0]]
    assert {one["node"] for one in started} == {"n1", "n2"}
    assert not any("--rpc" in one["argv"] for one in started)


@pytest.mark.parametrize("parallelism", ["pipeline", "tensor"])
def test_two_groups_of_two_nodes_share_the_requests_out_each_over_its_own_fabric(
    run, cluster, tmp_path, parallelism
):
    matrix = {"nodes": [4], "parallelism": [parallelism]}
    load = {"n_prompt": 32, "n_gen": 16, "requests": 8, "concurrency": 4}
    record = run(plan_for(cluster, 2, matrix, servers=2, **load))
    whole = metrics_of(record)["throughput"]
    parts = [one for one in record["metrics"] if one["name"] == "replica_throughput"]
    assert [one["conditions"]["node"] for one in parts] == ["n1", "n3"]
    for all_of_it, *own in zip(whole["samples"], *(one["samples"] for one in parts), strict=True):
        assert sum(own) == pytest.approx(all_of_it, rel=1e-3)
    (file,) = tmp_path.glob("raw/*/answers.jsonl")
    servers = [json.loads(line)["server"] for line in file.read_text().splitlines()]
    assert set(servers) == {0, 1}
    assert record["sanity"]["text"]["agrees"]
    assert record["sanity"]["transport"]["proved"]
    assert set(record["sanity"]["transport"]["bytes"]) == {"n1", "n2", "n3", "n4"}
    links = [(link["from"], link["to"]) for link in record["fabric"]["links"]]
    assert links == [("n1", "n2"), ("n3", "n4")]
    ends = {node.name: node.fabrics["rdma-like"].address for node in cluster.nodes}
    by_head = {}
    for command in record["commands"]:
        if "llama-server" in command["argv"][0] and "--rpc" in command["argv"]:
            given = command["argv"][command["argv"].index("--rpc") + 1]
            by_head[command["node"]] = {one.partition(":")[0] for one in given.split(",")}
    assert by_head == {
        "n1": {ends["n1"], ends["n2"]},
        "n3": {ends["n3"], ends["n4"]},
    }


@pytest.mark.parametrize(
    ("signal", "outcome", "words"),
    [
        ("-KILL", "failed", "Node 'n2': 'llama-server' was ended by SIGKILL"),
        ("-STOP", "hang", f"Node 'n2': 'llama-server' was silent for {HANG_S} s"),
    ],
)
def test_one_replica_that_fails_ends_the_run_with_its_node(
    run, nodes, cluster, tmp_path, signal, outcome, words
):
    on_phase, _ = in_a_stream(nodes, tmp_path, "n2", "llama-server", signal)
    record = run(endless(cluster, REPLICAS), on_phase)
    assert record["outcome"] == outcome, record.get("failure")
    assert words in record["failure"]["reason"]


def test_a_stopped_server_is_a_hang(run, nodes, cluster, tmp_path):
    on_phase, stopped = in_a_stream(nodes, tmp_path, "n1", "llama-server", "-STOP")
    record = run(endless(cluster, ALONE), on_phase)
    assert record["outcome"] == "hang", record.get("failure")
    assert f"'llama-server' was silent for {HANG_S} s" in record["failure"]["reason"]
    assert time.monotonic() - stopped[0] < HANG_S + 10
    assert record["metrics"] == []


def test_a_stopped_worker_is_a_hang(run, nodes, cluster, tmp_path):
    on_phase, stopped = in_a_stream(nodes, tmp_path, "n2", "rpc-server", "-STOP")
    record = run(endless(cluster), on_phase)
    assert record["outcome"] == "hang", record.get("failure")
    assert time.monotonic() - stopped[0] < HANG_S + 10


def test_a_server_that_dies_in_a_stream_is_failed(run, nodes, cluster, tmp_path):
    on_phase, _ = in_a_stream(nodes, tmp_path, "n1", "llama-server", "-KILL")
    record = run(endless(cluster, ALONE), on_phase)
    assert record["outcome"] == "failed"
    assert "'llama-server' was ended by SIGKILL" in record["failure"]["reason"]


def test_a_worker_that_dies_in_a_stream_is_failed(run, nodes, cluster, tmp_path):
    on_phase, _ = in_a_stream(nodes, tmp_path, "n2", "rpc-server", "-KILL")
    record = run(endless(cluster), on_phase)
    assert record["outcome"] == "failed"
    assert "'ggml-rpc-server' on node 'n2' was ended by SIGKILL" in record["failure"]["reason"]


def test_a_prompt_longer_than_the_model_takes_is_failed_in_the_servers_words(run, cluster):
    record = run(plan_for(cluster, matrix=ALONE, n_prompt=3000, n_gen=8))
    assert record["outcome"] == "failed"
    assert (
        "answered 400 to POST /v1/completions: 'request (3000 tokens) exceeds the available context"
        in record["failure"]["reason"]
    )
