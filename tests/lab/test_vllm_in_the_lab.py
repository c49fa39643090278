"""vLLM in the lab: PyPI's build for CPUs, on one node and over two, and how its failures end."""

import json
import threading
import time
from functools import partial
from unittest.mock import Mock

import pytest
from lab_under_test import recorded

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.llm import place, safetensors
from nixwulf.plugins.engines import find
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

pytestmark = pytest.mark.timeout(900)
# Of a start: most of it is silent, and other work on the machine makes it longer.
PROGRESS_S = 120
LEFT = "ls /run/nixwulf/*.pid 2>/dev/null; grep -ls vllm /proc/[0-9]*/comm || true"
# no output: parameters of a case, and of one that is measured for long
UNBOUND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
# A start takes 26 instead of 36 s of CPU where its parts do not each import PyTorch again.
FORKED = {"VLLM_WORKER_MULTIPROCESSING_METHOD": "fork"}
SMALL = {
    "executor": ["mp"],
    "gpu_memory_percent": [6],
    "max_model_len": [512],
    "environment": [{**UNBOUND, **FORKED}],
}
TINY = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 4, "feed_forward": 256}
SERVE = {"requests": [2], "n_prompt": [32], "n_gen": [16]}
LONG = {"requests": [200], "n_prompt": [32], "n_gen": [64]}


def plan_for(cluster, parameters, *, models=None, samples=1, progress_s=PROGRESS_S, **matrix):
    document = {
        "name": "vllm",
        "models": models or {"tiny": {"random": TINY}},
        "matrix": {
            "engine": ["vllm"],
            "benchmark": ["serve"],
            "model": [next(iter(models or ["tiny"]))],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {**SMALL, **parameters},
            **matrix,
        },
        "samples": samples,
        "sanity": "short",
        "limits": {"wall_s": 800, "progress_s": progress_s},
    }
    return make_plan(parse_sweep(document, "vllm.yaml"), cluster)


TENSOR = {"nodes": [2], "parallelism": ["tensor"], "fabric": ["thunderbolt"]}


@pytest.fixture(scope="module")
def nodes(cluster):
    try:
        find("vllm").install_local(lambda step, share: None)
    except NixwulfError as error:
        pytest.skip(error.message)  # no wheels for this machine, or no room for 2.1 GB of them
    with session.session(plan_for(cluster, SERVE), Mock()) as connected:
        yield connected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all runs, so that one node gives its tokens once for each model."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run(nodes, folder):
    return partial(recorded, nodes, folder, LEFT)


def names(record):
    return [metric["name"] for metric in record["metrics"]]


def test_a_session_on_one_node_shows_what_its_cache_kept(run, cluster):
    given = {"turns": [2], "system": [64], "message": [16], "insertion": [0], "n_gen": [16]}
    record = run(plan_for(cluster, given, benchmark=["session"]))
    assert record["outcome"] == "ok", record.get("failure")
    assert {"ttft", "session_time", "throughput"} <= set(names(record))
    assert record["engine"]["version"].startswith("0.")
    assert record["engine"]["devices"] == "n1: cpu"


def test_two_nodes_by_tensors_give_the_text_of_one_and_prove_their_fabric(run, cluster):
    given = {"requests": [2], "n_prompt": [32], "n_gen": [16], "concurrency": [1]}
    record = run(plan_for(cluster, given, benchmark=["vllm-bench"], **TENSOR))
    assert record["outcome"] == "ok", record.get("failure")
    assert record["sanity"]["text"]["agrees"]
    assert record["sanity"]["text"]["judged_by"] == "log-probabilities"
    transport = record["sanity"]["transport"]
    assert transport["proved"]
    for counted in transport["counters"].values():
        assert counted["management"]["bytes"] < 100_000 < counted["fabric"]["bytes"]
    assert {"decode", "ttft", "throughput"} <= set(names(record))


def test_drafts_by_n_grams_keep_the_text_and_are_counted(run, cluster):
    draft = {"method": "ngram", "tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    record = run(plan_for(cluster, {**SERVE, "n_gen": [200], "draft": [draft]}))
    assert record["outcome"] == "ok", record.get("failure")
    assert record["sanity"]["text"]["agrees"]
    (throughput,) = [one for one in record["metrics"] if one["name"] == "throughput"]
    assert "acceptance" in throughput["observed"]
    argvs = [one["argv"] for one in record["commands"]]
    command = next(argv for argv in argvs if "--speculative-config" in argv)
    config = json.loads(command[command.index("--speculative-config") + 1])
    wanted = {"method": "ngram", "num_speculative_tokens": 4}
    assert config == {**wanted, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


@pytest.mark.nightly
def test_replicas_share_the_requests_out(run, cluster):
    given = {**SERVE, "requests": [4], "concurrency": [2]}
    record = run(plan_for(cluster, given, nodes=[2], parallelism=["replicas"]))
    assert record["outcome"] == "ok", record.get("failure")
    assert "replica_throughput" in names(record)


def signal_in(phase, nodes, signal, moments):
    """Signal the second node's rank once a phase has begun and there is one, and note when."""
    script = (
        "until ls /run/nixwulf/*vllm*.pid; do sleep 0.2; done; "
        "for file in /run/nixwulf/*vllm*.pid; do "
        'read -r leader rest <"$file"; kill "$1" "-$leader"; done'
    )

    def strike():
        nodes.nodes["n2"].script(script, signal)
        moments.append(time.monotonic())

    def on_phase(begun):
        if begun == phase:
            threading.Timer(3.0, strike).start()

    return on_phase


def test_a_rank_killed_while_measuring_is_failed_with_its_signal(run, nodes, cluster):
    kill = signal_in("measure", nodes, "-KILL", [])
    record = run(plan_for(cluster, LONG, **TENSOR), kill)
    assert record["outcome"] == "failed"
    assert record["failure"]["phase"] == "measure"
    assert "'vllm' on node 'n2' was ended by SIGKILL" in record["failure"]["reason"]


@pytest.mark.nightly
def test_a_rank_stopped_while_measuring_is_a_hang(run, nodes, cluster):
    moments = []
    stop = signal_in("measure", nodes, "-STOP", moments)
    record = run(plan_for(cluster, LONG, progress_s=75, **TENSOR), stop)
    assert (record["outcome"], record["failure"]["phase"]) == ("hang", "measure")
    assert "was silent for 75 s" in record["failure"]["reason"]
    assert time.monotonic() - moments[0] < 75 + 30  # it says each minute that it waits


@pytest.mark.nightly
def test_a_rank_that_never_comes_is_a_hang_before_anything_is_measured(run, nodes, cluster):
    moments = []
    stop = signal_in("launch", nodes, "-STOP", moments)
    record = run(plan_for(cluster, SERVE, progress_s=60, **TENSOR), stop)
    assert record["outcome"] == "hang"
    assert record["failure"]["phase"] in {"launch", "sanity"}  # its server is waited for in both
    assert "was silent for 60 s" in record["failure"]["reason"]
    assert time.monotonic() - moments[0] < 60 + 90  # n1 starts by itself until it waits for n2


@pytest.mark.nightly
def test_shared_memory_as_a_container_has_is_failed_in_vllms_words(run, nodes, cluster):
    for node in nodes.nodes.values():
        node.script("mount -o remount,size=64M /dev/shm")
    try:
        record = run(plan_for(cluster, SERVE, **TENSOR))
    finally:
        for node in nodes.nodes.values():
            node.script("mount -o remount,size=50% /dev/shm")
    assert record["outcome"] == "failed"
    assert "64 MiB free. Increase /dev/shm" in record["failure"]["reason"]


def test_an_unknown_flag_is_failed_in_vllms_words(run, cluster):
    record = run(plan_for(cluster, {**SERVE, "arguments": ["--no-such-flag"]}))
    assert record["outcome"] == "failed"
    assert "unrecognized arguments: --no-such-flag" in record["failure"]["reason"]
    assert "memory" not in record["failure"].get("hint", "")


def test_ray_on_cpus_is_unsupported_before_anything_starts(run, cluster):
    record = run(plan_for(cluster, {**SERVE, "executor": ["ray"]}, **TENSOR))
    assert record["outcome"] == "unsupported"
    assert (record["failure"]["phase"], record["commands"]) == ("launch", [])
    assert "executor: [mp]" in record["failure"]["reason"]


def test_a_model_that_vllm_does_not_know_is_failed_in_its_words(run, nodes, cluster):
    node = nodes.nodes["n1"]
    plan = plan_for(cluster, SERVE)
    placed = place(plan.sweep.models["tiny"], [node], safetensors.ensure)
    node.script('rm -rf /tmp/odd && cp -r "$1" /tmp/odd', placed.path)
    node.script("sed -i 's/LlamaForCausalLM/NobodysForCausalLM/' /tmp/odd/config.json")
    record = run(plan_for(cluster, SERVE, models={"odd": {"path": "/tmp/odd"}}))
    assert record["outcome"] == "failed"
    assert "NobodysForCausalLM" in record["failure"]["reason"]


def test_another_vllm_on_the_second_node_is_skipped_by_its_gate(run, nodes, cluster):
    """The second node sees another version in the folder that both of them share."""
    program = find("vllm").install_local(lambda step, share: None).programs["vllm"].resolve()
    (named,) = program.parents[1].glob("lib/python3*/site-packages/vllm-*.dist-info/METADATA")
    second = nodes.nodes["n2"]
    second.script(
        'sed "s/^Version: .*/Version: 0.31.0/" "$1" >/tmp/other && mount --bind /tmp/other "$1"',
        str(named),
    )
    try:
        record = run(plan_for(cluster, SERVE, **TENSOR))
    finally:
        second.script('umount "$1"', str(named))
    assert record["outcome"] == "skipped"
    assert "0.31.0" in record["failure"]["reason"]


def test_a_port_in_use_is_skipped_by_its_gate(run, nodes, cluster):
    node = nodes.nodes["n1"]
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 8000)); time.sleep(60)"
    node.script('python3 -c "$1" >/dev/null 2>&1 & echo $! >/tmp/listener; sleep 1', listen)
    try:
        record = run(plan_for(cluster, SERVE))
    finally:
        node.script("kill $(cat /tmp/listener)")
    assert record["outcome"] == "skipped"
    assert "8000" in record["failure"]["reason"]


def test_a_context_too_short_for_the_last_turn_is_left_out_of_the_plan(cluster):
    given = {"turns": [8], "system": [64], "message": [16], "insertion": [0], "n_gen": [64]}
    with pytest.raises(InputError, match="takes 704 tokens, and max_model_len is 512"):
        plan_for(cluster, given, benchmark=["session"])
