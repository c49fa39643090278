"""A model is brought to the nodes in a phase of its case: what fails there fails that alone."""

import pytest
from lab_under_test import Silent, recorded

from nixwulf.sweep import session as bench
from nixwulf.sweep.plan import make_plan
from nixwulf.sweep.sweep_file import parse_sweep

FULL = (
    'mkdir -p "$HOME/.cache/nixwulf/models" &&'
    ' mount -t tmpfs -o size=64k none "$HOME/.cache/nixwulf/models"'
)
EMPTY = 'umount "$HOME/.cache/nixwulf/models"'


def plan_for(cluster, layers, **changes):
    matrix = {"nodes": [1], "parallelism": ["single"]}
    matrix |= {"model": ["tiny"], "parameters": {"n_prompt": [16], "n_gen": [4], "threads": [1]}}
    document = {
        "name": "placing",
        "models": {"tiny": {"random": {"layers": layers}}},
        "matrix": matrix,
        "samples": 1,
        "limits": {"wall_s": 60, "progress_s": 10},
        **changes,
    }
    return make_plan(parse_sweep(document, "placing.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with bench.session(plan_for(cluster, 2), Silent()) as connected:
        yield connected


def test_a_node_without_space_fails_the_case_and_leaves_no_part_of_a_model(
    nodes, cluster, tmp_path
):
    plan = plan_for(cluster, 3)
    nodes.nodes["n1"].script(FULL)
    try:
        left = 'ls "$HOME/.cache/nixwulf/models"'
        record = recorded(nodes, tmp_path / "full", "true", plan)
        assert nodes.nodes["n1"].script(left) == ""
    finally:
        nodes.nodes["n1"].script(EMPTY)
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "model")
    assert "No space left" in record["failure"]["reason"]
    assert "to node 'n1'" in record["failure"]["reason"]
    assert recorded(nodes, tmp_path / "then", "true", plan)["outcome"] == "ok"


def test_the_time_that_a_model_takes_is_in_the_record(nodes, cluster, tmp_path):
    record = recorded(nodes, tmp_path, "true", plan_for(cluster, 4))
    assert record["outcome"] == "ok"
    assert record["phases"]["model"] > 0
