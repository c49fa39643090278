"""Gates: conditions on facts that must hold before a case runs, each with its reason and fix."""

from __future__ import annotations

from collections.abc import Callable

from nixwulf.cluster import Fabric, Node
from nixwulf.engines import find
from nixwulf.facts import Facts
from nixwulf.run import Run


def refusal(run: Run, model_bytes: int | None) -> tuple[str, str] | None:
    """The first gate that refuses a run, as its name and one sentence; none when all hold."""
    gates: dict[str, Callable[[], str | None]] = {
        "programs": lambda: _programs(run),
        "fabric": lambda: _fabric(run),
        "model": lambda: _model(run, model_bytes),
    }
    for name, gate in gates.items():
        reason = gate()
        if reason:
            return name, reason
    return None


def _programs(run: Run) -> str | None:
    engine = find(run.case.engine)
    for node in run.nodes:
        name = node.node.name
        lacking = engine.missing(run.facts[name].programs)
        if lacking:
            return f"Node {name!r} lacks {lacking} on PATH; deploy it or install {engine.name}."
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


def _model(run: Run, model_bytes: int | None) -> str | None:
    name = run.head.node.name
    head = run.facts[name]
    if model_bytes is None:
        return (
            f"Node {name!r} has no model file {run.model!r}; copy it there, or correct the path in "
            "the sweep."
        )
    if run.case.nodes > 1 or head.memory_available == 0:
        return None
    if model_bytes > head.memory_available:
        return (
            f"The model takes {model_bytes / 2**30:.1f} GiB and node {name!r} has "
            f"{head.memory_available / 2**30:.1f} GiB free; use more nodes or a smaller model."
        )
    return None
