"""Every strategy to run a model on a cluster for a goal, each with its case of a sweep.

Those that no sweep has a case of, or that fit nowhere, are left out with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.text import plural
from nixwulf.inventory.cluster import Cluster
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, Question
from nixwulf.perf.scenarios.facts import stated_links
from nixwulf.perf.scenarios.forecast import forecast_all
from nixwulf.perf.scenarios.text import how
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.run import Case
from nixwulf.sweep.plan import possible
from nixwulf.sweep.sweep_file import parse_sweep
from nixwulf.tune.goals import SERVE, Goal, benchmark, unmeasured
from nixwulf.tune.hardware_priors import missing
from nixwulf.tune.subject import ModelChoice

REQUESTS_A_SLOT = 2


@dataclass(frozen=True)
class Request:
    """What is asked: lengths in tokens; concurrency is of throughput alone."""

    cluster: Cluster
    subject: ModelChoice
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
    """A strategy to run it: its block in a sweep, and its case."""

    engine: str
    candidate: Candidate
    block: Mapping[str, Any]
    words: str
    case: Case

    @property
    def count(self) -> int:
        """Nodes."""
        return len(self.candidate.nodes)


def question(
    request: Request, engine: str, links: Mapping[str, Mapping[str, float]] | None = None
) -> Question:
    """As the model is asked; links by fabric as they were measured, else those of a lab."""
    return Question(
        request.cluster,
        request.subject.model,
        engine,
        request.n_prompt,
        request.n_gen,
        batch=request.batch,
        measured=stated_links(request.cluster) if links is None else links,
    )


def options(request: Request) -> tuple[tuple[Option, ...], tuple[LeftOut[str], ...]]:
    """Ways that fit, or may, and those left out; raises InputError when none is left."""
    found: list[Option] = []
    out: list[LeftOut[str]] = []
    refused: list[LeftOut[str]] = []
    for engine in request.engines:
        try:
            reason = unmeasured(request.goal, engine)
            ways = (
                () if reason else forecast_all(question(request, engine), missing(request.cluster))
            )
        except InputError as error:
            ways, reason = (), error.message.rstrip(".")
        if reason:
            out.append(LeftOut(engine, reason))
        for one in ways:
            words = _words(request, engine, one.candidate)
            nodes, room = one.candidate.nodes, one.plain.room
            if room.fits is False:
                reason = f"{room.short_gib:.1f} GiB too little on a node ({room.needs_gib:.1f} of "
                reason += f"{room.has_gib:.0f} GiB)"
                out.append(LeftOut(words, reason, room.short_gib))
            elif len(nodes) == 1 and nodes[0] != request.cluster.nodes[0]:
                out.append(LeftOut(words, "a case of one node runs on the cluster's first"))
            else:
                own = block(request, engine, one.candidate)
                sweep = parse_sweep(sweep_document(request, [own], "tune", 60.0), "nixwulf tune")
                cases, none = possible(sweep, request.cluster)
                found += [Option(engine, one.candidate, own, words, case) for case in cases]
                refused += [LeftOut(words, left.reason) for left in none]
    left_out = (*out, *refused)
    if not found:
        _refuse(request, left_out)
    return tuple(found), left_out


def sweep_document(
    request: Request, blocks: Sequence[Mapping[str, Any]], name: str, wall_s: float
) -> dict[str, Any]:
    """A sweep of the blocks of some strategies, as its YAML has it."""
    first, *others = map(dict, blocks)
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


def block(request: Request, engine: str, candidate: Candidate) -> Mapping[str, Any]:
    """The matrix of one way."""
    alone = len(request.engines) == 1
    measures = benchmark(request.goal, engine, alone=alone)
    parameters: dict[str, list[Any]] = {"n_prompt": [request.n_prompt], "n_gen": [request.n_gen]}
    if measures == SERVE:
        parameters["concurrency"] = [request.batch]
        parameters["requests"] = [REQUESTS_A_SLOT * request.batch]
        apis = engines.find(engine).apis
        parameters |= {} if "completions" in apis else {"api": [*apis]}
    if request.cluster.is_lab and "threads" in engines.find(engine).parameters:
        # The lab's nodes share the cores of one machine.
        parameters["threads"] = [1]
    matrix: dict[str, Any] = {
        "engine": [engine],
        "benchmark": [measures],
        "model": [request.subject.name],
        "nodes": [len(candidate.nodes)],
        "parallelism": [candidate.parallelism],
        "parameters": parameters,
    }
    if candidate.fabric and candidate.transport:
        matrix |= {"fabric": [candidate.fabric.name], "transport": [candidate.transport]}
    return matrix


def first_of_each_reason(out: Sequence[LeftOut[str]]) -> list[LeftOut[str]]:
    """Of strategies left out for one reason the first, whose words count the others."""
    by_reason: dict[str, list[LeftOut[str]]] = {}
    for one in out:
        by_reason.setdefault(one.reason, []).append(one)
    return [
        replace(first, what=f"{first.what} (and {plural(len(others), 'other')})")
        if others
        else first
        for first, *others in by_reason.values()
    ]


def _words(request: Request, engine: str, candidate: Candidate) -> str:
    words = how(candidate)
    return f"{engine}, {words}" if len(request.engines) > 1 else words


def _refuse(request: Request, out: Sequence[LeftOut[str]]) -> None:
    name, cluster = request.subject.model.name, request.cluster.name
    short = [one for one in out if one.short_gib]
    if short:
        least = min(short, key=lambda one: one.short_gib)
        raise InputError(
            f"{name!r} fits no strategy on {cluster!r}: the nearest, {least.what}, has "
            f"{least.reason}; take a smaller quantization, or more nodes."
        )
    reasons = "; ".join(f"{one.reason} ({one.what})" for one in first_of_each_reason(out))
    raise InputError(
        f"No strategy to run {name!r} on {cluster!r} for {request.goal.name}: {reasons}."
    )
