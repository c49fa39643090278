"""Verifying: a node answers under its name, runs the flake's system, and is on its fabrics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.inventory.fabric_kinds import MAC_RDMA_KINDS
from nixwulf.nodes.facts import Facts, gather
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.deploy.machine import Machine, gather_machines
from nixwulf.plugins.gates.fabric import fabric_problem

_PAUSE_S = 2.0
_SETTLING_S = 30  # sshd may answer before every fabric has its address


@dataclass(frozen=True)
class Verified:
    """What a node was found to be, and what is wrong with it; nothing is when it is verified."""

    node: Node
    machine: Machine | None
    problems: tuple[str, ...]


def verify(
    cluster: Cluster,
    connections: Sequence[Connection],
    expected_paths: Mapping[str, str],
    wait_s: float,
) -> list[Verified]:
    """Verify nodes in parallel over new connections.

    Args:
        expected_paths: by node the store path of its system, where it is known.
        wait_s: seconds that a node that restarts may take until it answers as itself.
    """
    fresh = [connection.fresh() for connection in connections]
    deadline = time.monotonic() + wait_s
    machines = _wait(fresh, deadline)
    deadline = min(deadline, time.monotonic() + _SETTLING_S)
    while True:
        found = [
            _look(cluster, connection, machines[connection.node.name], expected_paths)
            for connection in fresh
        ]
        if not any(one.problems for one in found) or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE_S)
        machines = gather_machines(fresh)


def _look(
    cluster: Cluster,
    connection: Connection,
    machine: Machine | NixwulfError,
    expected_paths: Mapping[str, str],
) -> Verified:
    node = connection.node
    if not isinstance(machine, Machine):
        return Verified(node, None, (machine.message,))
    problems = machine_problems(node, machine, expected_paths.get(node.name))
    if not problems and machine.kernel == "Linux":
        problems = _fabric_problems(cluster, connection)
    if machine.kernel == "Darwin":
        problems += _rdma_problems(cluster, node, machine)
    return Verified(node, machine, tuple(problems))


def machine_problems(node: Node, machine: Machine, expected_path: str | None) -> list[str]:
    """What is wrong with the machine that answers; a wrong one is not asked for more.

    Args:
        expected_path: the store path of the node's system, where it is known.
    """
    name = node.name
    if machine.installer:
        return [
            f"Node {name!r} is in an installer ({machine.hostname!r}); take its image out, see the "
            "boot order in its firmware, or deploy it again."
        ]
    if machine.hostname != name:
        return [
            f"Node {name!r} answers as {machine.hostname!r}; deploy it, or correct its ssh address."
        ]
    if not machine.system_path:
        return [
            f"Node {name!r} runs {machine.os or machine.kernel!r}, which Nix did not make; deploy "
            "it."
        ]
    if expected_path and machine.system_path != expected_path:
        return [
            f"Node {name!r} runs {machine.system_path!r} and the flake makes {expected_path!r}; "
            "run 'nixwulf update'."
        ]
    return []


def _wait(connections: Sequence[Connection], deadline: float) -> dict[str, Machine | NixwulfError]:
    """The machines behind connections, asked again until each answers as itself, or time is up."""
    found = gather_machines(connections)
    while time.monotonic() < deadline:
        left = [c for c in connections if not _is_itself(c.node, found[c.node.name])]
        if not left:
            break
        time.sleep(_PAUSE_S)
        found |= gather_machines(left)
    return found


def _is_itself(node: Node, machine: Machine | NixwulfError) -> bool:
    return isinstance(machine, Machine) and not machine_problems(node, machine, None)


def _fabric_problems(cluster: Cluster, connection: Connection) -> list[str]:
    node = connection.node
    try:
        facts: Facts = gather([connection], ())[node.name]
    except NixwulfError as error:
        return [error.message]
    found = (
        fabric_problem(node, cluster.fabrics[name], end, facts)
        for name in node.fabric_names
        for end in node.ends(name)
    )
    return [problem for problem in found if problem]


def _rdma_problems(cluster: Cluster, node: Node, machine: Machine) -> list[str]:
    """Apple TN3205: RDMA is enabled in macOS Recovery only, and then ibv_devices lists rdma_en*."""
    kinds = {cluster.fabrics[name].kind for name in node.fabric_names}
    if machine.rdma_devices or not kinds & MAC_RDMA_KINDS:
        return []
    return [
        f"Node {node.name!r} has no RDMA device; run 'rdma_ctl enable' in macOS Recovery there, "
        "and see that it has macOS 26.2 or later and Thunderbolt 5."
    ]
