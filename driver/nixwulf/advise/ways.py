"""Every way to run a model on a cluster for a goal, those that fit nowhere with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf import engines
from nixwulf.advise.belief import Way, unexplained
from nixwulf.advise.cost import seconds
from nixwulf.advise.goals import Goal, benchmark, expected, unmeasured
from nixwulf.advise.subject import Subject
from nixwulf.advise.unknown import assumed, missing, said, widened
from nixwulf.cluster import Cluster
from nixwulf.errors import InputError
from nixwulf.model import facts
from nixwulf.model.constants import choose, family
from nixwulf.model.links import fabric_facts
from nixwulf.model.work import PARTS
from nixwulf.plan import make_plan
from nixwulf.predicting.candidates import Candidate, Question
from nixwulf.predicting.facts import kind_of
from nixwulf.predicting.ways import answer, told
from nixwulf.predicting.words import how
from nixwulf.sweep import parse_sweep

_LAB_TRIP_US = 20.0  # what the kernel takes where a fabric of the lab has no delay
_LAB_GBPS = 10.0
_REQUESTS_A_SLOT = 2
_TELL_APART = ("engine", "nodes", "fabric", "transport", "parallelism")


@dataclass(frozen=True)
class Request:
    """What is asked: lengths in tokens; concurrency is of throughput alone."""

    cluster: Cluster
    subject: Subject
    goal: Goal
    engines: tuple[str, ...]
    n_prompt: int
    n_gen: int
    concurrency: int
    samples: int

    @property
    def batch(self) -> int:
        """Sequences at once."""
        return self.concurrency if self.goal.metric == "throughput" else 1


@dataclass(frozen=True)
class Option:
    """A way to run it, and its block in a sweep."""

    engine: str
    candidate: Candidate
    block: Mapping[str, Any]
    words: str

    @property
    def count(self) -> int:
        """Nodes."""
        return len(self.candidate.nodes)

    def is_of(self, coordinates: Mapping[str, Any]) -> bool:
        """Whether a case, or a point that is none, is about this way."""
        own = (self.block[key][0] if key in self.block else None for key in _TELL_APART)
        return all(coordinates.get(key) == one for key, one in zip(_TELL_APART, own, strict=True))


@dataclass(frozen=True)
class LeftOut:
    """A way that is not in the ranking, and why; of too little memory, by how much."""

    words: str
    reason: str
    short_gib: float = 0.0


@dataclass(frozen=True)
class Outlook:
    """A way before it is measured: for the belief, how long measuring takes, what is assumed."""

    way: Way
    seconds: float
    assumptions: tuple[str, ...]


def options(request: Request) -> tuple[tuple[Option, ...], tuple[LeftOut, ...]]:
    """Ways that fit, or may, and those left out; raises InputError when none is left."""
    found: list[Option] = []
    out: list[LeftOut] = []
    for engine in request.engines:
        try:
            reason = unmeasured(request.goal, engine)
            ways = () if reason else answer(_question(request, engine), missing(request.cluster))
        except InputError as error:
            ways, reason = (), error.message.rstrip(".")
        if reason:
            out.append(LeftOut(engine, reason))
        for one in ways:
            words = _words(request, engine, one.candidate)
            room = one.plain.room
            if room.fits is False:
                reason = f"{room.short_gib:.1f} GiB too little on a node ({room.needs_gib:.1f} of "
                reason += f"{room.has_gib:.0f} GiB)"
                out.append(LeftOut(words, reason, room.short_gib))
            elif (
                len(one.candidate.nodes) == 1 and one.candidate.nodes[0] != request.cluster.nodes[0]
            ):
                out.append(LeftOut(words, "a case of one node runs on the cluster's first"))
            else:
                block = _block(request, engine, one.candidate)
                found.append(Option(engine, one.candidate, block, words))
    if not found:
        _refuse(request, out)
    return planned(request, found, out)


def planned(
    request: Request, found: Sequence[Option], out: Sequence[LeftOut]
) -> tuple[tuple[Option, ...], tuple[LeftOut, ...]]:
    """The ways that a sweep has cases of; the others with the sweep's reason."""
    document = sweep_document(request, found, "plan", 60.0)
    plan = make_plan(parse_sweep(document, "nixwulf plan"), request.cluster)
    kept = tuple(one for one in found if any(one.is_of(case.document()) for case in plan.cases))
    more = tuple(
        LeftOut(one.words, left.reason)
        for one in found
        for left in plan.left_out
        if one.is_of(left.coordinates)
    )
    return kept, (*out, *more)


def outlook(
    request: Request, option: Option, links: Mapping[str, Mapping[str, float]]
) -> Outlook | None:
    """What is expected of a way; links by fabric as they were measured. None: not predictable."""
    question = _question(request, option.engine, links)
    found = told(question, option.candidate, assumed(request.cluster))
    time = expected(request.goal, found, request.n_prompt, request.n_gen)
    if time is None:
        return None
    kind = kind_of(option.candidate.nodes[0].platform)
    name = family(facts.Way(option.engine, option.candidate.parallelism), kind)
    platforms = sorted({node.platform for node in option.candidate.nodes})
    published = dict(zip(PARTS, choose(name, kind).deviations, strict=True))
    deviations, least = widened(published, platforms)
    way = Way(name, time.parts, deviations, max(least, unexplained(time, published)))
    decode, prompt = found.decode.value, found.prompt.value if found.prompt else None
    passes = request.samples + 1.0
    if option.block["benchmark"] == ["serve"]:
        # Throughput is of all requests at once, so of each slot's one after the other.
        passes = request.samples * _REQUESTS_A_SLOT + 1.0
    batch = request.batch
    cost = seconds(
        is_lab=request.cluster.is_lab,
        weight_bytes=request.subject.model.facts.weight_bytes,
        moved_bytes_a_second=_bytes_a_second(option.candidate, links),
        moved_share=_moved(option),
        decode=decode / batch,
        prompt=prompt / batch if prompt else None,
        sequence=(request.n_prompt, request.n_gen),
        passes=passes,
    )
    assumptions = dict.fromkeys((*found.assumptions, *said(platforms)))
    return Outlook(way, cost, tuple(assumptions))


def known_links(cluster: Cluster) -> dict[str, dict[str, float]]:
    """Of a lab, round trips and rates that its fabrics are made to have; of others none."""
    if not cluster.is_lab:
        return {}
    return {
        name: {
            "rtt_us": _LAB_TRIP_US + 2 * (fabric.shape.delay_us if fabric.shape else 0.0),
            "bandwidth_gbps": (fabric.shape.rate_gbps if fabric.shape else None) or _LAB_GBPS,
        }
        for name, fabric in cluster.fabrics.items()
    }


def sweep_document(
    request: Request, chosen: Sequence[Option], name: str, wall_s: float
) -> dict[str, Any]:
    """A sweep of some ways, as its YAML has it."""
    first, *others = [dict(option.block) for option in chosen]
    subject = request.subject
    return {
        "name": name,
        "description": f"{subject.name} on {request.cluster.name}: {request.goal.words}",
        "models": {subject.name: dict(subject.entry)},
        "matrix": first,
        **({"include": others} if others else {}),
        "samples": request.samples,
        "limits": {"wall_s": wall_s, "progress_s": min(wall_s, 120.0)},
    }


def _question(
    request: Request, engine: str, links: Mapping[str, Mapping[str, float]] | None = None
) -> Question:
    return Question(
        request.cluster,
        request.subject.model,
        engine,
        request.n_prompt,
        request.n_gen,
        batch=request.batch,
        measured=known_links(request.cluster) if links is None else links,
    )


def _words(request: Request, engine: str, candidate: Candidate) -> str:
    words = how(candidate)
    return f"{engine}, {words}" if len(request.engines) > 1 else words


def _block(request: Request, engine: str, candidate: Candidate) -> dict[str, Any]:
    alone = len(request.engines) == 1
    measures = benchmark(request.goal, engine, alone=alone)
    parameters: dict[str, list[Any]] = {"n_prompt": [request.n_prompt], "n_gen": [request.n_gen]}
    if measures == "serve":
        parameters["concurrency"] = [request.batch]
        parameters["requests"] = [_REQUESTS_A_SLOT * request.batch]
    if request.cluster.is_lab and "threads" in engines.find(engine).parameters:
        # The lab's nodes share the cores of one machine.
        parameters["threads"] = [1]
    block: dict[str, Any] = {
        "engine": [engine],
        "benchmark": [measures],
        "model": [request.subject.name],
        "nodes": [len(candidate.nodes)],
        "parallelism": [candidate.parallelism],
        "parameters": parameters,
    }
    if candidate.fabric and candidate.transport:
        block |= {"fabric": [candidate.fabric.name], "transport": [candidate.transport]}
    return block


def _bytes_a_second(candidate: Candidate, links: Mapping[str, Mapping[str, float]]) -> float:
    """Of one stream over a way's fabric, as measured or as usual; 0 on one node."""
    fabric, transport = candidate.fabric, candidate.transport
    if fabric is None or transport is None:
        return 0.0
    known = links.get(fabric.name, {}) if transport == "tcp" else {}
    facts = fabric_facts(
        fabric.kind,
        transport,
        fabric.speed_gbps,
        bandwidth_gbps=known.get("bandwidth_gbps"),
    )
    return facts.bandwidth_gbps * 1e9 / 8


def _moved(option: Option) -> float:
    """Share of the weights that the head sends over the fabric: llama.cpp's workers have none."""
    if option.count == 1 or engines.find(option.engine).model_on_every_node:
        return 0.0
    return (option.count - 1) / option.count


def _refuse(request: Request, out: Sequence[LeftOut]) -> None:
    name, cluster = request.subject.model.name, request.cluster.name
    short = [one for one in out if one.short_gib]
    if short:
        least = min(short, key=lambda one: one.short_gib)
        raise InputError(
            f"{name!r} fits no way on {cluster!r}: the nearest, {least.words}, has "
            f"{least.reason}; take a smaller quantization, or more nodes."
        )
    reasons = "; ".join(f"{one.words}: {one.reason}" for one in out)
    raise InputError(f"No way to run {name!r} on {cluster!r} for {request.goal.name}: {reasons}.")
