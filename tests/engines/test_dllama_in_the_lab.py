"""distributed-llama's own programs on nodes of the lab: on the CPU and through Vulkan.

They run where PATH has the programs, which nothing that CI installs has: a folder with a build for
the CPU, and another with one for Vulkan (docs/engines.md says how they are made).
The Vulkan device may be Mesa's llvmpipe (Debian's mesa-vulkan-drivers).
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import parse_model, place
from nixwulf.llm.dllama import MODEL, TOKENIZER
from nixwulf.nodes import lab
from nixwulf.nodes.ssh import connections, open_all
from nixwulf.plugins.engines.distributed_llama import ENGINE
from nixwulf.results.record import load, save
from nixwulf.sweep import session as bench
from nixwulf.sweep.plan import make_plan, parse_sweep

REFUSES_GPUS = b"This build does not support GPU"
SMALL = {
    "architecture": "llama",
    "weights": "f32",
    "layers": 2,
    "hidden": 128,
    "heads": 4,
    "kv_heads": 4,
    "feed_forward": 256,
}
LEFT = "ls /run/nixwulf/*.pid 2>/dev/null; grep -ls dllama /proc/[0-9]*/comm || true"


def build(*, vulkan):
    """The first folder on PATH with such a build of both programs."""
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        programs = [folder / name for name in ENGINE.programs]
        if all(map(Path.is_file, programs)):
            refuses = {REFUSES_GPUS in program.read_bytes() for program in programs}
            if refuses == {not vulkan}:
                return folder
    kind = "with DLLAMA_VULKAN=1" if vulkan else "without DLLAMA_VULKAN"
    return pytest.skip(
        f"No 'dllama' and 'dllama-api' on PATH that are built {kind}; see docs/engines.md."
    )


def plan_for(*, nodes=2, benchmark="dllama", samples=1, model=None, **parameters):
    sizes = {"n_prompt": 32, "n_gen": 8} if benchmark == "dllama" else {}
    values = {"buffer_float_type": "f32", "threads": 1, **sizes, **parameters}
    matrix = {
        "engine": ["distributed-llama"],
        "benchmark": [benchmark],
        "model": ["dense"],
        "nodes": [nodes],
        "fabric": ["thunderbolt"],
        "parallelism": ["tensor" if nodes > 1 else "single"],
        "parameters": {key: [value] for key, value in values.items()},
    }
    document = {
        "name": "dllama",
        "models": {"dense": model or {"random": SMALL}},
        "matrix": matrix,
        "samples": samples,
        "limits": {"wall_s": 240, "progress_s": 60},
    }
    return make_plan(parse_sweep(document, "dllama.yaml"), load_cluster("lab"))


class Lab:
    """Two nodes of the lab whose only distributed-llama is one build."""

    def __init__(self, nodes, folder):
        self.nodes = nodes
        self.folder = folder

    def run(self, plan, on_phase=lambda phase: None):
        """The record of the plan's only run, which leaves no process behind."""
        record = bench.run_one(self.nodes, plan, self.folder, plan.cases[0], 0, on_phase)
        path = self.folder / "records" / f"{record['id']}.json"
        save(record, path)
        assert load(path) == record
        assert "".join(node.script(LEFT) for node in self.nodes.nodes.values()) == ""
        return record

    def printed(self, record, names):
        """What the run's processes of these names printed, by the names of their files."""
        raw = self.folder / "raw" / record["id"]
        return {path.name: path.read_text() for path in raw.glob(f"{names}.stdout")}

    def kill_worker_once(self, plan, names, holds):
        """An observer that ends the second node's worker by SIGKILL while the plan is measured.

        Once a file of these names in the run's raw output holds a text that `holds` accepts.
        """
        raw = self.folder / "raw" / f"{plan.cases[0].id}-r0"

        def begun():
            return any(holds(path.read_text(errors="replace")) for path in raw.glob(names))

        def watch():
            deadline = time.monotonic() + 60
            while not begun() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.nodes.nodes["n2"].script(
                "for comm in $(grep -ls dllama /proc/[0-9]*/comm); do "
                'process=${comm%/comm}; kill -KILL "${process#/proc/}"; done'
            )

        def on_phase(phase):
            if phase == "measure":
                threading.Thread(target=watch, daemon=True).start()

        return on_phase


def lab_with(programs, folder):
    whole = load_cluster("lab")
    cluster = replace(whole, nodes=whole.nodes[:2])
    up = lab.up(cluster, name=f"{folder.name}-{os.getpid()}", path=[programs])
    try:
        session = bench.Session(cluster, connections(cluster, up.ssh_config), up)
        assert open_all(session.nodes.values()) == {}
        yield Lab(session, folder)
    finally:
        up.down()


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    yield from lab_with(build(vulkan=False), tmp_path_factory.mktemp("dllama-cpu"))


@pytest.fixture(scope="module")
def vulkan(tmp_path_factory):
    yield from lab_with(build(vulkan=True), tmp_path_factory.mktemp("dllama-vulkan"))


def tokens_of(record):
    assert record["outcome"] == "ok", record.get("failure")
    assert record["sanity"]["text"]["agrees"]
    return record["sanity"]["text"]["observed"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_run_on_the_cpu_is_ok_and_proves_its_transport(cpu, nodes):
    record = cpu.run(plan_for(nodes=nodes))
    assert len(set(tokens_of(record))) > 10  # of 41; a model that repeats itself has one
    assert record["engine"]["backends"] == "CPU"
    assert nodes == 1 or record["sanity"]["transport"]["proved"]
    names = {metric["name"] for metric in record["metrics"]}
    assert names == {"prompt", "decode"} | (
        {"sync_share", "sent", "received"} if nodes > 1 else set()
    )


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_run_through_vulkan_gives_the_cpus_tokens_and_every_node_names_its_device(
    cpu, vulkan, nodes
):
    record = vulkan.run(plan_for(nodes=nodes, backend="vulkan", threads=0))
    assert tokens_of(record) == tokens_of(cpu.run(plan_for(nodes=nodes)))
    assert record["engine"]["backends"] == "Vulkan"
    printed = vulkan.printed(record, "dllama-*")
    assert {name.rpartition("-")[2] for name in printed} == {
        f"n{n + 1}.stdout" for n in range(nodes)
    }
    for name, text in printed.items():
        assert " Device: " in text, name
        assert " CPU: " not in text, name


def test_a_build_for_vulkan_computes_on_the_cpu_where_the_case_or_the_platform_says_so(vulkan):
    for backend in ("cpu", "any"):
        record = vulkan.run(plan_for(nodes=1, backend=backend))
        assert len(set(tokens_of(record))) > 20
        assert record["engine"]["backends"] == "CPU"
        assert all(" CPU: " in text for text in vulkan.printed(record, "dllama-*").values())


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_build_without_vulkan_that_a_gpu_is_asked_of_is_refused_before_it_starts(cpu, nodes):
    record = cpu.run(plan_for(nodes=nodes, backend="vulkan", threads=0))
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "launch")
    assert record["failure"]["reason"] == (
        "The case asks for vulkan, and distributed-llama on node 'n1' is built without Vulkan; "
        "install packages/distributed-llama-vulkan.nix there, or ask for 'backend: cpu'."
    )
    assert record["commands"] == []


def test_a_gpu_index_that_does_not_exist_is_failed_in_dllamas_words(vulkan):
    record = vulkan.run(plan_for(nodes=1, backend="vulkan", gpu_index=7, threads=0))
    assert record["outcome"] == "failed"
    assert "Node 'n1': Critical error: Invalid GPU index, found" in record["failure"]["reason"]


def test_a_worker_without_the_gpu_of_the_index_is_named_although_the_root_ends_without_a_word(
    vulkan,
):
    node = vulkan.nodes.nodes["n2"]
    hide = 'rm -rf /tmp/hidden && mkdir /tmp/hidden && mount --bind /tmp/hidden "$1"'
    node.script(hide, "/usr/share/vulkan/icd.d")
    try:
        record = vulkan.run(plan_for(backend="vulkan", threads=0))
    finally:
        node.script('umount "$1"', "/usr/share/vulkan/icd.d")
    assert record["outcome"] == "failed"
    assert "Node 'n2': Critical error: vk::createInstance: Error" in record["failure"]["reason"]


def test_values_that_vulkan_has_no_shader_for_are_unsupported_in_dllamas_words(vulkan):
    head = vulkan.nodes.nodes["n1"]
    model = parse_model("dense", {"random": SMALL}, "dllama.yaml")
    path = place(model, [head], ENGINE.random_model).path
    files = {"path": f"{path}/{MODEL}", "tokenizer": f"{path}/{TOKENIZER}"}
    values = {"backend": "vulkan", "threads": 0, "buffer_float_type": "q80"}
    record = vulkan.run(plan_for(model=files, nodes=1, **values))
    assert record["outcome"] == "unsupported"
    words = "Node 'n1': Critical error: Unsupported shader: MATMUL/Q80_F32_F32."
    assert words in record["failure"]["reason"]
    assert "set the parameter buffer_float_type" in record["failure"]["hint"]


def test_a_worker_killed_while_measuring_is_failed_with_its_node(cpu):
    plan = plan_for(n_gen=1500, samples=5)
    kill = cpu.kill_worker_once(plan, "dllama-[0-9]*-n1.stdout", lambda text: " Pred " in text)
    record = cpu.run(plan, kill)
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "measure")
    assert "'dllama' on node 'n2' was ended by SIGKILL." in record["failure"]["reason"]
    assert "A worker of distributed-llama died" in record["failure"]["hint"]


# Memory is of no value that a token has, for what is said below.
SERVED = {
    "api": "chat",
    "n_prompt": 104,
    "n_gen": 8,
    "requests": 2,
    "environment": {"MALLOC_PERTURB_": "85"},
}


def served(lab, plan, on_phase=lambda phase: None):
    """The record of a served plan; upstream's dllama-api serves none.

    At 8d624a7 it takes the first token from behind the prompt, where nothing was written: line 446
    of src/dllama-api.cpp has promptTokens[i + 1], and promptTokens[i] is the prompt's last.
    """
    record = lab.run(plan, on_phase)
    if "'dllama-api' was ended by SIGSEGV" in record.get("failure", {}).get("reason", ""):
        pytest.skip("This dllama-api has upstream's fault: write promptTokens[i] in its source.")
    return record


@pytest.mark.parametrize("backend", ["cpu", "vulkan"])
def test_dllama_api_serves_on_two_nodes(request, backend):
    lab = request.getfixturevalue(backend)
    record = served(lab, plan_for(benchmark="serve", backend=backend, **SERVED))
    tokens_of(record)
    (server,) = lab.printed(record, "dllama-api-*").values()
    assert (" Device: " in server) == (backend == "vulkan")


def test_a_worker_killed_while_dllama_api_serves_leaves_the_servers_error_in_the_record(cpu):
    plan = plan_for(benchmark="serve", samples=500, **{**SERVED, "n_gen": 64})
    record = served(cpu, plan, cpu.kill_worker_once(plan, "answers.jsonl", bool))
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "measure")
    assert "'dllama' on node 'n2' was ended by SIGKILL." in record["failure"]["reason"]
    assert re.search("Node 'n1': (Inference|Execution) error: ", record["failure"]["reason"])
