"""compare_eth_vs_rdma.sh: round trip and bandwidth of each path between two nodes.

https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/tree/main/rdma_cluster
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nixwulf.outputs import ParseError
from nixwulf.outputs.last_words import last_words
from nixwulf.outputs.pipe_table import NUMBER

_HEAD = re.compile(r"\s*Path\s+Latency\s+Bandwidth\s*")
_ROW = re.compile(rf"\s*(\S.{{0,80}}?)\s{{2,}}({NUMBER}) (us|ms)\s+({NUMBER}) Gbps\s*")
_MICROSECONDS = {"us": 1.0, "ms": 1000.0}


@dataclass(frozen=True)
class Path:
    """A path: latency in microseconds, as ping or perftest gave it, and Gbit/s."""

    name: str
    latency_us: float
    gbps: float


def parse(text: str) -> tuple[Path, ...]:
    """The paths; at least one. A row without both numbers is refused: a tool in it failed."""
    paths, began = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if _HEAD.fullmatch(line):
            began = True
        elif began and line.strip(" -"):
            found = _ROW.fullmatch(line)
            if found is None:
                raise ParseError(
                    f"compare_eth_vs_rdma, line {number}: {line.strip()[:60]!r}, expected a path, "
                    "a latency in us or ms and a bandwidth in Gbps."
                )
            latency = float(found[2]) * _MICROSECONDS[found[3]]
            paths.append(Path(found[1], latency, float(found[4])))
    if not paths:
        raise ParseError(
            f"compare_eth_vs_rdma: no path in {len(text.splitlines())} lines, expected a table of "
            f"Path, Latency and Bandwidth{last_words(text)}"
        )
    return tuple(paths)


def recognises(text: str) -> bool:
    """The head of its table."""
    return any(_HEAD.fullmatch(line) for line in text.splitlines())
