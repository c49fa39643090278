"""The memory plan: what each node needs for its part of a model, and what it lacks."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.inventory.cluster import load_cluster, parse_cluster
from nixwulf.llm import gguf
from nixwulf.llm.model_facts import Sizes
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.facts import parse_facts
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.memory import TokenDemand, needs
from nixwulf.sweep.plan import make_plan, parse_sweep
from tool_outputs import fixture

MIB = 2**20


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "a.gguf"
    gguf.write(RandomModel(), path)
    return gguf.interpret(*gguf.parse(path.read_bytes()[: 1 << 20])).sizes


# MiB that llama.cpp 0c1e570 printed with -v on CPUs: model, KV and compute buffers of each node,
# the head's with those of its own CPU (`llama-bench -p 512 -d 1024 -fa auto`).
MEASURED = {
    ("single", 1): [(38.27, 18.0, 13.51)],
    ("pipeline", 2): [(0.75 + 22.51, 11.25, 20.29 + 9.80), (15.01, 6.75, 20.30)],
    ("pipeline", 3): [
        (0.75 + 13.51, 6.75, 20.29 + 9.80), (13.51, 6.75, 20.29), (10.51, 4.5, 19.55),
    ],
    ("tensor", 2): [(0.75 + 18.77, 9.0, 12.76 + 3.01), (18.77, 9.0, 12.76)],
}  # fmt: skip


@pytest.mark.parametrize(("split", "measured"), MEASURED.items(), ids=str)
def test_the_plan_is_what_llama_cpp_takes(dense, split, measured):
    parallelism, nodes = split
    work = TokenDemand.of({"n_prompt": 512, "n_gen": 0, "depth": 1024})
    plan = needs(dense, work, parallelism, [32 * 2**30] * nodes)
    for need, (weights, cache, compute) in zip(plan, measured, strict=True):
        assert need.weights / MIB == pytest.approx(weights, abs=0.02)
        assert need.cache / MIB == pytest.approx(cache, abs=0.02)
        assert compute * 0.98 < need.compute / MIB < compute * 1.2


def test_a_quantized_cache_takes_its_blocks(dense):
    whole = needs(dense, TokenDemand.of({"n_prompt": 512}), "single", [1])[0].cache
    small = needs(
        dense, TokenDemand.of({"n_prompt": 512, "type_k": "q8_0", "type_v": "q4_0"}), "single", [1]
    )
    assert small[0].cache == whole * (34 / 32 + 18 / 32) / 4


def test_a_sliding_window_bounds_the_cache_of_the_layers_that_have_it(dense):
    short = dataclasses.replace(dense, windows=(128, 0) * 4)
    work = TokenDemand.of({"n_prompt": 8192})
    assert needs(short, work, "single", [1])[0].cache == 4 * (128 + 512 + 8192) * 2 * 384 * 2


def test_on_two_nodes_only_the_matrix_of_the_output_is_there_twice():
    """Beside it the head has a table of rows for each layer, as of Gemma 3n."""
    sizes = Sizes(
        layers=(0,), embedding=1000, output=0, tied=100, vocabulary=1, cache_widths=((0, 0),),
        windows=(0,), hidden=1, feed_forward=1, heads=1,
    )  # fmt: skip
    work = TokenDemand.of({"n_prompt": 1})
    assert sum(need.weights for need in needs(sizes, work, "pipeline", [1, 1])) == 1100
    assert needs(sizes, work, "single", [1])[0].weights == 1000


@pytest.mark.parametrize(("slots", "context"), [(4, 2048), (3, 1536)])
def test_a_server_keeps_a_context_for_each_request_at_once_with_its_margin(slots, context):
    """llama-server (0c1e570) said so: n_ctx 2048 with -np 4 -c 1280, 1536 with -np 3 -c 960."""
    work = TokenDemand.of({"n_prompt": 128, "n_gen": 64, "concurrency": slots})
    assert work.context == context


@given(
    memories=st.lists(st.integers(min_value=1, max_value=2**40), min_size=1, max_size=16),
    parallelism=st.sampled_from(["pipeline", "tensor"]),
)
def test_the_parts_of_a_split_are_the_whole(dense, memories, parallelism):
    plan = needs(dense, TokenDemand.of({"n_prompt": 64}), parallelism, memories)
    whole = needs(dense, TokenDemand.of({"n_prompt": 64}), "single", [1])[0]
    assert abs(sum(need.weights for need in plan) - whole.weights) < len(memories)
    assert abs(sum(need.cache for need in plan) - whole.cache) < len(memories)


def case_of(cluster, meminfo, other="", **parameters):
    """A case on two nodes, these nodes, and their facts."""
    document = {
        "name": "s",
        "models": {"big": {"path": "/m.gguf"}},
        "matrix": {
            "model": ["big"],
            "nodes": [2],
            "fabric": [next(iter(cluster.fabrics))],
            "parallelism": ["pipeline"],
            "parameters": {key: [value] for key, value in parameters.items()},
        },
    }
    case = make_plan(parse_sweep(document, "s.yaml"), cluster).cases[0]
    text = re.sub(r"(MemTotal|MemAvailable): +\d+", rf"\1: {meminfo}", fixture("linux/facts.txt"))
    nodes = cluster.nodes[:2]
    return case, nodes, {node.name: parse_facts(text + other) for node in nodes}


# no output: a cluster file
CLUSTER = parse_cluster(
    {
        "name": "pair",
        "fabrics": {
            "lan": {"kind": "ethernet", "speed_gbps": 10, "mtu": 1500, "subnet": "10.9.0.0/24"}
        },
        "nodes": [
            {
                "name": name,
                "platform": "generic-x86_64",
                "ssh": name,
                "fabrics": {"lan": {"interface": "eth0", "address": address}},
            }
            for name, address in (("n1", "10.9.0.1"), ("n2", "10.9.0.2"))
        ],
    },
    "pair.toml",
)


def test_what_does_not_fit_says_where_and_by_how_much(dense):
    assert memory.problem(dense, *case_of(CLUSTER, 64 * 1024)) is None
    assert memory.problem(dense, *case_of(CLUSTER, 20 * 1024, n_prompt=256, n_gen=0)) == (
        "The model needs 35.1 MiB on node 'n1' (23.3 MiB weights, 1.9 MiB KV cache, 10.0 MiB "
        "compute), which has 20.0 MiB free: 15.1 MiB too little; use more nodes, a smaller model "
        "or a shorter context."
    )


@pytest.mark.parametrize(("everywhere", "worst"), [(False, "on node 'n1'"), (True, None)])
def test_a_draft_takes_room_on_the_head_or_on_every_node(dense, everywhere, worst):
    of = case_of(CLUSTER, 64 * 1024)
    assert memory.problem(dense, *of) is None
    found = memory.problem(dense, *of, (50 * 2**20, everywhere))
    assert (worst is None) == (found is None)
    assert worst is None or worst in found
    assert memory.problem(dense, *of, (150 * 2**20, everywhere)) is not None


def test_a_node_that_does_not_tell_its_memory_refuses_nothing(dense):
    assert memory.problem(dense, *case_of(CLUSTER, 0)) is None


def capacity_of(platform, other="", **parameters):
    case, nodes, facts = case_of(CLUSTER, 32 * MIB, other, **parameters)
    node = dataclasses.replace(nodes[0], platform=platform)
    return memory.capacity(case, node, facts["n1"])


CARD = "/sys/class/drm/card1/device"


def test_a_gpu_has_no_more_than_the_kernel_lets_it_map():
    # hand-made: no GPU of AMD is at hand
    # (form: https://docs.kernel.org/gpu/amdgpu/driver-misc.html)
    other = (
        f"{CARD}/vendor:0x1002\n{CARD}/mem_info_gtt_total:{8 * 2**30}\n"
        f"{CARD}/mem_info_vram_total:{2**29}\n"
    )
    assert capacity_of("framework-desktop", other) == 8 * 2**30 + 2**29
    assert capacity_of("framework-desktop", other, backend="cpu") == 32 * 2**30


def test_a_gpu_without_a_reported_memory_is_unknown_unless_it_shares_the_machines():
    # hand-made: no GPU of NVIDIA is at hand
    # (form: https://docs.kernel.org/PCI/sysfs-pci.html)
    other = f"{CARD}/vendor:0x10de\n"
    assert capacity_of("generic-x86_64", other) == 0
    assert capacity_of("dgx-spark", other) == 32 * 2**30


def test_nodes_of_a_lab_share_one_machine(dense):
    lab = load_cluster("lab")
    assert memory.problem(dense, *case_of(lab, 100 * 1024)) is None
    assert "which has 20.0 MiB free" in memory.problem(dense, *case_of(lab, 40 * 1024))
