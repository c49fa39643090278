"""Servers that go on for the rest of a run, because a large model takes minutes to load."""

from __future__ import annotations

from nixwulf.inventory.platforms import load_platform
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.runtime.run import Run


def is_named(process: OwnedProcess, run: Run, name: str) -> bool:
    """Whether a process of a run was started under a name, or one that begins with it and '-'."""
    return process.unit.startswith(f"nixwulf-{run.raw.name}-{name}-")


def running(run: Run, name: str) -> OwnedProcess | None:
    """The first process of a name that goes on: the server, where the head is asked."""
    found = (p for p in run.owned if p.running and is_named(p, run, name))
    return next((p for p in found if p.node == run.head.node.name), None)


def stop(run: Run, prefix: str) -> None:
    """Stop all that were started under names that begin so, the last started first."""
    for process in reversed(run.owned):
        if is_named(process, run, prefix):
            process.stop()


def gpu_memory(run: Run, node: Connection, usual: float) -> float:
    """The share of the GPU's memory that a server takes: the sweep's, at most the platform's.

    Args:
        run: of the case, whose parameter gpu_memory_percent is what the sweep asks for, 0: nothing.
        node: where it runs.
        usual: the share where neither says more.
    """
    fact = load_platform(node.node.platform).get("gpu_memory_fraction", {"value": usual})
    most = min(usual, float(fact["value"]))
    wanted = run.case.parameters["gpu_memory_percent"] / 100
    return min(most, wanted) if wanted else most
