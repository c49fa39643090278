"""Links: what is usual where nothing was measured, and what an exchange over one takes."""

from __future__ import annotations

from functools import cache
from importlib import resources
from math import ceil, log, log2
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import read_toml
from nixwulf.perf.inputs import FabricFacts, Strategy
from nixwulf.plugins.engines import performance

_FILE = Path(str(resources.files("nixwulf"))) / "data" / "model" / "links.toml"


def hops(strategy: Strategy, nodes: int, servers: int) -> int:
    """How often a token's state is handed over in a pipeline.

    llama.cpp's client fetches from each of its RPC servers, those it gave their share included; of
    two and four servers in the lab 1.95 and 3.95 round trips a token were counted. servers: nodes
    that the client reaches by RPC, all but one that computes beside it.
    """
    return servers if _is_rpc(strategy) else nodes - 1


def hop(strategy: Strategy, fabric: FabricFacts, size: float) -> tuple[float, float]:
    """Seconds of latency and of transfer for a hand-over of size bytes: there and back, or on."""
    trips = 1.0 if _is_rpc(strategy) else 0.5
    return trips * fabric.rtt_us / 1e6, size / _bytes_a_second(fabric)


def handled(strategy: Strategy, nodes: int, servers: int) -> float:
    """How often the host has to act for a sum of all nodes, one time after the other.

    A collective is started once. llama.cpp's client adds up in pairs, log2 N rounds, and in each it
    fetches from every server; of two and four servers in the lab 2 and 8 round trips were counted.
    """
    return log2(nodes) * servers if _is_rpc(strategy) else 1.0


def exchange(
    strategy: Strategy, nodes: int, servers: int, fabric: FabricFacts, size: float
) -> tuple[float, float]:
    """Seconds of latency and of transfer for the sum of size bytes over all nodes.

    Ring (MLX's ring): 2(N-1) messages one after the other, each of size/N
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). NCCL and RCCL: that or a
    tree, up and down its log2 N levels with all of it, whichever is faster for the size
    (https://github.com/NVIDIA/nccl/issues/754). Mesh (JACCL): everyone sends to everyone at once.
    Star (distributed-llama): the root serves one worker after the other, out and back. llama.cpp
    over RPC: all pairs through the client, in as many round trips as it handles.
    """
    one_way, rate = fabric.rtt_us / 2e6, _bytes_a_second(fabric)
    if collective(strategy) == "star":
        packed = size * 34 / 64  # Q80: 34 bytes for 32 values
        return 4 * (nodes - 1) * one_way, 2 * (nodes - 1) * packed / nodes / rate
    if _is_rpc(strategy):
        return 2 * handled(strategy, nodes, servers) * one_way, 2 * (nodes - 1) * size / rate
    if fabric.kind == "thunderbolt5-rdma":
        return one_way, size / rate
    ring = 2 * (nodes - 1) * one_way, 2 * (nodes - 1) / nodes * size / rate
    if collective(strategy) == "ring":
        return ring
    return min(ring, (2 * ceil(log2(nodes)) * one_way, 2 * size / rate), key=sum)


def collective(strategy: Strategy) -> str:
    """How nodes sum: as a library does in place of the engine, or as the engine does."""
    return "tree" if strategy.collectives else performance(strategy.engine).collective


def _is_rpc(strategy: Strategy) -> bool:
    return collective(strategy) == "rpc"


def _bytes_a_second(fabric: FabricFacts) -> float:
    return fabric.bandwidth_gbps * 1e9 / 8


@cache
def _table() -> list[dict[str, Any]]:
    links: list[dict[str, Any]] = read_toml(_FILE)["links"]
    return links


def fabric_facts(
    kind: str,
    transport: str,
    speed_gbps: float = 0.0,
    *,
    rtt_us: float | None = None,
    bandwidth_gbps: float | None = None,
) -> FabricFacts:
    """The facts of a link: measured where they are known, else usual ones of its kind.

    Args:
        kind: of the fabric, as cluster files name it: 'ethernet', 'usb4', ...
        transport: 'tcp' or 'rdma'.
        speed_gbps: nominal speed, Gbit/s; 0 where it is not known.
        rtt_us: measured round trip, microseconds; None: the usual one.
        bandwidth_gbps: measured bandwidth, Gbit/s; None: the usual one.

    Returns:
        The facts; each usual one is named in assumptions, with its source.

    Raises:
        InputError: the kind has no usual latency by that transport.
    """
    rows = [row for row in _table() if row["kind"] == kind and row["transport"] == transport]
    if not rows:
        known = sorted({f"{row['kind']} by {row['transport']}" for row in _table()})
        raise InputError(
            f"Nothing is known of {kind!r} by {transport!r}; give its latency_us and "
            f"bandwidth_gbps, or one of: {', '.join(known)}."
        )
    row = min(rows, key=lambda row: abs(log(row.get("speed_gbps", 1.0) / (speed_gbps or 1.0))))
    usual = []
    if rtt_us is None:
        rtt_us = float(row["rtt_us"])
        usual.append(f"{rtt_us:g} us a round trip")
    if bandwidth_gbps is None:
        bandwidth_gbps = float(row.get("bandwidth_gbps", 0.0))
        if row.get("share"):
            bandwidth_gbps = row["share"] * (speed_gbps or row["speed_gbps"])
        usual.append(f"{bandwidth_gbps:g} Gbit/s")
    assumptions = (f"{kind} by {transport}: {', '.join(usual)} ({row['source']})",) if usual else ()
    return FabricFacts(kind, transport, rtt_us, bandwidth_gbps, assumptions)
