"""Which RDMA device leads from each node to each other: what MLX's jaccl backend wants to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.cluster import RDMA_KINDS, Cluster, Node
from nixwulf.run import RunFailure

_KIND = "thunderbolt5-rdma"


def rdma_problem(point: Mapping[str, Any]) -> str | None:
    """Why a point of a sweep cannot cross its fabric by jaccl, or none.

    MLX has it on macOS only (https://ml-explore.github.io/mlx/build/html/usage/distributed.html).
    """
    kind = point.get("fabric_kind")
    if point.get("transport") != "rdma" or kind in {None, _KIND}:
        return None
    return f"jaccl, MLX's RDMA, crosses {_KIND} between Macs, not {kind}; take tcp"


def device_matrix(cluster: Cluster, nodes: Sequence[Node], fabric: str) -> list[list[str | None]]:
    """For each node a row with the device towards each node, none towards itself.

    A pair's device is that of the case's fabric where both nodes have one on it, else of a fabric
    that carries RDMA between the two: a Thunderbolt cable between two Macs is a fabric of its own.
    Raises RunFailure `unsupported` for a pair without one: jaccl has no hops.
    """
    ordered = sorted(cluster.fabrics, key=lambda name: name != fabric)
    shared = [name for name in ordered if cluster.fabrics[name].kind in RDMA_KINDS]
    return [
        [None if one is other else _device(one, other, shared) for other in nodes] for one in nodes
    ]


def _device(one: Node, other: Node, fabrics: Sequence[str]) -> str:
    for name in fabrics:
        ends = [node.fabrics[name].rdma_device for node in (one, other) if name in node.fabrics]
        if len(ends) > 1 and all(ends):
            return str(ends[0])
    raise RunFailure(
        "unsupported",
        f"Nodes {one.name!r} and {other.name!r} share no fabric on which both have an rdma_device: "
        "jaccl needs a link between each two nodes; cable them, or take fewer nodes.",
    )
