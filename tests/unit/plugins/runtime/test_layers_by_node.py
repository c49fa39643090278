"""Layers of a pipeline by the memory and bandwidth of unequal nodes: planned, predicted, given."""

from dataclasses import replace

import pytest

from launch_plan import planned
from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm.model_facts import Sizes
from nixwulf.nodes.facts import Facts
from nixwulf.perf.explain.subject import RunPlan, subject_of
from nixwulf.perf.scenarios.candidates import Question
from nixwulf.perf.scenarios.facts import read_model
from nixwulf.perf.scenarios.forecast import answer
from nixwulf.perf.scenarios.render import how
from nixwulf.plugins.engines.llama_cpp import devices
from nixwulf.plugins.runtime.memory import TokenDemand, layers, needs
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.results.identity import OVER_NODES, same

MIB = 2**20
WORK = TokenDemand.of({"n_prompt": 64, "n_gen": 64})
FAST_FIRST = (240.0, 60.0)


def sizes_of(count=8, layer=100 * MIB):
    return Sizes(
        layers=(layer,) * count, embedding=MIB, output=layer, tied=0, vocabulary=1000,
        cache_widths=((64, 64),) * count, windows=(0,) * count, hidden=64, feed_forward=256,
        heads=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("split", "bandwidths", "counts"),
    [
        ("even", (240.0, 60.0), (5, 4)),
        ("bandwidth", (240.0, 60.0), (7, 2)),
        ("bandwidth", (60.0, 240.0), (2, 7)),
        ("fastest", (240.0, 60.0), (8, 1)),
        ("fastest", (60.0, 240.0), (1, 8)),
    ],
)
def test_where_all_fits_layers_go_by_the_split_and_each_node_has_one(split, bandwidths, counts):
    assert layers(sizes_of(), WORK, split, (0, 0), bandwidths) == counts


def test_what_does_not_fit_on_the_fastest_node_goes_to_the_next_fastest():
    sizes = sizes_of(16)
    has = [350 * MIB, 900 * MIB, 2000 * MIB]
    counts = layers(sizes, WORK, "fastest", has, (100.0, 200.0, 50.0))
    assert sum(counts) == 17
    plan = needs(sizes, WORK, "pipeline", counts)
    spare = [free - need.total for free, need in zip(has, plan, strict=True)]
    assert min(spare) >= 0
    # The fastest has no room for another layer, nor has the next one.
    assert max(spare[:2]) < 100 * MIB


@pytest.mark.parametrize("split", ["even", "bandwidth", "fastest"])
def test_memory_bounds_every_split(split):
    counts = layers(sizes_of(), WORK, split, (4096 * MIB, 250 * MIB), (60.0, 240.0))
    assert counts == (7, 2)


def test_a_model_that_fits_nowhere_ends_and_is_the_plans_to_refuse():
    assert sum(layers(sizes_of(), WORK, "fastest", (MIB, MIB), FAST_FIRST)) == 9


def run_of(folder, split, cluster="ms-s1-max-4", parallelism="pipeline"):
    matrix = {
        "benchmark": ["llama-bench"],
        "nodes": [2],
        "parallelism": [parallelism],
        "parameters": {"split": [split], "backend": ["cpu"]},
    }
    run = planned(folder, cluster, {"path": "/models/a.gguf"}, matrix)
    run.sizes = sizes_of()
    has = {"memory_total": 2**35, "memory_available": 2**35}
    run.facts = {name: replace(one, **has) for name, one in run.facts.items()}
    assert all(isinstance(one, Facts) for one in run.facts.values())
    for node in run.nodes:
        run.engine_found["devices", node.node.name] = ()
    return run


def test_llama_cpp_is_given_the_layers_in_the_order_of_its_devices(tmp_path):
    assert devices.arguments(run_of(tmp_path, "auto"), ",")[-1] == "999"
    assert devices.arguments(run_of(tmp_path, "even"), ",")[-2:] == ["-ts", "5,4"]
    run = run_of(tmp_path, "fastest")
    assert devices.arguments(run, "/")[-2:] == ["-ts", "8/1"]
    # A head's GPUs come after the RPC devices, and share its layers.
    run.engine_found["devices", run.head.node.name] = ("ROCm0", "ROCm1")
    assert devices.arguments(run, "/")[-2:] == ["-ts", "1/4/4"]
    run.sizes = None
    with pytest.raises(RunFailure, match="does not say how large its layers are"):
        devices.arguments(run, "/")


def test_the_record_has_what_llama_cpps_log_says_of_each_node(tmp_path):
    run = run_of(tmp_path, "fastest")
    first, second = (run.data_address(node) for node in run.nodes)
    # hand-made: a line for each of two nodes (form: load_tensors of
    # https://github.com/ggml-org/llama.cpp/blob/master/src/llama-model.cpp)
    log = (
        "load_tensors:   CPU_Mapped model buffer size =     0.75 MiB\n"
        f"load_tensors: RPC0[{first}:50052] model buffer size =    40.25 MiB\n"
        f"load_tensors: RPC0[{second}:50052] model buffer size =    10.00 MiB\n"
    )
    devices.record_placed(run, log)
    names = [node.node.name for node in run.nodes]
    placed = f"{names[0]}: 40.2 MiB, {names[1]}: 10.0 MiB"
    assert run.engine_facts["placed"] == placed
    record = {
        "kind": "run",
        "case": {"engine": "llama.cpp", "model": "gpt-oss-20b", "nodes": 2,
                 "parallelism": "pipeline", "transport": "tcp", "parameters": {}},
        "model": {"name": "gpt-oss-20b", "weights": "mxfp4"},
        "engine": {"name": "llama.cpp", "placed": placed},
        "fabric": {"kind": "ethernet", "speed_gbps": 10},
        "cluster": {"platforms": ["framework-desktop"]},
    }  # fmt: skip
    assert subject_of(record, RunPlan()).shares == pytest.approx((0.8, 0.2), abs=0.01)
    devices.record_placed(run, "")
    assert "placed" not in run.engine_facts


def test_a_split_of_tensors_or_of_one_node_or_of_unknown_nodes_is_left_out_with_a_sentence(
    tmp_path,
):
    from nixwulf.core.errors import InputError

    with pytest.raises(InputError, match="split even shares out the layers of a pipeline"):
        run_of(tmp_path, "even", parallelism="tensor")
    with pytest.raises(InputError, match="write memory_bandwidth_gbs of n1 and n2 in the cluster"):
        run_of(tmp_path, "fastest", "lab")


def unequal():
    cluster = load_cluster("framework-2")
    slow = replace(cluster.nodes[1], memory_bandwidth_gbs=50.0)
    return replace(cluster, nodes=(cluster.nodes[0], slow))


def test_predictions_have_the_split_where_nodes_are_unequal_and_it_is_the_faster_one():
    model = read_model("gpt-oss-20b", "mxfp4")
    question = Question(unequal(), model, nodes=(2,), parallelisms=("pipeline",))
    value = {
        one.candidate.split: one.plain.decode
        for one in answer(question).forecasts
        if one.candidate.transport == "tcp"
    }
    assert value["fastest"].value > 1.5 * value[""].value
    # Decode is the sum over the nodes' parts, each at its own bandwidth.
    slow, even = value["fastest"].parts["weights"], value[""].parts["weights"]
    assert slow < even
    names = {how(one.candidate) for one in answer(question).forecasts}
    assert any("pipeline fastest" in name for name in names)
    equal = Question(load_cluster("framework-2"), model, nodes=(2,), parallelisms=("pipeline",))
    assert {one.candidate.split for one in answer(equal).forecasts} == {""}
    vllm = replace(question, engine="vllm")
    assert {one.candidate.split for one in answer(vllm).forecasts} == {""}


def test_tune_gives_the_case_of_the_split_to_a_sweep(tmp_path):
    from nixwulf.llm import gguf
    from nixwulf.llm.random_model import RandomModel
    from nixwulf.tune.options import GOALS, Request, options, read_subject

    path = tmp_path / "a.gguf"
    gguf.write(RandomModel(), path)
    subject = read_subject(str(path))
    request = Request(unequal(), subject, GOALS["decode"], ("llama.cpp",), 512, 128, 1, 1)
    found, _ = options(request)
    assert {one.case.parameters["split"] for one in found if one.candidate.split} == {"fastest"}
    assert not any("split" in one.case.parameters for one in found if not one.candidate.split)


def test_one_node_is_what_every_split_is_held_against():
    # no output: columns of the table
    row = {"nodes": 2, "parallelism": "pipeline", "parameters": '{"split": "fastest", "t": 1}'}
    # no output: columns of the table
    one = {"nodes": 1, "parallelism": "single", "parameters": '{"split": "auto", "t": 1}'}
    assert same(row, without=OVER_NODES) == same(one, without=OVER_NODES)
    assert same(row) != same({**row, "parameters": one["parameters"]})


def test_predictions_of_servers_of_two_unequal_nodes_each_have_the_split_too():
    four = load_cluster("framework-4")
    nodes = tuple(
        replace(node, memory_bandwidth_gbs=50.0) if place % 2 else node
        for place, node in enumerate(four.nodes)
    )
    model = read_model("gpt-oss-20b", "mxfp4")
    asked = {"nodes": (4,), "batch": 4, "transports": ("tcp",)}
    value = {
        (one.candidate.groups, one.candidate.split): one.plain.decode.value
        for one in answer(Question(replace(four, nodes=nodes), model, **asked)).forecasts
        if one.candidate.parallelism == "pipeline"
    }
    assert value[2, "fastest"] > 1.2 * value[2, ""]
    # A pair whose nodes are alike has nothing to choose.
    paired = replace(four, nodes=(nodes[0], nodes[2], nodes[1], nodes[3]))
    alone = answer(Question(paired, model, **asked)).forecasts
    assert {one.candidate.groups for one in alone if one.candidate.split} == {1}
