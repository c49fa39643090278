"""What a lab accepts: names, clusters and shapes; each refusal is one InputError."""

from __future__ import annotations

import re

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Cluster, Shape
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE

PERCENT = 100
NODES_MINIMUM, NODES_MAXIMUM = 2, 16
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
DELAY_MAXIMUM_US = 1_000_000
RATE_MINIMUM_GBPS, RATE_MAXIMUM_GBPS = 0.001, 1000
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


def check_cluster(cluster: Cluster) -> None:
    """Raise InputError for a cluster that a lab cannot be."""
    if not cluster.is_lab:
        raise InputError(
            f"{cluster.source}: its nodes are machines, not a lab's; give a cluster with a [lab] "
            "table, or none: nixwulf lab up"
        )
    check_count(len(cluster.nodes), cluster.source)
    for node in cluster.nodes:
        interfaces = [attachment.interface for attachment in node.fabrics.values()]
        for interface in interfaces:
            if not INTERFACE.fullmatch(interface) or interface in ("lo", MANAGEMENT_INTERFACE):
                raise InputError(
                    f"{cluster.source}: a lab cannot make the interface {interface!r} of node "
                    f"{node.name!r}; use another name, for example 'eth0'."
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


def check_count(nodes: int, source: str) -> None:
    """Raise InputError for a number of nodes that a lab does not have."""
    if not NODES_MINIMUM <= nodes <= NODES_MAXIMUM:
        raise InputError(
            f"{source}: a lab has {NODES_MINIMUM} to {NODES_MAXIMUM} nodes, not {nodes}; give "
            "another number with --nodes."
        )


def check_shape(fabric: str, shape: Shape) -> None:
    """Raise InputError for a shape that no link can have."""
    rate = RATE_MAXIMUM_GBPS if shape.rate_gbps is None else shape.rate_gbps
    if not 0 <= shape.delay_us <= DELAY_MAXIMUM_US:
        raise InputError(
            f"The delay of {fabric!r} is {shape.delay_us:g} us, expected 0 to "
            f"{DELAY_MAXIMUM_US} us."
        )
    if not RATE_MINIMUM_GBPS <= rate <= RATE_MAXIMUM_GBPS:
        raise InputError(
            f"The rate of {fabric!r} is {rate:g} Gbit/s, expected {RATE_MINIMUM_GBPS} to "
            f"{RATE_MAXIMUM_GBPS} Gbit/s."
        )
    if not 0 <= shape.loss_percent <= PERCENT:
        raise InputError(
            f"The loss of {fabric!r} is {shape.loss_percent:g} percent, expected 0 to 100."
        )
