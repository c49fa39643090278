"""Gates: conditions on facts that must hold before a case runs, each with its reason and fix."""

from __future__ import annotations

from collections.abc import Callable

from nixwulf import benchmarks, engines, memory
from nixwulf.cluster import Fabric, Node
from nixwulf.facts import Facts
from nixwulf.models import PlacedModel
from nixwulf.run import Run


def refusal(run: Run, model: PlacedModel | None) -> tuple[str, str] | None:
    """The first gate that refuses a run, as its name and one sentence; none when all hold."""
    gates: dict[str, Callable[[], str | None]] = {
        "programs": lambda: _programs(run),
        "fabric": lambda: _fabric(run),
        "model": lambda: _model(run, model),
    }
    for name, gate in gates.items():
        reason = gate()
        if reason:
            return name, reason
    return None


def _programs(run: Run) -> str | None:
    engine = engines.find(run.case.engine) if run.case.engine else None
    benchmark = benchmarks.find(run.case.benchmark)
    for node in run.nodes:
        name = node.node.name
        programs = run.facts[name].programs
        lacking = engine.missing(programs) if engine else None
        if engine and lacking:
            return f"Node {name!r} lacks {lacking} on PATH; deploy it or install {engine.name}."
        lacking = benchmark.missing(programs)
        if lacking:
            return f"Node {name!r} lacks {lacking}."
    return None


def _fabric(run: Run) -> str | None:
    if run.fabric is None:
        return None
    problems = (fabric_problem(n.node, run.fabric, run.facts[n.node.name]) for n in run.nodes)
    return next(filter(None, problems), None)


def fabric_problem(node: Node, fabric: Fabric, facts: Facts) -> str | None:
    """What a node's facts say against its place on a fabric, or none."""
    name, attachment = node.name, node.fabrics[fabric.name]
    interface = facts.interfaces.get(attachment.interface)
    if interface is None:
        return f"Node {name!r} has no interface {attachment.interface!r}; see 'ip link' there."
    if attachment.address not in facts.addresses:
        return (
            f"Node {name!r} does not have the address {attachment.address!r}; see 'ip addr' there."
        )
    if interface.mtu != fabric.mtu:
        return (
            f"Node {name!r} has MTU {interface.mtu} on {attachment.interface!r}, and the fabric "
            f"{fabric.name!r} says {fabric.mtu}; run 'ip link set {attachment.interface} mtu "
            f"{fabric.mtu}' there."
        )
    return None


def _model(run: Run, model: PlacedModel | None) -> str | None:
    if model is None:
        return None
    if model.bytes is None:
        return (
            f"Node {model.missing_on!r} has no model {run.model!r}; copy it there, or correct the "
            "path in the sweep."
        )
    return memory.problem(run, model.sizes) if model.sizes else None
