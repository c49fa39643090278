"""Which nodes a lab is brought up with for a sweep: those that its runs take."""

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep.plan import load_sweep, make_plan, parse_sweep
from nixwulf.sweep.session import of_used_nodes


def nodes_for(plan):
    return [node.name for node in of_used_nodes(plan, list(plan.runs())).cluster.nodes]


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("nodes=1", ["n1", "n2"]),  # no lab is smaller
        ("nodes<=2", ["n1", "n2"]),
        ("", ["n1", "n2", "n3", "n4"]),
    ],
)
def test_a_lab_has_the_nodes_that_its_runs_take(only, names):
    assert nodes_for(make_plan(load_sweep("lab/demo"), load_cluster("lab"), only)) == names


def test_a_recovery_may_need_all_nodes():
    document = load_sweep("smoke").document | {"on_hang": "recover"}
    plan = make_plan(parse_sweep(document, "smoke.yaml"), load_cluster("lab"))
    assert nodes_for(plan) == ["n1", "n2", "n3", "n4"]


def test_machines_are_all_connected():
    document = load_sweep("smoke").document
    alone = {"model": ["tiny"], "nodes": [1], "parallelism": ["single"]}
    sweep = parse_sweep(document | {"matrix": alone}, "smoke.yaml")
    plan = make_plan(sweep, load_cluster("ms-s1-max-4"))
    assert len(nodes_for(plan)) == 4
