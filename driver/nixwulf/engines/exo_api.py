"""exo's HTTP API: each request as data, and what its answers say.

https://github.com/exo-explore/exo/blob/b5375f8/docs/api.md and src/exo/api there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nixwulf import prompts
from nixwulf.case import Case
from nixwulf.run import RunFailure

_SHARDING = {"single": "Pipeline", "pipeline": "Pipeline", "tensor": "Tensor"}
_META = {None: "MlxRing", "tcp": "MlxRing", "rdma": "MlxJaccl"}
_AWAIT_S = 300  # the most that it allows


@dataclass(frozen=True)
class Request:
    """A request, its body as JSON."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Instance:
    """A placed model: its id, and those of its parts."""

    id: str
    runners: tuple[str, ...]


NODES = Request("GET", "/state/topology/nodes")
INSTANCES = Request("GET", "/state/instances")


def previews(model: str) -> Request:
    """What placements are possible."""
    return Request("GET", "/instance/previews", query={"model_id": model})


def placement(model: str, case: Case) -> Request:
    """Place the model as the case says."""
    return placement_of(model, case.parallelism, case.transport, case.nodes)


def placement_of(model: str, parallelism: str | None, transport: str | None, nodes: int) -> Request:
    """Place the model on so many nodes, split and joined so."""
    body = {"model_id": model, **_split(parallelism, transport, nodes)}
    return Request("POST", "/place_instance", body)


def awaiting(model: str) -> Request:
    """Wait for the placed model, as a stream of events."""
    query = {"model_id": model, "timeout_seconds": str(_AWAIT_S)}
    return Request("GET", "/instance/await", query=query)


def runner_state(runner: str) -> Request:
    """How far one part of the model is."""
    return Request("GET", f"/state/runners/{runner}")


def greedy(model: str, seed: int, count: int) -> Request:
    """A chat whose tokens come back."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompts.GREEDY}],
        "max_tokens": count,
        "temperature": 0,
        "seed": seed,
        "logprobs": True,
        "stream": False,
    }
    return Request("POST", "/v1/chat/completions", body)


def deletion(instance: str) -> Request:
    """Take a model off the nodes."""
    return Request("DELETE", f"/instance/{instance}")


def placement_problem(model: str, case: Case, answer: Any) -> str | None:
    """Why exo cannot place the model as the case says, by its previews; none when it can."""
    wanted = _wanted(case)
    told = ""
    try:
        for preview in answer["previews"]:
            if all(preview[key] == wanted[key] for key in ("sharding", "instance_meta")):
                if preview.get("instance") and _parts(preview["instance"]) == case.nodes:
                    return None
                told = preview.get("error") or told
    except (KeyError, TypeError, AttributeError, StopIteration):
        return f"exo previewed no placements: {str(answer)[:200]}."
    how = f"{wanted['sharding']}, {wanted['instance_meta']} on {case.nodes} nodes"
    return f"exo cannot place {model!r} as {how}: {told or 'it offers no such placement'}."


def ready_instance(events: str) -> Instance:
    """The instance that a stream of events tells; raises RunFailure."""
    for line in events.splitlines():
        if line.startswith("data: "):
            with suppress(ValueError, KeyError, TypeError, AttributeError, StopIteration):
                event = json.loads(line.removeprefix("data: "))
                inner = next(iter(event["instance"].values()))
                shards = inner["shardAssignments"]["runnerToShard"]
                return Instance(str(inner["instanceId"]), tuple(shards))
    last = events.strip().rpartition("\n")[2]
    raise RunFailure("failed", f"exo did not place the model: {last[:200] or 'no event came'}.")


def runner_is_ready(state: Any) -> bool:
    """Whether a part is loaded; raises RunFailure when it has failed."""
    if isinstance(state, dict) and "RunnerFailed" in state:
        words = state["RunnerFailed"].get("errorMessage") or "it gives no reason"
        raise RunFailure("failed", f"A part of the model failed on a node of exo: {words}.")
    return isinstance(state, dict) and ("RunnerReady" in state or "RunnerRunning" in state)


def tokens(answer: Any) -> list[str]:
    """The texts of a chat's tokens; raises RunFailure."""
    try:
        return [str(part["token"]) for part in answer["choices"][0]["logprobs"]["content"]]
    except (KeyError, IndexError, TypeError):
        raise RunFailure("failed", f"exo answered no tokens: {str(answer)[:200]}.") from None


def _wanted(case: Case) -> dict[str, Any]:
    return _split(case.parallelism, case.transport, case.nodes)


def _split(parallelism: str | None, transport: str | None, nodes: int) -> dict[str, Any]:
    return {
        "sharding": _SHARDING[parallelism or ""],
        "instance_meta": _META[transport],
        "min_nodes": nodes,
    }


def _parts(instance: Mapping[str, Any]) -> int:
    """On how many nodes an instance is; its kind is the one key around it."""
    inner = next(iter(instance.values()))
    return len(inner["shardAssignments"]["nodeToRunner"])
