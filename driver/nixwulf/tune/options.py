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
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, Placement, Question
from nixwulf.perf.scenarios.facts import stated_links
from nixwulf.perf.scenarios.forecast import answer
from nixwulf.perf.scenarios.text import how
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.runtime.case import Case
from nixwulf.sweep.plan import COORDINATES, impossible
from nixwulf.sweep.sweep_file import SEED
from nixwulf.tune.goals import SERVE, Goal, benchmark, unmeasured
from nixwulf.tune.hardware_priors import missing
from nixwulf.tune.subject import ModelChoice

REQUESTS_A_SLOT = 2


@dataclass(frozen=True)
class Request:
    """What is asked: lengths in tokens; concurrency is of goals of many requests."""

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
        return self.concurrency if self.goal.loaded else 1


@dataclass(frozen=True)
class Option:
    """A strategy to run it, and its case of a sweep."""

    engine: str
    candidate: Candidate
    words: str
    case: Case

    @property
    def count(self) -> int:
        """Nodes."""
        return len(self.candidate.nodes)


def question(
    request: Request, engine: str, links: Mapping[str, Mapping[str, float]] | None = None
) -> Question:
    """The request as the performance model takes it.

    Args:
        links: by fabric, rtt_us and bandwidth_gbps as measured; None: those of a lab.
    """
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
    """Strategies that fit, or may, and those left out; raises InputError when none is left."""
    found: list[Option] = []
    out: list[LeftOut[str]] = []
    refused: list[LeftOut[str]] = []
    for engine in request.engines:
        try:
            reason = unmeasured(request.goal, engine)
            known = None if reason else answer(question(request, engine), missing(request.cluster))
        except InputError as error:
            known, reason = None, error.message.rstrip(".")
        if known is None:
            out.append(LeftOut(engine, reason or ""))
            continue
        refused += [
            LeftOut(_words(request, engine, one.what), one.reason) for one in known.left_out
        ]
        for one in known.forecasts:
            words = _words(request, engine, one.candidate)
            nodes, room = one.candidate.nodes, one.plain.room
            if room.fits is False:
                reason = f"{room.short_gib:.1f} GiB too little on a node ({room.needs_gib:.1f} of "
                reason += f"{room.has_gib:.0f} GiB)"
                out.append(LeftOut(words, reason, room.short_gib))
            elif len(nodes) == 1 and nodes[0] != request.cluster.nodes[0]:
                out.append(LeftOut(words, "a case of one node runs on the cluster's first"))
            else:
                option = Option(engine, one.candidate, words, _case(request, engine, one.candidate))
                if why_not := _impossible(request, option.case):
                    refused.append(LeftOut(words, why_not))
                else:
                    found.append(option)
    left_out = (*out, *refused)
    if not found:
        _refuse(request, left_out)
    return tuple(found), left_out


def sweep_document(
    request: Request, cases: Sequence[Case], name: str, wall_s: float
) -> dict[str, Any]:
    """A sweep of some cases, as its YAML has it.

    Args:
        request: gives the model, the samples and the goal.
        cases: those of strategies, at least one.
        wall_s: limit of a run, seconds.
    """
    first, *others = map(_block, cases)
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


def _block(case: Case) -> dict[str, Any]:
    """The matrix of a case: each axis with its one value."""
    point = case.document()
    axes = {name: [point[name]] for name in COORDINATES if name in point}
    return {**axes, "parameters": {name: [value] for name, value in case.parameters.items()}}


def _case(request: Request, engine: str, candidate: Candidate) -> Case:
    alone = len(request.engines) == 1
    measures = benchmark(request.goal, engine, alone=alone)
    plugin = engines.find(engine)
    known = {**benchmarks.find(measures).parameters, **plugin.parameters}
    parameters = {name: one.default for name, one in known.items() if not one.omitted}
    parameters |= {"n_prompt": request.n_prompt, "n_gen": request.n_gen}
    parameters |= {"split": candidate.split} if candidate.split else {}
    parameters |= {"servers": candidate.groups} if candidate.groups > 1 else {}
    if measures == SERVE:
        parameters["concurrency"] = request.batch
        parameters["requests"] = REQUESTS_A_SLOT * request.batch
        if "completions" not in plugin.apis:
            parameters["api"] = plugin.apis[0]
    if request.cluster.is_lab and "threads" in plugin.parameters:
        # The lab's nodes share the cores of one machine.
        parameters["threads"] = 1
    return Case(
        engine=engine,
        benchmark=measures,
        model=request.subject.name,
        nodes=len(candidate.nodes),
        fabric=candidate.fabric.name if candidate.fabric else None,
        transport=candidate.transport,
        parallelism=candidate.parallelism,
        parameters=parameters,
        seed=SEED,
        samples=request.samples,
        warm_up=True,
        model_digest=request.subject.definition.digest,
    )


def _impossible(request: Request, case: Case) -> str | None:
    """Why the cluster cannot run it, though the engine could be predicted so."""
    placement = Placement(case.nodes, case.fabric, case.transport, case.parallelism)
    return impossible(case.document(), placement, request.cluster, request.subject.definition)


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
