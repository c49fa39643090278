"""Rebooting and shutting down: all nodes asked for at the same moment, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from nixwulf.core.errors import NixwulfError
from nixwulf.nodes.ssh import Connection, each
from nixwulf.ops.recover.state import NodeState, run_script, state, states

POLL_S = 2.0
Report = Callable[[str, str], None]


def reboot(nodes: Sequence[Connection], deadline_s: float, report: Report) -> dict[str, str]:
    """Reboot nodes and wait until each answers from another boot; why not, by node."""
    return _down(nodes, "reboot", deadline_s, report)


def shut_down(nodes: Sequence[Connection], deadline_s: float, report: Report) -> dict[str, str]:
    """Shut nodes down and wait until none answers; why not, by node."""
    return _down(nodes, "poweroff", deadline_s, report)


def await_boot(node: Connection, before: str, until: float) -> NodeState | None:
    """The state of a node once it answers from another boot than before; None at the deadline."""
    while time.monotonic() < until:
        found = state(node)
        if found.error is None and found.boot != before:
            return found
        time.sleep(POLL_S)
    return None


def _down(
    nodes: Sequence[Connection], action: str, deadline_s: float, report: Report
) -> dict[str, str]:
    until = time.monotonic() + deadline_s
    before = {found.name: found for found in states(nodes)}
    silent = {name: found.error for name, found in before.items() if found.error is not None}
    if silent:
        # Nodes that are linked go down together or not at all, so nothing is done to any.
        return {
            name: silent.get(name) or f"nothing was done, because {', '.join(silent)} is silent"
            for name in before
        }

    def one(node: Connection) -> str | None:
        name = node.node.name
        try:
            run_script(node, action)
        except NixwulfError as error:
            return error.message
        report(name, "goes down")
        if action == "poweroff":
            return _await_silence(node, until)
        if await_boot(node, before[name].boot, until) is None:
            return f"it is not back after {deadline_s:g} s"
        report(name, "is back")
        return None

    failures = each(one, nodes)
    return {node.node.name: words for node, words in zip(nodes, failures, strict=True) if words}


def _await_silence(node: Connection, until: float) -> str | None:
    while time.monotonic() < until:
        if state(node).error is not None:
            return None
        time.sleep(POLL_S)
    return "it still answers"
