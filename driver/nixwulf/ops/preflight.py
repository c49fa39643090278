"""Preflight: all gates that need no case, on all nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core.document import Table, plain_table
from nixwulf.inventory.cluster import Cluster
from nixwulf.nodes import link
from nixwulf.nodes.facts import Facts, gather_each
from nixwulf.nodes.ssh import Connection, open_all
from nixwulf.plugins import engines
from nixwulf.plugins.gates import (
    Gate,
    GateResult,
    GateState,
    all_gates,
    context_of_cluster,
    examine,
)

SCHEMA_VERSION = "1.0"
REACHED = "ssh"
WORDS: Mapping[GateState, str] = {
    "ok": "ok",
    "refused": "REFUSED",
    "waived": "waived",
    "unknown": "?",
    "not applicable": "-",
}


@dataclass(frozen=True)
class Preflight:
    """The result of every gate on every node; of a silent node only that of 'ssh'."""

    cluster: Cluster
    results: tuple[GateResult, ...]

    def of(self, state: GateState) -> list[GateResult]:
        """The results of a state."""
        return [result for result in self.results if result.state == state]

    def document(self) -> dict[str, Any]:
        """As preflight prints it in JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "cluster": self.cluster.name,
            "passed": not self.of("refused"),
            "results": [result.document() for result in self.results],
        }


def preflight(
    cluster: Cluster,
    connections: Mapping[str, Connection],
    waived: Sequence[str] = (),
    gates: Sequence[str] | None = None,
) -> Preflight:
    """Hold gates, all or those named, against the nodes that answer."""
    failures = open_all(connections.values())
    reached = {name: node for name, node in connections.items() if name not in failures}
    asked = gather_each(reached.values(), programs())
    facts = {name: one for name, one in asked.items() if isinstance(one, Facts)}
    failures |= {name: one.message for name, one in asked.items() if not isinstance(one, Facts)}
    results = [
        GateResult(REACHED, name, "refused", (failures[name],))
        if name in failures
        else GateResult(REACHED, name, "ok")
        for name in connections
    ]
    chosen: list[Gate] = [g for g in all_gates().values() if gates is None or g.name in gates]
    context = context_of_cluster(cluster, facts)
    results += examine(context, reached, waived, chosen)
    return Preflight(cluster, tuple(results))


def programs() -> tuple[str, ...]:
    """What is looked for on the PATH of nodes: the link's programs and those of all engines."""
    of_engines = (name for engine in engines.all_engines().values() for name in engine.programs)
    return tuple(dict.fromkeys([*link.PROGRAMS, *of_engines]))


def table_of(found: Preflight) -> str:
    """A row a gate, a column a node."""
    names = list(dict.fromkeys(result.node for result in found.results))
    by_gate: dict[str, dict[str, str]] = {}
    for result in found.results:
        by_gate.setdefault(result.gate, {})[result.node] = WORDS[result.state]
    rows = [[gate, *(cells.get(name, "") for name in names)] for gate, cells in by_gate.items()]
    return plain_table(Table(("gate", *names), rows))
