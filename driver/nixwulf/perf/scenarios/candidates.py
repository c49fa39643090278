"""The ways to run a model on a cluster: those that the driver could run, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nixwulf.core.errors import InputError
from nixwulf.core.text import plural
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.inventory.platforms import gpu_vendor
from nixwulf.perf.scenarios.facts import kind_of
from nixwulf.perf.scenarios.source import ModelDescription
from nixwulf.plugins import engines

_CPU = "cpu"


@dataclass(frozen=True)
class Question:
    """What is asked: a cluster, a model and an engine; empty tuples stand for all there are."""

    cluster: Cluster
    model: ModelDescription
    engine: str = engines.DEFAULT
    n_prompt: int = 512
    n_gen: int = 128
    depth: int = 0
    batch: int = 1
    nodes: tuple[int, ...] = ()
    fabrics: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    parallelisms: tuple[str, ...] = ()
    measured: Mapping[str, Mapping[str, float]] | None = None
    """By fabric: rtt_us and bandwidth_gbps of its TCP links, from records."""


@dataclass(frozen=True)
class Candidate:
    """A way to run it: the nodes, and on several of them how they are joined."""

    nodes: tuple[Node, ...]
    parallelism: str
    fabric: Fabric | None = None
    transport: str | None = None
    alike: int = 0
    """How many other fabrics of the cluster would give the same."""


@dataclass(frozen=True)
class ExcludedCandidate:
    """A way that cannot be run, and why."""

    candidate: Candidate
    why: str


def candidates(question: Question) -> tuple[tuple[Candidate, ...], tuple[ExcludedCandidate, ...]]:
    """The ways, fewest nodes first, and those that the engine cannot be run in.

    Raises InputError for what the cluster cannot do, and when no way is left.
    """
    _check(question)
    found, out = [], []
    for candidate in _all(question):
        why = _unsupported(question, candidate)
        if why:
            out.append(ExcludedCandidate(candidate, why))
        else:
            found.append(candidate)
    if not found:
        why = f": {out[0].why}" if out else "; leave out one of the options"
        raise InputError(f"No way to run {question.model.name!r} is left{why}.")
    return tuple(found), tuple(out)


def _check(question: Question) -> None:
    cluster = question.cluster
    for name in question.fabrics:
        if name not in cluster.fabrics:
            raise InputError(
                f"{cluster.source}: there is no fabric {name!r}; there is "
                f"{', '.join(cluster.fabrics)}."
            )
    names = question.fabrics or tuple(cluster.fabrics)
    for transport in question.transports:
        if not any(transport in cluster.fabrics[name].transports for name in names):
            kinds = ", ".join(f"{name} is {cluster.fabrics[name].kind}" for name in names)
            raise InputError(f"{cluster.source}: no fabric carries {transport!r}: {kinds}.")
    for count in question.nodes:
        if count > len(cluster.nodes):
            raise InputError(
                f"{cluster.source}: the cluster has {plural(len(cluster.nodes), 'node')}, not "
                f"{count}; give fewer, or a cluster file with as many: nothing reaches them."
            )
        for name in question.fabrics:
            there = len(cluster.nodes_on(name))
            if count > 1 and there < count:
                raise InputError(
                    f"{cluster.source}: {plural(there, 'node')} of {len(cluster.nodes)} "
                    f"{'is' if there == 1 else 'are'} on the fabric {name!r}, not {count}; give "
                    "fewer nodes or another fabric."
                )


def _all(question: Question) -> Iterator[Candidate]:
    """Ways by nodes, then fabric, transport and parallelism."""
    cluster = question.cluster
    splits = question.parallelisms or ("single", "pipeline", "tensor")
    for count in sorted(set(question.nodes)) or range(1, len(cluster.nodes) + 1):
        if count == 1:
            # Nodes of one platform are one way.
            first = {node.platform: node for node in reversed(cluster.nodes)}
            nodes = [node for node in cluster.nodes if node in first.values()]
            asked = question.fabrics or question.transports
            if "single" in splits and not asked:
                yield from (Candidate((node,), "single") for node in nodes)
            continue
        for fabric in cluster.fabrics.values():
            on = cluster.nodes_on(fabric.name)
            if len(on) < count or (question.fabrics and fabric.name not in question.fabrics):
                continue
            for transport in fabric.transports:
                if question.transports and transport not in question.transports:
                    continue
                for split in splits:
                    if split != "single":
                        yield Candidate(on[:count], split, fabric, transport)


def _unsupported(question: Question, candidate: Candidate) -> str | None:
    engine = engines.find(question.engine, "--engine")
    for node in candidate.nodes:
        kind = kind_of(node.platform)
        if kind not in {*engine.gpus, _CPU}:
            return (
                f"{engine.name} has no kernels for the GPU of {node.platform} and would compute on "
                f"its CPU; take another engine, such as {engines.DEFAULT}"
            )
    point = {
        "nodes": len(candidate.nodes),
        "parallelism": candidate.parallelism,
        "transport": candidate.transport,
        "fabric_kind": candidate.fabric.kind if candidate.fabric else None,
        "gpus": {gpu_vendor(node.platform) for node in candidate.nodes},
        "benchmark": "",
        "random": None,
        "parameters": {name: one.default for name, one in engine.parameters.items()},
    }
    return engine.unsupported(point)
