"""What a lab accepts: names, clusters and shapes; each refusal is one InputError."""

from __future__ import annotations

import re

from nixwulf.cluster import Cluster, Shape
from nixwulf.errors import InputError
from nixwulf.lab.links import MANAGEMENT_INTERFACE

NODES_MINIMUM, NODES_MAXIMUM = 2, 16
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


def check_cluster(cluster: Cluster) -> None:
    """Raise InputError for a cluster that a lab cannot be."""
    count = len(cluster.nodes)
    if not NODES_MINIMUM <= count <= NODES_MAXIMUM:
        raise InputError(
            f"{cluster.source}: a lab has {NODES_MINIMUM} to {NODES_MAXIMUM} nodes, not {count}; "
            "give another number with --nodes."
        )
    for node in cluster.nodes:
        interfaces = [attachment.interface for attachment in node.fabrics.values()]
        for interface in interfaces:
            if not INTERFACE.fullmatch(interface) or interface in ("lo", MANAGEMENT_INTERFACE):
                raise InputError(
                    f"{cluster.source}: the interface {interface!r} of node {node.name!r} cannot be "
                    "made in a lab; use another name, for example 'eth0'."
                )
            if interfaces.count(interface) > 1:
                raise InputError(
                    f"{cluster.source}: node {node.name!r} has the interface {interface!r} on two "
                    "fabrics; in a lab each fabric needs its own, for example 'eth1'."
                )
    for fabric in cluster.fabrics.values():
        check_shape(fabric.name, fabric.shape or Shape())


def check_name(name: str) -> None:
    """Raise InputError for a lab's name that is not a plain short word."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"The lab name {name!r} is not 1 to 32 letters a-z, digits and inner hyphens; "
            "use for example: --name lab"
        )


def check_shape(fabric: str, shape: Shape) -> None:
    """Raise InputError for a shape that no link can have."""
    if not 0 <= shape.delay_us <= 10_000_000:
        raise InputError(f"The delay of {fabric!r} is {shape.delay_us:g} us, expected 0 to 1e7 us.")
    if shape.rate_gbps is not None and not 0.001 <= shape.rate_gbps <= 1000:
        raise InputError(
            f"The rate of {fabric!r} is {shape.rate_gbps:g} Gbit/s, expected 0.001 to 1000 Gbit/s."
        )
    if not 0 <= shape.loss_percent <= 100:
        raise InputError(
            f"The loss of {fabric!r} is {shape.loss_percent:g} percent, expected 0 to 100."
        )
