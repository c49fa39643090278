"""The strategies that the driver could run on a cluster, and why not the others.

placements() is the one enumeration of them: sweeps take it with axes of their own, predictions with
all that a cluster has, and `nixwulf tune` takes what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Generic, TypeVar

from nixwulf.core.errors import InputError
from nixwulf.core.text import did_you_mean, plural
from nixwulf.inventory.cluster import Cluster, Fabric, Node, joins_all
from nixwulf.inventory.platforms import gpu_vendor, load_platform
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.inputs import PARALLELISMS
from nixwulf.perf.scenarios.facts import ModelDescription
from nixwulf.plugins import engines
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime.memory import FASTEST
from nixwulf.plugins.runtime.run import groups_of
from nixwulf.results.identity import REPLICAS

_NO_GPU = ""
_REASONS = 3  # of one sentence; a mesh has one for each cable
TRANSPORTS = ("tcp", "rdma")
NO_SPLIT = "'single' needs one node, other splits need several"
"""Of points that no cluster could run: not worth a line where others are left."""
T = TypeVar("T")


@dataclass(frozen=True)
class LeftOut(Generic[T]):
    """Something that is not run, and why; of too little memory, by how many GiB a node."""

    what: T
    reason: str
    short_gib: float = 0.0


@dataclass(frozen=True)
class Placement:
    """A number of nodes, how a model is split over them, and what joins them.

    parallelism: None of what measures the machines; fabric, transport: None of one node.
    """

    nodes: int
    fabric: str | None
    transport: str | None
    parallelism: str | None

    def nodes_of(self, cluster: Cluster) -> tuple[Node, ...]:
        """The first ones that its fabric joins, the head first; none where there are none."""
        return (
            cluster.joined(self.fabric, self.nodes) if self.fabric else cluster.nodes[: self.nodes]
        )

    def problem(self, cluster: Cluster) -> str | None:
        """Say why a cluster has no such placement, whatever runs, or None."""
        if self.parallelism and (self.nodes == 1) != (self.parallelism == "single"):
            return NO_SPLIT
        if self.nodes > 1 and not self.fabric and self.parallelism != REPLICAS:
            return "the cluster has no fabric"
        if self.nodes > len(cluster.nodes):
            return f"the cluster has {len(cluster.nodes)} nodes, not {self.nodes}"
        if self.fabric:
            fabric, there = cluster.fabrics[self.fabric], len(cluster.nodes_on(self.fabric))
            if there < self.nodes:
                return f"{there} nodes are on the fabric {fabric.name}, not {self.nodes}"
            if not self.nodes_of(cluster):
                return (
                    f"the cables of {fabric.name} do not connect {self.nodes} nodes, fully or as a "
                    "ring"
                )
            if self.transport not in fabric.transports:
                return f"the fabric {fabric.name} ({fabric.kind}) carries no {self.transport}"
        return None

    def crossing(self, cluster: Cluster) -> dict[str, object]:
        """Describe the fabric to an engine or benchmark, to see whether it can cross it.

        fabric_kind; cables: where more than two nodes are on cables 'pairs' or 'ring', else None;
        control: whether they have a network over which ranks find each other.
        """
        if self.fabric is None:
            return {"fabric_kind": None}
        fabric, nodes = cluster.fabrics[self.fabric], self.nodes_of(cluster)
        cables = None
        if fabric.link_prefix and len(nodes) > 2:  # noqa: PLR2004 - a cable joins two
            cables = "pairs" if joins_all(fabric.name, nodes) else "ring"
        return {"fabric_kind": fabric.kind, "cables": cables, "control": bool(fabric.control)}

    def refusal(
        self, engine: Engine, cluster: Cluster, nodes: Sequence[Node], point: Mapping[str, object]
    ) -> str | None:
        """Say why an engine cannot run so; point: its benchmark, parameters, random and shape."""
        for node in nodes:
            if gpu_vendor(node.platform) not in {*engine.gpus, _NO_GPU}:
                return (
                    f"{engine.name} has no kernels for the GPU of {node.platform} and would "
                    f"compute on its CPU; take another engine, such as {engines.DEFAULT}"
                )
        place = {"nodes": self.nodes, "parallelism": self.parallelism, "transport": self.transport}
        given = point["parameters"]
        servers = given.get("servers", 1) if isinstance(given, dict) else 1
        if engine.elsewhere and (self.parallelism == REPLICAS or servers > 1):
            return (
                f"{engine.name} starts no servers, so that it has no replicas or servers; give the "
                "address of what spreads requests over them"
            )
        if self.parallelism == REPLICAS:  # each is an engine on one node
            place |= {"nodes": 1, "parallelism": "single"}
        elif servers > 1:
            place["nodes"] = max(1, self.nodes // servers)
        return engine.unsupported(
            {
                **point,
                **place,
                **self.crossing(cluster),
                "gpus": {gpu_vendor(node.platform) for node in nodes},
                "bandwidths": {node.name: node.bandwidth_gbs for node in nodes},
            }
        )


def placements(
    nodes: Sequence[int],
    fabrics: Sequence[str],
    transports: Sequence[str],
    parallelisms: Sequence[str | None],
) -> Iterator[Placement]:
    """List each combination of nodes, fabric, transport and parallelism (None: machines) once."""
    found = (
        Placement(count, None, None, split)
        if count == 1 or split in ("single", REPLICAS)
        else Placement(count, fabric, transport if fabric else None, split)
        for count, fabric, transport, split in product(
            nodes, fabrics or (None,), transports, parallelisms
        )
    )
    yield from dict.fromkeys(found)


@dataclass(frozen=True)
class Question:
    """A question: a cluster, a model and an engine; empty tuples stand for all there are.

    backend: what computes; empty: the first of the platform. drafts, acceptance: tokens that are
    guessed ahead a step, and the share of them that is kept.
    """

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
    backend: str = ""
    drafts: int = 0
    acceptance: float = 0.0
    measured: Mapping[str, Mapping[str, float]] | None = None
    """By fabric: rtt_us and bandwidth_gbps of its TCP links, from records."""


@dataclass(frozen=True)
class Candidate:
    """A strategy to run it: the nodes, and on several of them how they are joined."""

    nodes: tuple[Node, ...]
    parallelism: str
    fabric: Fabric | None = None
    transport: str | None = None
    alike: int = 0
    """How many other fabrics of the cluster would give the same."""
    split: str = ""
    """How the layers of a pipeline are shared out where the engine does not do it by itself."""
    groups: int = 1
    """How many servers the nodes are shared out to, each with its group of nodes."""

    @property
    def servers(self) -> tuple[Candidate, ...]:
        """List its servers as strategies of their own; itself where it is one."""
        if self.parallelism == REPLICAS:
            return tuple(Candidate((node,), "single") for node in self.nodes)
        parts = groups_of(self.nodes, self.groups)
        return tuple(replace(self, nodes=tuple(part), groups=1) for part in parts)


def candidates(question: Question) -> tuple[tuple[Candidate, ...], tuple[LeftOut[Candidate], ...]]:
    """List strategies, fewest nodes first, and those left out; raises InputError for none."""
    _check(question)
    found: list[Candidate] = []
    out: list[LeftOut[Candidate]] = []
    for candidate, placement in _all(question):
        why = _unsupported(question, candidate, placement)
        if why:
            out.append(LeftOut(candidate, why))
        else:
            found.append(candidate)
    if not found:
        why = out[0].reason if out else _none_placed(question)
        raise InputError(f"No strategy to run {question.model.name!r} is left: {why}.")
    return tuple(found), tuple(out)


def _check(question: Question) -> None:
    cluster = question.cluster
    if bool(question.drafts) != bool(question.acceptance):
        raise InputError(
            f"{question.drafts} drafts of which {question.acceptance:g} are kept; give both "
            "--draft-tokens and --draft-acceptance, the share that the engine's log says is kept."
        )
    for name in {node.platform for node in cluster.nodes} if question.backend else ():
        if question.backend not in (known := backends_of(name)):
            raise InputError(
                f"Platform {name!r} has no back end {question.backend!r}; leave out --backend, or "
                f"give one of: {', '.join(known) or 'none, it has no GPU'}."
            )
    for name in question.fabrics:
        if name not in cluster.fabrics:
            raise InputError(
                f"{cluster.source}: there is no fabric {name!r}; "
                f"{did_you_mean(name, cluster.fabrics)}"
            )
    names = question.fabrics or tuple(cluster.fabrics)
    for transport in question.transports:
        if not any(transport in cluster.fabrics[name].transports for name in names):
            kinds = ", ".join(f"{name} is {cluster.fabrics[name].kind}" for name in names)
            raise InputError(f"{cluster.source}: no fabric carries {transport!r}: {kinds}.")
    _check_nodes(question, cluster)


def _check_nodes(question: Question, cluster: Cluster) -> None:
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


def backends_of(platform: str) -> Sequence[str]:
    """List what computes on its GPU, the usual first."""
    known: Sequence[str] = load_platform(platform).get("gpu", {}).get("backends", ())
    return known


def _none_placed(question: Question) -> str:
    """Say why the cluster has none of the placements; what no cluster has, if only that."""
    named = question.fabrics or question.transports
    if named and (set(question.nodes) == {1} or set(question.parallelisms) == {REPLICAS}):
        who = "one node crosses" if set(question.nodes) == {1} else "replicas cross"
        return f"{who} no fabric; leave out --fabric and --transport"
    problems = (placement.problem(question.cluster) for placement in _placements(question))
    found = [problem for problem in dict.fromkeys(problems) if problem]
    return "; ".join([problem for problem in found if problem != NO_SPLIT][:_REASONS] or found)


def _placements(question: Question) -> Iterator[Placement]:
    cluster = question.cluster
    counts = sorted(set(question.nodes)) or range(1, len(cluster.nodes) + 1)
    fabrics = [name for name in cluster.fabrics if name in (question.fabrics or cluster.fabrics)]
    transports = [name for name in TRANSPORTS if name in (question.transports or TRANSPORTS)]
    # One request at a time is served by one node, whatever the others do.
    splits = (*PARALLELISMS, REPLICAS) if question.batch > 1 else PARALLELISMS
    return placements(counts, fabrics, transports, question.parallelisms or splits)


def _all(question: Question) -> Iterator[tuple[Candidate, Placement]]:
    """Yield the strategies that the cluster has, each with its placement."""
    cluster = question.cluster
    choices = engines.find(question.engine, "--engine").parameters.get("split")
    fastest = choices and FASTEST in choices.choices
    for placement in _placements(question):
        if placement.problem(cluster):
            continue
        if placement.fabric:
            fabric = cluster.fabrics[placement.fabric]
            nodes = placement.nodes_of(cluster)
            split, transport = str(placement.parallelism), placement.transport
            counts = range(1, 1 + max(1, min(len(nodes) // 2, question.batch)))
            for groups in (count for count in counts if len(nodes) % count == 0):
                one = Candidate(nodes, split, fabric, transport, groups=groups)
                yield one, placement
                unequal = any(len({n.bandwidth_gbs for n in s.nodes}) > 1 for s in one.servers)
                if split == "pipeline" and fastest and unequal:
                    yield replace(one, split=FASTEST), placement
        elif placement.parallelism == REPLICAS:
            if not (question.fabrics or question.transports):
                yield Candidate(placement.nodes_of(cluster), REPLICAS), placement
        elif not (question.fabrics or question.transports):
            # Nodes of one platform are one strategy.
            first = {node.platform: node for node in reversed(cluster.nodes)}
            nodes = tuple(node for node in cluster.nodes if node in first.values())
            yield from ((Candidate((node,), "single"), placement) for node in nodes)


def _unsupported(question: Question, candidate: Candidate, placement: Placement) -> str | None:
    idle = len(candidate.nodes) - question.batch
    if candidate.parallelism == REPLICAS and idle > 0 and not question.parallelisms:
        return (
            f"{question.batch} requests at once leave {plural(idle, 'node')} of "
            f"{len(candidate.nodes)} without one"
        )
    engine = engines.find(question.engine, "--engine")
    split = {"split": candidate.split} if candidate.split else {}
    point = point_of(engine, question.model.facts, **split, servers=candidate.groups)
    return placement.refusal(engine, question.cluster, candidate.nodes, point)


def point_of(engine: Engine, model: ModelFacts, **given: object) -> dict[str, object]:
    """Describe a known model to an engine, run with its defaults but for the parameters given."""
    parameters = {name: one.default for name, one in engine.parameters.items()} | given
    return {"benchmark": "", "random": None, "shape": model.shape, "parameters": parameters}
