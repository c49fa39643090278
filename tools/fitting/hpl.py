"""HPL over several nodes: what one node does, times the share of time that is not the network's."""

from __future__ import annotations

from math import isqrt, sqrt

from nixwulf.core.errors import InputError
from nixwulf.perf.inputs import FabricFacts, PlatformFacts

_MEMORY_SHARE = 0.75
_LESS = 0.9
_DOUBLE = 8


def problem_size(memory_gib: float, nodes: int) -> float:
    """N of the matrix that fills three quarters of all memory, less a tenth (top500-benchmark)."""
    return sqrt(nodes * memory_gib * 2**30 * _MEMORY_SHARE / _DOUBLE) * _LESS


def predict_hpl(platform: PlatformFacts, nodes: int, fabric: FabricFacts | None) -> float:
    """Gflop/s of that many nodes; raises InputError where a fact is missing.

    2/3 N^3 operations are shared out; on a grid of P x Q each node sends about N^2 (1/P + 1/Q)
    values of its panels (https://www.netlib.org/benchmark/hpl/scalability.html). Nothing is fitted:
    overlap of the two is left out, so a slow network is judged a little too hard.
    """
    if nodes < 1:
        raise InputError(f"HPL on {nodes} nodes; expected 1 or more.")
    if not platform.hpl_gflops:
        raise InputError(
            f"Platform {platform.name!r} has no hpl_gflops; measure one node with the hpl "
            "benchmark."
        )
    if nodes == 1:
        return platform.hpl_gflops
    if fabric is None or not platform.memory_gib:
        missing = "fabric" if fabric is None else "memory_gib"
        raise InputError(f"HPL on {nodes} nodes of {platform.name!r} needs a {missing}.")
    size = problem_size(platform.memory_gib, nodes)
    rows = max(p for p in range(1, isqrt(nodes) + 1) if nodes % p == 0)
    columns = nodes // rows
    computing = 2 / 3 * size**3 / (nodes * platform.hpl_gflops * 1e9)
    sending = _DOUBLE * size**2 * (1 / rows + 1 / columns) / (fabric.bandwidth_gbps * 1e9 / 8)
    return nodes * platform.hpl_gflops * computing / (computing + sending)
