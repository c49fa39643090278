"""Replicas: what each server of a run is, what it needs, and who gets a request."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broken_endpoint import DONE, END, FINISH, HEAD, serving, text, usage
from launch_plan import planned
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster, with_lab_nodes
from nixwulf.llm import gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.facts import parse_facts
from nixwulf.plugins.benchmarks.serve import idle, metrics, of_replicas
from nixwulf.plugins.engines import vllm
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.openai_stream import Answer
from nixwulf.plugins.runtime.request_load import Load, LoadTarget, Pass
from nixwulf.plugins.runtime.run import of_one_server, replicas, slots_of
from nixwulf.plugins.runtime.texts import Counting
from nixwulf.sweep.plan import make_plan, parse_sweep

# no output: the matrix of a sweep
MATRIX = {
    "benchmark": ["serve"],
    "model": ["tiny"],
    "nodes": [4],
    "parallelism": ["replicas"],
    "parameters": {"concurrency": [6], "requests": [12]},
}


def plan_of(cluster="lab", **matrix):
    document = {
        "name": "replicas",
        "models": {"tiny": {"random": {}}},
        "matrix": {**MATRIX, **matrix},
    }
    loaded = load_cluster(cluster) if isinstance(cluster, str) else cluster
    return make_plan(parse_sweep(document, "replicas.yaml"), loaded)


@given(concurrency=st.integers(1, 200), nodes=st.integers(1, 20))
def test_requests_are_shared_out_evenly_and_all_of_them(concurrency, nodes):
    slots = slots_of(concurrency, nodes)
    assert sum(slots) == concurrency
    assert len(slots) == nodes
    assert max(slots) - min(slots) <= 1


def test_replicas_are_one_case_whatever_the_fabric_and_cross_none():
    plan = plan_of(fabric=["gbe5", "gbe2g5"], transport=["tcp"])
    (case,) = plan.cases
    assert (case.nodes, case.fabric, case.transport, case.parallelism) == (
        4, None, None, "replicas",
    )  # fmt: skip


def test_a_cluster_without_a_fabric_has_replicas_and_no_split():
    lab = load_cluster("lab")
    alone = with_lab_nodes(replace(lab, fabrics={}), 3)
    plan = plan_of(alone, nodes=[1, 3], parallelism=["single", "tensor", "replicas"])
    assert [(case.nodes, case.parallelism) for case in plan.cases] == [
        (1, "single"),
        (3, "replicas"),
    ]
    assert "the cluster has no fabric" in {left.reason for left in plan.left_out}


def test_what_measures_one_server_refuses_replicas_with_the_benchmark_to_take():
    with pytest.raises(InputError, match="llama-bench measures one server; .* is serve"):
        plan_of(benchmark=["llama-bench"], parameters={})


def test_one_node_is_no_replicas():
    with pytest.raises(InputError, match="'single' needs one node"):
        plan_of(nodes=[1])


def test_each_replica_is_a_run_of_one_node_with_its_part_of_the_requests():
    (case,) = plan_of().cases
    one = of_one_server(case)
    assert (one.nodes, one.parallelism, one.parameters["concurrency"]) == (1, "single", 2)
    assert case.parameters["concurrency"] == 6


def test_what_a_replica_starts_is_the_runs_and_of_no_other_replica(tmp_path):
    run = planned(
        tmp_path, "lab", {"random": {}}, {k: v for k, v in MATRIX.items() if k != "model"}
    )
    first, second, *_ = replicas(run)
    process = second.start(second.head, "server", ["llama-server"], {})
    assert run.owned == [process]
    assert first.owned == []
    assert replicas(run)[1].owned == [process]
    assert [len(one.nodes) for one in replicas(run)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("engine", "cluster", "model", "parameters"),
    [
        ("llama.cpp", "framework-2", {"path": "/m.gguf"}, {}),
        ("mesh-llm", "framework-2", {"path": "/m.gguf"}, {}),
        ("vllm", "ms-s1-max-4", {"path": "/m"}, {"executor": ["ray"]}),
        ("mlx", "mac-studio-4", {"path": "/m"}, {}),
        ("exo", "mac-studio-4", {"id": "org/m"}, {"api": ["chat"]}),
        ("distributed-llama", "pi-cm5-4", {"path": "/m.m", "tokenizer": "/m.t"}, {"api": ["chat"]}),
    ],
)
def test_every_engine_has_replicas(tmp_path, engine, cluster, model, parameters):
    matrix = {
        "engine": [engine],
        "benchmark": ["serve"],
        "nodes": [2],
        "parallelism": ["replicas"],
        "parameters": parameters,
    }
    run = planned(tmp_path, cluster, model, matrix)
    assert [one.case.parallelism for one in replicas(run)] == ["single", "single"]


def test_servers_of_vllm_are_each_alone_on_their_node(tmp_path):
    matrix = {"engine": ["vllm"], "benchmark": ["serve"], "nodes": [2]}
    matrix |= {"parallelism": ["replicas"]}
    run = planned(tmp_path, "ms-s1-max-4", {"path": "/m"}, matrix, vllm="/bin/vllm")
    servers = [vllm.ENGINE.launch(one, "server") for one in replicas(run)]
    assert [server.node for server in servers] == [node.node.name for node in run.nodes]
    for server in servers:
        assert not {"--tensor-parallel-size", "--distributed-executor-backend"} & set(server.argv)
        assert not [name for name in server.environment if name.startswith(("VLLM_HOST", "NCCL"))]


def test_groups_of_exo_do_not_meet(tmp_path):
    matrix = {"engine": ["exo"], "benchmark": ["serve"], "nodes": [2]}
    matrix |= {"parallelism": ["replicas"], "parameters": {"api": ["chat"]}}
    run = planned(tmp_path, "mac-studio-4", {"id": "org/m"}, matrix)
    assert len({run.name, *(one.name for one in replicas(run))}) == 3


def test_every_node_has_to_have_room_for_the_whole_model(tmp_path):
    path = tmp_path / "a.gguf"
    gguf.write(RandomModel(), path)
    sizes = gguf.interpret(*gguf.parse(path.read_bytes()[: 1 << 20])).sizes
    cluster = load_cluster("framework-2")
    (case,) = plan_of("framework-2", nodes=[2], parameters={"backend": ["cpu"]}).cases
    room = {"framework": 2**30, "small": 2**25}

    def facts(count):
        return replace(parse_facts("--\n"), memory_total=count, memory_available=count)

    names = [node.name for node in cluster.nodes]
    enough = {name: facts(room["framework"]) for name in names}
    assert memory.problem(sizes, case, cluster.nodes, enough) is None
    lacking = {**enough, names[1]: facts(room["small"])}
    assert f"node {names[1]!r}" in memory.problem(sizes, case, cluster.nodes, lacking)


def answered(tmp_path, count, requests, slots, seconds=0.0):
    """How many requests each of some servers got, and the pass."""

    def answer(request):
        return [HEAD, seconds, text(" a"), FINISH, usage(16, 1), DONE, END]

    async def go():
        folder = tmp_path / "first"
        folder.mkdir()
        async with serving(folder, answer) as endpoint, endpoint.async_client() as client:
            servers = [LoadTarget(client, "m", lambda: None) for _ in range(count)]
            load = Load(servers, "completions", 1, 16)
            found = await load.send(Counting(0, 1), requests, slots, 1)
            return [server.sent for server in servers], [one.busy for one in servers], found

    return asyncio.run(go())


def test_a_request_goes_to_the_replica_with_the_fewest_in_flight(tmp_path):
    sent, busy, found = answered(tmp_path, 3, 6, 6, 0.3)
    assert sent == [2, 2, 2]
    assert busy == [0, 0, 0]
    assert sorted(found.servers) == [0, 0, 1, 1, 2, 2]


def test_one_at_a_time_they_take_turns(tmp_path):
    assert answered(tmp_path, 3, 6, 1)[0] == [2, 2, 2]


def test_the_throughput_of_the_replicas_adds_up_to_that_of_all():
    answers = tuple(Answer(0.0, (1.0, 2.0), 16, tokens, 0, "length", {}) for tokens in (3, 5, 4))
    passes = [Pass(answers, 0.1, (0, 2, 0))]
    parts = of_replicas(passes, ["a", "b", "c"], "warm", {"n_gen": 3})
    whole = next(one for one in metrics(passes, "warm", {}) if one.name == "throughput")
    assert [one.samples for one in parts] == [(3.5,), (0.0,), (2.5,)]
    assert sum(one.samples[0] for one in parts) == whole.samples[0]
    assert [one.conditions["node"] for one in parts] == ["a", "b", "c"]


def test_fewer_requests_at_once_than_replicas_are_a_warning():
    assert idle(4, 4) == []
    (sentence,) = idle(1, 3)
    assert sentence.startswith("Of 3 replicas 2 had no request at any moment: 1 were in flight")
