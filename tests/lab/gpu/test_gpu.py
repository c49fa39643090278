"""llama.cpp by a GPU in the lab: devices that are listed, named and used, and what goes wrong."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
from gguf import GGUFReader
from lab_under_test import recorded

from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import gguf
from nixwulf.nodes.transfer import put
from nixwulf.sweep import sanity
from nixwulf.sweep.plan import load_sweep, make_plan, parse_sweep

LEFT = "grep -ls -e rpc-server -e llama- /proc/[0-9]*/comm || true"
FAULTS = ("no-gpu", "vanished-gpu", "full-gpu", "silent", "wrong-gpu")
SWEEP = make_plan(load_sweep("lab/gpu"), load_cluster("lab"))


def plan_for(nodes=1, parallelism="pipeline", progress_s=150, **parameters):
    """One case on a fabric of the lab, by Vulkan where no other back end is named."""
    values = {"n_prompt": 16, "n_gen": 8, "backend": "vulkan", **parameters}
    matrix = {
        "model": ["tiny"],
        "nodes": [nodes],
        "fabric": ["rdma-like"],
        "parallelism": [parallelism if nodes > 1 else "single"],
        "parameters": {key: [value] for key, value in values.items()},
    }
    document = {
        "name": "gpu",
        "models": {"tiny": {"random": {"layers": 4}}},
        "matrix": matrix,
        "samples": 1,
        "limits": {"wall_s": 400, "progress_s": progress_s},
    }
    return make_plan(parse_sweep(document, "gpu.yaml"), load_cluster("lab"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all runs, so that one node gives its tokens once for each backend."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run(nodes, folder):
    yield partial(recorded, nodes, folder, LEFT)
    for node in nodes.nodes.values():
        node.script(f"cd /run && rm -f {' '.join(FAULTS)}")


@pytest.fixture
def fault(nodes):
    """Put a fault on a node, by its name."""
    return lambda node, name: nodes.nodes[node].script('touch "/run/$1"', name)


def reason(record):
    return record.get("failure", {}).get("reason", "")


@pytest.mark.parametrize("case", SWEEP.cases, ids=lambda case: case.id)
def test_every_case_of_the_sweep_of_gpus_is_ok_and_computed_by_vulkan(run, case):
    record = run(replace(SWEEP, cases=(case,)))
    assert record["outcome"] == "ok", record["failure"]
    names = [f"n{number}" for number in range(1, case.nodes + 1)]
    assert record["engine"]["devices"] == ", ".join(f"{name}: Vulkan0" for name in names)
    assert record["engine"]["backends"] == ("Vulkan" if case.nodes == 1 else "Vulkan,RPC")
    assert record["sanity"]["text"]["agrees"]
    beside = record["sanity"]["text"]["cpu"]
    assert 0 < beside["mean_divergence"] < beside["limit"] / 5
    clients = [c["argv"] for c in record["commands"] if "-ngl" in c["argv"]]
    layers = {argv[argv.index("-dev") + 1]: argv[argv.index("-ngl") + 1] for argv in clients}
    of_cpu = layers.pop("none", "0")  # in the first case, for the text of the CPU
    assert (set(layers.values()), of_cpu) == ({"999"}, "0")
    servers = [c["argv"] for c in record["commands"] if "-H" in c["argv"]]
    assert [argv[argv.index("-d") + 1] for argv in servers] == ["Vulkan0"] * (case.nodes - 1)


def test_the_sweep_of_gpus_has_twelve_cases_on_up_to_three_nodes():
    assert len(SWEEP.cases) >= 12
    assert {case.nodes for case in SWEEP.cases} == {1, 2, 3}


def test_tensors_split_over_vulkan_end_as_a_failure_that_names_the_crash_of_the_rpc_server(run):
    """https://github.com/ggml-org/llama.cpp/pull/26610; where upstream mends it, it is ok."""
    record = run(plan_for(nodes=2, parallelism="tensor"))
    if record["outcome"] != "ok":
        assert record["outcome"] == "failed"
        assert "'ggml-rpc-server' on node 'n2' was ended by SIGSEGV." in reason(record)
        assert "split by layers" in record["failure"]["hint"]


def test_any_takes_the_gpu_of_every_node(run):
    record = run(plan_for(nodes=2, backend="any"))
    assert record["outcome"] == "ok", record["failure"]
    assert record["engine"]["devices"] == "n1: Vulkan0, n2: Vulkan0"


def test_the_cpu_that_is_asked_for_computes_beside_gpus(run):
    record = run(plan_for(nodes=2, backend="cpu"))
    assert record["outcome"] == "ok", record["failure"]
    assert record["engine"]["devices"] == "n1: CPU, n2: CPU"
    assert record["engine"]["backends"] == "CPU,RPC"


@pytest.mark.parametrize("parallelism", ["pipeline", "tensor"])
def test_any_on_a_node_without_a_gpu_takes_its_cpu_and_warns(run, fault, parallelism):
    fault("n2", "no-gpu")
    record = run(plan_for(nodes=2, parallelism=parallelism, backend="any"))
    assert record["outcome"] == "ok", record["failure"]
    assert record["engine"]["devices"] == "n1: Vulkan0, n2: CPU"
    assert "Some nodes compute on a GPU and some on the CPU" in "".join(record["warnings"])


def test_vulkan_on_a_node_without_a_gpu_is_skipped(run, fault):
    fault("n2", "no-gpu")
    record = run(plan_for(nodes=2))
    assert record["outcome"] == "skipped"
    assert "Node 'n2' has no device of vulkan for llama.cpp" in reason(record)


@pytest.mark.parametrize(("count", "victim"), [(1, "n1"), (2, "n2")])
def test_a_gpu_that_disappears_after_it_was_listed_is_failed(run, fault, count, victim):
    fault(victim, "vanished-gpu")
    record = run(plan_for(nodes=count))
    assert record["outcome"] == "failed"
    assert "device: Vulkan0" in reason(record)
    assert "was gone when a program started" in record["failure"]["hint"]


def test_a_gpu_that_is_full_is_failed_in_the_programs_own_words(run, fault):
    fault("n1", "full-gpu")
    record = run(plan_for())
    assert record["outcome"] == "failed"
    assert "memory" in record["failure"]["hint"]


def test_a_gpu_that_is_wrong_alike_in_every_run_is_gibberish_by_the_cpus_text(
    run, nodes, folder, tmp_path_factory
):
    """Its own kernels' mistakes, as a model whose keys are half lost wherever Vulkan computes."""
    plan = plan_for(backend="vulkan")
    whole = gguf.ensure(plan.sweep.models["tiny"].random)
    damaged = tmp_path_factory.mktemp("damaged") / "wrong.gguf"
    shutil.copy(whole, damaged)
    tensor = next(t for t in GGUFReader(damaged, "r+").tensors if t.name == "blk.1.attn_k.weight")
    tensor.data[..., : tensor.data.shape[-1] // 2] = 0
    tensor.data.flush()
    for path in (folder / "references").glob("*"):
        path.unlink()
    head = nodes.nodes["n1"]
    put(head, damaged, "/tmp/wrong.gguf", lambda count, size: None)
    head.script("echo /tmp/wrong.gguf >/run/wrong-gpu")
    record = run(plan)
    assert record["outcome"] == "gibberish", record["failure"]
    text = record["sanity"]["text"]
    assert text["reference"] == "the CPU"
    assert text["cpu"]["mean_divergence"] > text["cpu"]["limit"]
    assert text["prompts"][0]["mean_divergence"] < text["prompts"][0]["limit"]
    for path in (folder / "references").glob("*"):
        path.unlink()


def test_a_cpu_reference_that_takes_too_long_is_left_out_and_the_run_goes_on(run, monkeypatch):
    monkeypatch.setattr(sanity, "_MOST_S", 0.0)
    record = run(plan_for(type_k="q8_0"))
    assert record["outcome"] == "ok", record["failure"]
    assert (
        "the CPU of node 'n1' took longer than 0 s" in record["sanity"]["text"]["cpu"]["left_out"]
    )


def test_an_engine_that_prints_nothing_at_all_is_a_hang(run, fault):
    fault("n1", "silent")
    record = run(plan_for(progress_s=5))
    assert record["outcome"] == "hang"
    assert "was silent for 5 s" in reason(record)
