"""Which nodes go down together."""

from __future__ import annotations

from collections.abc import Iterable

from nixwulf.inventory.cluster import Cluster

_PAIRED = "usb4-rdma"


def groups(cluster: Cluster, names: Iterable[str]) -> list[tuple[str, ...]]:
    """The nodes of these names, and with each those that have to go down when it does.

    Both hosts of a USB4 RDMA link have to: rebooting one after the other wedges the link
    (https://github.com/hellas-ai/thunderbolt-ibverbs). Each node is in one group, in the cluster's
    order.
    """
    neighbours: dict[str, set[str]] = {node.name: {node.name} for node in cluster.nodes}
    for fabric in cluster.fabrics.values():
        if fabric.kind == _PAIRED:
            linked = {node.name for node in cluster.nodes_on(fabric.name)}
            for name in linked:
                neighbours[name] |= linked
    found: list[tuple[str, ...]] = []
    left = dict.fromkeys(names)
    while left:
        group, new = set[str](), {next(iter(left))}
        while new:
            group |= new
            new = set[str]().union(*(neighbours[name] for name in new)) - group
        found.append(tuple(node.name for node in cluster.nodes if node.name in group))
        left = {name: None for name in left if name not in group}
    return found
