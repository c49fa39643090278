"""exo's HTTP API, each request as data and what its answers say; and how its nodes find each other.

Of v1.0.71 and of b5375f8 alike: https://github.com/exo-explore/exo/blob/b5375f8/docs/api.md and
src/exo/api there. What they print is in tests/fixtures/exo and exo-lab.

The version cannot tell which of zenoh and libp2p they use: it is 0.3.70 in v1.0.71, which has
libp2p, and in https://github.com/exo-explore/exo/commit/09f9ea3, which has zenoh, and after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from nixwulf.core.secrets import cut
from nixwulf.inventory.fabrics import TCP, UDP
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.openai import GREEDY
from nixwulf.plugins.runtime.run import RunFailure

_SHARDING = {"single": "Pipeline", "pipeline": "Pipeline", "tensor": "Tensor"}
_META = {None: "MlxRing", "tcp": "MlxRing", "rdma": "MlxJaccl"}
# exo's defaults where it has one: what nodes exchange over TCP, and how they find each other over
# UDP (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/main.py). v1.0.71 takes any free TCP
# port, which no firewall rule can name, and finds nodes by mDNS.
PEER_PORT, _DISCOVERY_PORT = TCP["exo"], UDP["exo"]
# Of a ring: a part's own place, and that of a part that is no neighbour
# (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/master/placement_utils.py).
_NO_HOSTS = ("0.0.0.0", "198.51.100.1")  # noqa: S104 - nothing listens by it
HELP = '"$1" --help 2>&1 || true'
NAMESPACE = "EXO_LIBP2P_NAMESPACE"


@dataclass(frozen=True)
class ExoRequest:
    """A request, its body as JSON."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Instance:
    """A placed model: its ids, and that of its part on each node."""

    id: str
    model: str
    runners: Mapping[str, str]


NODES = ExoRequest("GET", "/state/topology/nodes")
INSTANCES = ExoRequest("GET", "/state/instances")
RUNNERS = ExoRequest("GET", "/state/runners")
DOWNLOADS = ExoRequest("GET", "/state/downloads")
NETWORKS = ExoRequest("GET", "/state/nodeNetwork")
# Paths below /state came with commit c6c5a3e.
TOO_OLD = (
    f"exo has no {NODES.method} {NODES.path}, which v1.0.70 and later have; install v1.0.71, or "
    "commit 09f9ea3 or a later one, on all nodes."
)


def previews(model: str) -> ExoRequest:
    """What placements are possible."""
    return ExoRequest("GET", "/instance/previews", query={"model_id": model})


def placement(model: str, parallelism: str | None, transport: str | None, nodes: int) -> ExoRequest:
    """The request that places a model.

    parallelism: "single", "pipeline" or "tensor". transport: "tcp" or "rdma"; None on one node.
    """
    body = {"model_id": model, **_split(parallelism, transport, nodes)}
    return ExoRequest("POST", "/place_instance", body)


def greedy(model: str, seed: int, count: int) -> ExoRequest:
    """A chat whose answer has as many tokens as counted, with their texts."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": GREEDY}],
        "max_tokens": count,
        "temperature": 0,
        "seed": seed,
        "logprobs": True,
        "stream": False,
    }
    return ExoRequest("POST", "/v1/chat/completions", body)


def deletion(instance: str) -> ExoRequest:
    """Take a model off the nodes."""
    return ExoRequest("DELETE", f"/instance/{instance}")


def require_placement(model: str, case: Case, answer: Any) -> Mapping[str, Any]:
    """The instance of the preview that a case asks for.

    Raises RunFailure: there is no such preview, with exo's reason where it gives one.
    """
    wanted = _split(case.parallelism, case.transport, case.nodes)
    reason = ""
    try:
        for preview in answer["previews"]:
            if all(preview[key] == wanted[key] for key in ("sharding", "instance_meta")):
                placed = preview.get("instance")
                if placed and len(_read(placed).runners) == case.nodes:
                    return dict(placed)
                reason = preview.get("error") or reason
    except (KeyError, TypeError, AttributeError, StopIteration):
        problem = f"exo previewed no placements: {cut(str(answer), 200)}."
        raise RunFailure(problem) from None
    how = f"{wanted['sharding']}, {wanted['instance_meta']} on {case.nodes} nodes"
    reason = reason or "it offers no such placement"
    raise RunFailure(f"exo cannot place {model!r} as {how}: {reason}.")


def creation(
    previewed: Mapping[str, Any],
    answer: Any,
    known: Mapping[str, str],
    meets: Callable[[str, str], str],
) -> ExoRequest:
    """The request that makes a previewed ring with the driver's addresses in place of exo's.

    Args:
        answer: of NETWORKS.
        known: the names of the cluster's nodes by each of their addresses.
        meets: the address at which the first of two nodes reaches the second.

    Raises RunFailure: a node of exo has no address that the cluster file has.
    """
    kind, inner = next(iter(previewed.items()))
    names: dict[str, str] = {}
    for node in inner["hostsByNode"]:
        faces = answer.get(node, {}).get("interfaces", ())
        name = next((known[one["ipAddress"]] for one in faces if one["ipAddress"] in known), None)
        if name is None:
            reason = (
                f"exo's node {node!r} has no address of the cluster file: {cut(str(faces), 200)}."
            )
            raise RunFailure(reason)
        names[node] = name
    # A part's own place in its list is its rank.
    ranks = {[one["ip"] for one in ring].index(_NO_HOSTS[0]): names[node]
             for node, ring in inner["hostsByNode"].items()}  # fmt: skip
    hosts = {
        node: [
            one if one["ip"] in _NO_HOSTS else {**one, "ip": meets(names[node], ranks[rank])}
            for rank, one in enumerate(ring)
        ]
        for node, ring in inner["hostsByNode"].items()
    }
    return ExoRequest("POST", "/instance", {"instance": {kind: {**inner, "hostsByNode": hosts}}})


def placed_instance(model: str, before: Collection[str], answer: Any) -> Instance:
    """The instance of a model that is new among the instances of exo.

    Raises RunFailure: there is none.
    """
    try:
        for id_, instance in answer.items():
            found = _read(instance)
            if id_ not in before and found.model == model:
                return found
    except (KeyError, TypeError, AttributeError, StopIteration):
        problem = f"exo listed no instances: {cut(str(answer), 200)}."
        raise RunFailure(problem) from None
    reason = f"exo took the request to place {model!r} and did not place it; read the head's log."
    raise RunFailure(reason)


def download_problem(instance: Instance, answer: Any) -> str | None:
    """Why a node cannot have the files of an instance's model, or None."""
    for node in instance.runners:
        for status in answer.get(node, ()):
            if not (failed := status.get("DownloadFailed")):
                continue
            (shard,) = failed["shardMetadata"].values()  # its kind is the one key around it
            if shard["modelCard"]["modelId"] == instance.model:
                folder = failed.get("modelDirectory")
                return (
                    f"exo lacks the model on a node: {failed['errorMessage']}; put its files, or a "
                    f"link to their folder, at {folder!r} there."
                )
    return None


def states(instance: Instance, answer: Any) -> str:
    """The states of an instance's parts, in words."""
    known = (answer.get(runner) or {"unknown": None} for runner in instance.runners.values())
    return ", ".join(next(iter(state)) for state in known)


def is_ready(instance: Instance, answer: Any) -> bool:
    """Whether all parts of an instance are loaded; raises RunFailure when one has failed."""
    states = [answer.get(runner, {}) for runner in instance.runners.values()]
    for state in states:
        if "RunnerFailed" in state:
            failed = state["RunnerFailed"]
            causes = [cause["message"] for kind in failed.get("diagnostics", ())
                      for cause in kind.values()]  # fmt: skip
            words = "; ".join([failed.get("errorMessage") or "it gives no reason", *causes])
            raise RunFailure(f"A part of the model failed on a node of exo: {words}.")
    return all("RunnerReady" in state or "RunnerRunning" in state for state in states)


def tokens(answer: Any) -> list[str]:
    """The texts of a chat's tokens; raises RunFailure."""
    try:
        return [str(part["token"]) for part in answer["choices"][0]["logprobs"]["content"]]
    except (KeyError, IndexError, TypeError):
        raise RunFailure(f"exo answered no tokens: {cut(str(answer), 200)}.") from None


def _split(parallelism: str | None, transport: str | None, nodes: int) -> dict[str, Any]:
    return {
        "sharding": _SHARDING[parallelism or ""],
        "instance_meta": _META[transport],
        "min_nodes": nodes,
    }


def _read(instance: Mapping[str, Any]) -> Instance:
    """An instance; its kind is the one key around it."""
    inner = next(iter(instance.values()))
    shards = inner["shardAssignments"]
    return Instance(str(inner["instanceId"]), shards["modelId"], shards["nodeToRunner"])


@dataclass(frozen=True)
class Network:
    """What a node is started with for one of the two."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def network(texts: Mapping[str, str], namespace: str) -> Network:
    """The network that the nodes have in common, alone in a namespace.

    texts: what `exo --help` prints, by the name of the node. Raises RunFailure unsupported where
    there is none, or where the nodes have different releases.
    """
    offered = {node: frozenset(re.findall(r"--[a-z][\w-]+", text)) for node, text in texts.items()}
    first, flags = next(iter(offered.items()))
    for node, others in offered.items():
        # Messages of two releases need not fit: exo refuses fields that it does not know.
        if others != flags:
            differs = sorted(flags ^ others)[0]
            having, lacking = (first, node) if differs in flags else (node, first)
            raise RunFailure(
                f"'exo --help' has {differs!r} on node {having!r} and not on node {lacking!r}: "
                "different releases of exo, of which all may say 0.3.70, do not meet; install one "
                "commit on all nodes.",
                "unsupported",
            )
    if {"--namespace", "--zenoh-port", "--discovery-port"} <= flags:
        ports = ("--zenoh-port", str(PEER_PORT), "--discovery-port", str(_DISCOVERY_PORT))
        return Network(("--namespace", namespace, *ports), {})
    if "--libp2p-port" in flags:
        return Network(("--libp2p-port", str(PEER_PORT)), {NAMESPACE: namespace})
    last = texts[first].strip().rpartition("\n")[2]
    raise RunFailure(
        f"'exo --help' on node {first!r} has neither '--zenoh-port' nor '--libp2p-port', and ends "
        f"with {cut(last, 200)!r}; install v1.0.71, or commit 09f9ea3 or a later one.",
        "unsupported",
    )
