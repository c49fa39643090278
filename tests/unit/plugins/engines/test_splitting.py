"""Which engine can split which model over how many nodes: as predict, sweeps and tune ask it."""

from dataclasses import replace

import pytest

from launch_plan import planned as planned_run
from nixwulf.inventory.cluster import load_cluster, with_lab_nodes
from nixwulf.llm import PlacedModel, catalog, parse_model
from nixwulf.llm.model_facts import ModelShape
from nixwulf.perf.scenarios.candidates import Question, candidates
from nixwulf.perf.scenarios.facts import read_model
from nixwulf.perf.scenarios.forecast import sizes_of
from nixwulf.plugins import engines
from nixwulf.plugins.engines import splitting_problem
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep import phases
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.recording import Findings

HEADS_64 = "Qwen3-32B"  # 64 heads, 8 key-value heads, 64 layers


def reason(engine, shape, nodes, parallelism):
    return splitting_problem(engine, engines.find(engine).splits, shape, nodes, parallelism)


def planned(path, engine, nodes, cluster="ms-s1-max-4"):
    """Numbers of nodes of the cases, and the reasons why the others are none."""
    document = {
        "name": "splits",
        "models": {"m": {"path": path}},
        "matrix": {
            "engine": [engine],
            "benchmark": ["serve"],
            "model": ["m"],
            "nodes": nodes,
            "parallelism": ["tensor"],
        },
    }
    plan = make_plan(parse_sweep(document, "splits.yaml"), load_cluster(cluster))
    return {case.nodes for case in plan.cases}, {left.reason for left in plan.left_out}


@pytest.mark.parametrize("engine", ["vllm", "mlx"])
def test_three_nodes_by_tensors_are_no_prediction_where_64_heads_are_to_be_even(engine):
    cluster = "mac-studio-4" if engine == "mlx" else "ms-s1-max-4"
    model = read_model(HEADS_64, "Q8_0")
    split = ("tensor", "pipeline")
    question = Question(load_cluster(cluster), model, engine, nodes=(2, 3), parallelisms=split)
    found, out = candidates(question)
    assert {len(one.nodes) for one in found if one.parallelism == "tensor"} == {2}
    assert any("3 do not divide 64" in one.reason for one in out)


def test_a_plan_knows_the_heads_of_a_file_by_its_name_and_leaves_three_nodes_out():
    nodes, reasons = planned("/models/Qwen3-32B", "vllm", [2, 3, 4])
    assert nodes == {2, 4}
    assert "vllm gives each node as many heads, and 3 do not divide 64" in reasons


def test_a_model_of_an_unknown_name_is_planned_and_its_header_judges_it_in_the_run():
    assert planned("/models/ours-v3", "vllm", [2, 3])[0] == {2, 3}


def test_tune_leaves_out_the_same():
    from nixwulf.tune.options import GOALS, Request, options, read_subject

    subject = read_subject("Qwen/Qwen3-32B", quant="FP8")
    cluster = load_cluster("ms-s1-max-4")
    request = Request(cluster, subject, GOALS["decode"], ("vllm",), 512, 128, 1, 1)
    found, out = options(request)
    assert 3 not in {one.count for one in found if one.candidate.parallelism == "tensor"}
    assert any("3 do not divide 64" in one.reason for one in out)


@pytest.mark.parametrize(
    ("engine", "kv_heads", "nodes", "fits"),
    [
        ("vllm", 8, 4, True),
        ("vllm", 4, 8, True),  # each on two nodes
        ("vllm", 8, 12, False),
        ("vllm", 1, 6, True),  # latent attention is whole on each
        ("mlx", 8, 4, True),
        ("mlx", 4, 8, False),
        ("mlx", 1, 8, True),
        ("exo", 4, 8, False),
        ("distributed-llama", 8, 8, True),
        ("distributed-llama", 4, 8, False),
        ("llama.cpp", 4, 7, True),
    ],
)
def test_key_value_heads_are_even_or_repeated_as_the_engine_does(engine, kv_heads, nodes, fits):
    heads = 96 if engine != "distributed-llama" else 64
    found = reason(engine, ModelShape(64, heads, kv_heads), nodes, "tensor")
    wanted = f"{engine} cannot share {kv_heads} key-value heads out to {nodes} nodes"
    assert found == (None if fits else wanted)


def test_a_pipeline_has_a_layer_for_each_node():
    assert reason("llama.cpp", ModelShape(layers=4), 4, "pipeline") is None
    assert reason("llama.cpp", ModelShape(layers=3), 4, "pipeline") == (
        "3 layers are too few for 4 nodes"
    )


def test_llama_cpp_has_sixteen_devices_by_tensors_and_one_less_beside_the_heads_cpu():
    shape = ModelShape(layers=64)
    assert reason("llama.cpp", shape, 16, "tensor") is None
    assert "tensor over 16 devices" in reason("llama.cpp", shape, 17, "tensor")
    assert reason("llama.cpp", shape, 15, "pipeline") is None
    assert "pipeline over 15 devices" in reason("llama.cpp", shape, 16, "pipeline")


def test_what_is_not_known_of_a_model_refuses_nothing_but_the_nodes_may():
    assert reason("vllm", ModelShape(), 3, "tensor") is None
    assert "1, 2, 4, 8, ... nodes, not 3" in reason("distributed-llama", ModelShape(), 3, "tensor")


def test_one_node_splits_nothing():
    for name in engines.all_engines():
        assert reason(name, ModelShape(1, 1, 1), 1, "single") is None


def test_the_lab_plans_no_more_nodes_by_pipeline_than_the_random_model_has_layers():
    document = {
        "name": "few",
        "models": {"m": {"random": {"layers": 2}}},
        "matrix": {"model": ["m"], "nodes": [2, 3], "parallelism": ["pipeline"]},
    }
    plan = make_plan(parse_sweep(document, "few.yaml"), with_lab_nodes(load_cluster("lab"), 3))
    assert {case.nodes for case in plan.cases} == {2}


def test_every_known_model_has_counts_that_are_rules_for_something():
    for entry in catalog.table():
        shape = catalog.parse(entry).shape
        assert min(shape.layers, shape.heads, shape.kv_heads) > 0


def test_the_header_of_a_file_gives_the_counts_that_a_name_does_not(tmp_path):
    from nixwulf.llm import gguf
    from nixwulf.llm.random_model import RandomModel

    model = RandomModel(layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=64)
    file = tmp_path / "unnamed.gguf"
    gguf.write(model, file)
    shape = gguf.read(str(file), lambda path, count: file.read_bytes()[:count]).sizes.shape
    assert shape == ModelShape(2, 4, 2) == model.shape


def test_a_run_whose_header_shows_that_the_model_does_not_split_so_is_unsupported(tmp_path):
    sizes = replace(sizes_of(catalog.find("gpt-oss-20b"), 512), heads=64, kv_heads=8)
    matrix = {"engine": ["vllm"], "benchmark": ["serve"], "nodes": [3], "parallelism": ["tensor"]}
    run = planned_run(tmp_path, "ms-s1-max-4", {"path": "/models/ours-v3"}, matrix)
    model = parse_model("m", {"path": "/models/ours-v3"}, "a sweep")
    placed = PlacedModel(model, "/models/ours-v3", 1, sizes=sizes)
    with pytest.raises(RunFailure, match="By the header of /models/ours-v3, .* 3 do not divide 64"):
        phases._bring(run, Findings(), lambda: placed, engines.find("vllm"))


def test_replicas_need_no_count_of_nodes_that_the_model_splits_over(tmp_path):
    model = catalog.find("Llama-3.1-8B")
    matrix = {
        "engine": ["distributed-llama"],
        "benchmark": ["serve"],
        "nodes": [3],
        "parallelism": ["replicas"],
        "parameters": {"api": ["chat"]},
    }
    run = planned_run(tmp_path, "ms-s1-max-4", {"path": "/models/l.m", "tokenizer": "/l.t"}, matrix)
    placed = PlacedModel(
        parse_model("m", {"path": "/models/l.m", "tokenizer": "/l.t"}, "a sweep"),
        "/models/l.m",
        1,
        sizes=sizes_of(model, 512),
    )
    found = Findings()
    phases._bring(run, found, lambda: placed, engines.find("distributed-llama"))
    assert found.model is placed
