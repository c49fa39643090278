"""Every way to run a model on a cluster, with what each should give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nixwulf import engines
from nixwulf.cluster import Cluster, Fabric, Node
from nixwulf.errors import InputError
from nixwulf.model.facts import Way
from nixwulf.model.predict import Prediction, predict
from nixwulf.predicting import facts, what_if
from nixwulf.predicting.room import ASSUMED, Room, room
from nixwulf.predicting.source import Model
from nixwulf.predicting.what_if import WhatIf
from nixwulf.report.words import plural


@dataclass(frozen=True)
class Question:
    """What is asked: a cluster, a model and an engine; empty tuples stand for all there are."""

    cluster: Cluster
    model: Model
    engine: str = "llama.cpp"
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
class Told:
    """Decode and the reading of a prompt in tokens a second, and the memory.

    prompt is none where there is none, and where the compute of a node is not known.
    """

    decode: Prediction
    prompt: Prediction | None
    room: Room
    more: tuple[str, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was not known."""
        more = self.prompt.assumptions if self.prompt else ()
        return tuple(dict.fromkeys((*self.decode.assumptions, *more, *self.more, ASSUMED)))


@dataclass(frozen=True)
class Answer:
    """A way and what it should give, as things are and as they are taken to be."""

    candidate: Candidate
    plain: Told
    changed: Told | None = None


def answer(question: Question, what_ifs: Sequence[str] = ()) -> tuple[Answer, ...]:
    """All ways that can be and are asked for; raises InputError when there is none, and why.

    A what-if about a platform whose memory nobody measured is no change: it is the missing fact.
    """
    chosen = candidates(question)
    asked = what_if.parse_all(what_ifs, _names(question, chosen))
    given = tuple(one for one in asked if _is_missing(one))
    chosen = _without_alike(question, chosen, asked)
    changed = len(given) < len(asked)
    return tuple(
        Answer(one, told(question, one, given), told(question, one, asked) if changed else None)
        for one in chosen
    )


def candidates(question: Question) -> tuple[Candidate, ...]:
    """The ways, fewest nodes first; raises InputError for what the cluster cannot do."""
    _check(question)
    found, reasons = [], []
    for candidate in _all(question):
        reason = _unsupported(question, candidate)
        if reason:
            reasons.append(reason)
        else:
            found.append(candidate)
    if not found:
        why = f": {reasons[0]}" if reasons else "; leave out one of the options"
        raise InputError(f"No way to run {question.model.name!r} is left{why}.")
    return tuple(found)


def told(question: Question, candidate: Candidate, changes: Sequence[WhatIf] = ()) -> Told:
    """What a way should give, with some facts taken to be different."""
    platforms = [facts.platform(node.platform, changes) for node in candidate.nodes]
    way = Way(
        question.engine,
        candidate.parallelism,
        question.n_prompt,
        question.n_gen,
        question.depth,
        question.batch,
    )
    link = None
    if candidate.fabric and candidate.transport:
        measured = (question.measured or {}).get(candidate.fabric.name, {})
        link = facts.link(candidate.fabric, candidate.transport, measured, changes)
    constants = facts.constants(way, platforms[0].kind, changes)

    def of(metric: str) -> Prediction:
        model = question.model.facts
        return predict(platforms, model, way, link, metric=metric, constants=constants)

    slow = {one.name for one in platforms if not one.tflops}
    prompt = of("prompt") if question.n_prompt and not slow else None
    said = tuple(
        f"{name}: its compute_tflops are not known, so no time of computing is in a batch and no "
        f"prompt is predicted; give --what-if platform.{name}.compute_tflops"
        for name in sorted(slow)
    )
    return Told(of("decode"), prompt, room(platforms, question.model, way), said)


def _is_missing(one: WhatIf) -> bool:
    return one.group == "platform" and not facts.has_bandwidth(one.name)


def _without_alike(
    question: Question, chosen: Sequence[Candidate], changes: Sequence[WhatIf]
) -> tuple[Candidate, ...]:
    """One for all fabrics of which nothing tells them apart: a mesh of cables is six alike."""
    apart = {one.name for one in changes if one.group == "fabric"}
    apart |= {*question.fabrics, *(question.measured or {})}
    kept: dict[object, Candidate] = {}
    for number, one in enumerate(chosen):
        key: object = number
        if one.fabric and one.fabric.name not in apart:
            platforms = tuple(node.platform for node in one.nodes)
            fabric = one.fabric
            key = (fabric.kind, fabric.speed_gbps, one.transport, one.parallelism, platforms)
        first = kept.get(key)
        kept[key] = replace(first, alike=first.alike + 1) if first else one
    return tuple(kept.values())


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
                f"{count}."
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
    point = {
        "nodes": len(candidate.nodes),
        "parallelism": candidate.parallelism,
        "transport": candidate.transport,
        "benchmark": "",
        "random": None,
        "parameters": {name: one.default for name, one in engine.parameters.items()},
    }
    return engine.unsupported(point)


def _names(question: Question, chosen: Sequence[Candidate]) -> dict[str, Sequence[str]]:
    """What a what-if can be about."""
    fabrics = [one.fabric.name for one in chosen if one.fabric]
    platforms = [node.platform for one in chosen for node in one.nodes]
    return {
        "fabric": tuple(dict.fromkeys(fabrics)),
        "platform": tuple(dict.fromkeys(platforms)),
        "engine": (question.engine,),
    }
