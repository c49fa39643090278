"""Ways as a sweep of `nixwulf bench` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.perf.scenarios.candidates import Candidate
from nixwulf.plugins import engines
from nixwulf.tune.goals import SERVE, benchmark
from nixwulf.tune.request import Option, Request

REQUESTS_A_SLOT = 2


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
