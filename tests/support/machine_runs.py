"""Runs of the benchmarks that measure the machines, planned on a cluster and connected to none."""

from dataclasses import replace

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.facts import parse_facts
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Run
from nixwulf.sweep.plan import make_plan, parse_sweep


def run_of(tmp_path, benchmark, cluster="lab", nodes=2, warm_up=True, facts=None, **options):
    """The first case of a sweep with one value of each axis and parameter."""
    axes = {key: [options.pop(key)] for key in ("fabric", "transport") if key in options}
    matrix = {
        "benchmark": [benchmark],
        "nodes": [nodes],
        **axes,
        "parameters": {key: [value] for key, value in options.items()},
    }
    document = {"name": "machines", "matrix": matrix, "warm_up": warm_up}
    plan = make_plan(parse_sweep(document, "machines.yaml"), load_cluster(cluster))
    case = plan.cases[0]
    connections = tuple(Connection(node, ()) for node in case.nodes_of(plan.cluster))
    run = Run("x-r0", case, plan.cluster, connections, "", Limits(), tmp_path, 0.0)
    blank = parse_facts("")
    run.facts = {
        node.node.name: replace(blank, **(facts or {"cpus": 16, "memory_total": 2**34}))
        for node in connections
    }
    return run
