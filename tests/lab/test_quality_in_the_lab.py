"""quality by llama-server in the lab: what a cache type, a split and a damage cost."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
from gguf import GGUFReader
from lab_under_test import Silent, recorded_each

from nixwulf.llm import gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.transfer import put
from nixwulf.sweep import session
from nixwulf.sweep.plan import load_sweep, make_plan, parse_sweep

LEFT = "grep -ls -e rpc-server -e llama- /proc/[0-9]*/comm || true"
PARAMETERS = {"positions": [48], "n_prompt": [256], "needles": [2], "threads": [1]}
TINY = RandomModel(layers=4)


def plan_for(cluster, models=None, **parameters):
    models = models or {"tiny": {"random": {"layers": 4}}}
    matrix = {
        "benchmark": ["quality"],
        "model": list(models),
        "nodes": [1, 2],
        "fabric": ["rdma-like"],
        "parallelism": ["single", "pipeline"],
        "parameters": {**PARAMETERS, **parameters},
    }
    document = {"name": "quality", "models": models, "matrix": matrix, "sanity": "short"}
    return make_plan(parse_sweep({**document, "samples": 1}, "quality.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded_each, nodes, tmp_path, LEFT)


def values(record):
    assert record["outcome"] == "ok", record["failure"]
    return {metric["name"]: metric["value"] for metric in record["metrics"]}


def test_a_smaller_cache_is_farther_from_one_node_than_a_split_of_the_same(run, cluster, tmp_path):
    plan = plan_for(cluster, type_k=["f16", "q4_0"])
    found = {(case.nodes, case.parameters["type_k"]): values(record) for case, record in run(plan)}
    assert len(found) == 4
    for nodes in (1, 2):
        assert found[nodes, "f16"]["divergence"] < 1e-6 < found[nodes, "q4_0"]["divergence"]
        assert found[nodes, "f16"]["perplexity"] == pytest.approx(
            found[1, "f16"]["perplexity"], rel=1e-3
        )
        assert found[nodes, "q4_0"]["perplexity"] > 1
        assert 0 <= found[nodes, "f16"]["needle_recall"] <= 100
    assert len([*(tmp_path / "references").glob("quality-*.json")]) == 1


def test_a_damaged_model_is_far_from_the_first_that_the_sweep_lists(run, nodes, cluster, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    shutil.copy(gguf.ensure(TINY), damaged)
    tensor = next(t for t in GGUFReader(damaged, "r+").tensors if t.name == "blk.1.attn_v.weight")
    tensor.data[:] = 0
    tensor.data.flush()
    for node in nodes.nodes.values():
        put(node, damaged, "/tmp/damaged.gguf", lambda count, size: None)
    models = {"whole": {"random": {"layers": 4}}, "damaged": {"path": "/tmp/damaged.gguf"}}
    found = {
        (case.model, case.nodes): values(record)["divergence"]
        for case, record in run(plan_for(cluster, models))
    }
    for count in (1, 2):
        assert found["damaged", count] > 1e-3 > 100 * found["whole", count]


def test_prompts_that_the_models_context_does_not_hold_are_unsupported_with_the_parameter(
    run, cluster
):
    models = {"tiny": {"random": {"layers": 4, "context": 512}}}
    plan = plan_for(cluster, models, n_prompt=[1000])
    ((_, record),) = run(replace(plan, cases=plan.cases[:1]))
    assert record["outcome"] == "unsupported"
    assert "The model has room for 512 tokens" in record["failure"]["reason"]
    assert "lower n_prompt (1,000)" in record["failure"]["reason"]


def test_a_reference_that_is_no_model_of_the_sweep_is_a_sentence(run, cluster):
    plan = plan_for(cluster, reference=["other"])
    ((_, record),) = run(replace(plan, cases=plan.cases[:1]))
    assert record["outcome"] == "failed"
    assert "the model 'other' is not among models: tiny." in record["failure"]["reason"]


def test_a_text_shorter_than_the_positions_that_are_asked_is_a_sentence(run, cluster):
    plan = plan_for(cluster, positions=[2040], n_prompt=[128])
    ((_, record),) = run(replace(plan, cases=plan.cases[:1]))
    assert record["outcome"] == "unsupported"
    assert "positions is 2,040; give positions: [" in record["failure"]["reason"]


def test_the_sweep_that_comes_with_the_driver_varies_the_cache_on_one_node_and_two(cluster):
    plan = make_plan(load_sweep("quality"), cluster)
    kinds = {(case.nodes, *(case.parameters[f"type_{one}"] for one in "kv")) for case in plan.cases}
    assert kinds == {(n, kind, kind) for n in (1, 2) for kind in ("f16", "q8_0")}
