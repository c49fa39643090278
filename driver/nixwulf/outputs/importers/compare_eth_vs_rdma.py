"""compare_eth_vs_rdma.sh: latency and bandwidth of each path between two nodes, a case a path."""

from __future__ import annotations

from nixwulf.outputs import compare_eth_vs_rdma as parser
from nixwulf.outputs.compare_eth_vs_rdma import Path
from nixwulf.outputs.importers import PAIR, Found, Tool, metric

# By the programs that it runs: perftest for RDMA, else ping and iperf3.
_NAMES = {"rdma": ("rdma_latency", "rdma_bandwidth"), "tcp": ("ping_round_trip", "bandwidth")}


def _read(text: str) -> list[Found]:
    return [_case(path) for path in parser.parse(text)]


TOOL = Tool("compare_eth_vs_rdma", parser, _read)


def _case(path: Path) -> Found:
    transport = "rdma" if path.name.startswith("RDMA") else "tcp"
    latency, bandwidth = _NAMES[transport]
    return Found(
        "compare_eth_vs_rdma",
        [
            metric(latency, "us", path.latency_us, conditions={}),
            metric(bandwidth, "Gbit/s", path.gbps, conditions={}),
        ],
        machines=True,
        nodes=PAIR,
        fabric=path.name,
        transport=transport,
    )
