"""compare_eth_vs_rdma.sh: round trip and bandwidth of each path between two nodes.

https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/tree/main/rdma_cluster
"""

from __future__ import annotations

import re

from nixwulf.core.metric import Metric
from nixwulf.outputs import PAIR, Found, ParseError, Tool
from nixwulf.outputs.forms import NUMBER, last_words

_HEAD = re.compile(r"\s*Path\s+Latency\s+Bandwidth\s*")
_ROW = re.compile(
    rf"\s*(?P<path>\S.{{0,80}}?)\s{{2,}}(?P<time>{NUMBER}) (?P<unit>us|ms)\s+"
    rf"(?P<gbps>{NUMBER}) Gbps\s*"
)
_MICROSECONDS = {"us": 1.0, "ms": 1000.0}
# By the programs that it runs: perftest for RDMA, else ping and iperf3.
_NAMES = {"rdma": ("rdma_latency", "rdma_bandwidth"), "tcp": ("ping_round_trip", "bandwidth")}


def recognises(text: str) -> bool:
    """The head of its table."""
    return any(_HEAD.fullmatch(line) for line in text.splitlines())


def read(text: str) -> list[Found]:
    """A case a path; a row without both numbers is refused: a tool in it failed."""
    found, began = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if _HEAD.fullmatch(line):
            began = True
        elif began and line.strip(" -"):
            row = _ROW.fullmatch(line)
            if row is None:
                raise ParseError(
                    f"compare_eth_vs_rdma, line {number}: {line.strip()[:60]!r}, expected a path, "
                    "a latency in us or ms and a bandwidth in Gbps."
                )
            found.append(_case(row))
    if not found:
        raise ParseError(
            f"compare_eth_vs_rdma: no path in {len(text.splitlines())} lines, expected a table of "
            f"Path, Latency and Bandwidth{last_words(text)}"
        )
    return found


TOOL = Tool(
    "compare_eth_vs_rdma",
    recognises,
    read,
    heads=re.compile(r"^[ \t]*Path[ \t]+Latency[ \t]+Bandwidth", re.MULTILINE),
    results=re.compile(r"^.* (?:us|ms) .*Gbps[ \t]*$", re.MULTILINE),
)


def _case(row: re.Match[str]) -> Found:
    transport = "rdma" if row["path"].startswith("RDMA") else "tcp"
    latency, bandwidth = _NAMES[transport]
    return Found(
        "compare_eth_vs_rdma",
        [
            Metric(latency, "us", value=float(row["time"]) * _MICROSECONDS[row["unit"]]),
            Metric(bandwidth, "Gbit/s", value=float(row["gbps"])),
        ],
        machines=True,
        nodes=PAIR,
        fabric=row["path"],
        transport=transport,
    )
