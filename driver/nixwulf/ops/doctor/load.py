"""A short load of a cluster's links: what each carries beside what its kind usually does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.text import amount
from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.nodes import link
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.doctor.findings import Finding, State
from nixwulf.perf.explain.rails import LEAST_SHARE, MOST_TIMES
from nixwulf.perf.inputs import fabric_facts

_SOURCE = "docs/reference/links.md"
_MEND = (
    "see cable, MTU and PCIe of both ends; where a Spark's port carries 13 Gbit/s, unplug its power"
)


def load_links(
    connections: Mapping[str, Connection], cluster: Cluster, step: Callable[[str], None]
) -> Iterator[Finding]:
    """Round trips and one TCP stream from each node to the next on each fabric, one by one.

    Args:
        connections: to the nodes that answer, by name.
        cluster: whose fabrics are measured.
        step: told before each measurement.
    """
    for fabric in cluster.fabrics.values():
        nodes = [node for node in cluster.nodes_on(fabric.name) if node.name in connections]
        for node, other in pairwise(nodes):
            end = other.end_to(fabric.name, node.name)
            if end is None:
                continue
            step(f"Loading {fabric.name!r} from {node.name!r} to {other.name!r}.")
            yield from _judged(connections[node.name], connections[other.name], fabric, end.address)


def _judged(
    ours: Connection, theirs: Connection, fabric: Fabric, address: str
) -> Iterator[Finding]:
    way = f"{fabric.name!r} to {theirs.node.name!r}"

    def finding(check: str, state: State, read: str, expected: str) -> Finding:
        mend = "" if state == "ok" else _MEND
        return Finding(ours.node.name, check, state, read, expected, mend, _SOURCE)

    try:
        usual_us, usual_gbps = _usual(fabric)
        trips = link.round_trips(ours, address)
        with tempfile.TemporaryDirectory(prefix="nixwulf-") as folder:
            gbps = link.bandwidth(ours, theirs, fabric, Path(folder)).gbps
    except NixwulfError as error:
        # Of a link far too slow the stream does not end; of some kinds nothing usual is known.
        state: State = "unknown" if isinstance(error, InputError) else "wrong"
        yield finding("link-rate", state, error.message, "a stream that ends")
        return
    slow = gbps < LEAST_SHARE * usual_gbps
    read = f"{way} carries {amount(gbps, 'Gbit/s')} in one TCP stream"
    yield finding("link-rate", "wrong" if slow else "ok", read, amount(usual_gbps, "Gbit/s"))
    if trips:
        late = trips.median > MOST_TIMES * usual_us
        read = f"a round trip over {way} takes {amount(trips.median, 'us')}"
        yield finding("link-latency", "warning" if late else "ok", read, amount(usual_us, "us"))


# What a lab's kernel adds to a round trip, and what its streams reach: on two busy cores 1.6 to 4.6
# Gbit/s were measured, so that nothing is said of one that should have 25.
_LAB_US, _LAB_GBPS = 100.0, 2.0


def _usual(fabric: Fabric) -> tuple[float, float]:
    """A round trip, us, and the rate of a stream, Gbit/s: as shaped, else as its kind has it."""
    if fabric.shape is None:
        facts = fabric_facts(fabric.kind, "tcp", fabric.speed_gbps)
        return facts.rtt_us, facts.bandwidth_gbps
    rate = fabric.shape.rate_gbps or _LAB_GBPS
    return 2 * fabric.shape.delay_us + _LAB_US, min(rate, _LAB_GBPS)
