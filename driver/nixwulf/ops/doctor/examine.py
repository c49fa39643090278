"""The examination of machines: read once, judged by checks and gates, and told on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nixwulf.core.errors import NixwulfError
from nixwulf.core.query import grouped
from nixwulf.core.text import plural, some
from nixwulf.inventory import platforms
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.nodes import macos
from nixwulf.nodes.facts import NodeReading, gather_readings
from nixwulf.nodes.ssh import Connection, open_all
from nixwulf.ops.doctor.findings import Finding, State, Subject, faults, judge
from nixwulf.ops.doctor.load import load_links, load_machines
from nixwulf.ops.doctor.machine import CHECKS
from nixwulf.ops.preflight import REACHED, programs
from nixwulf.ops.survey.machines import pci_cards, vram_gib
from nixwulf.plugins.gates import GateContext, all_gates, context_of_cluster, examine

_GATES = "docs/reference/gates.md"
_ORDER: tuple[State, ...] = ("wrong", "warning", "unknown")
_STATES: Mapping[str, State] = {"ok": "ok", "refused": "wrong", "unknown": "unknown"}


@dataclass(frozen=True)
class Examination:
    """The findings of all machines; of one that does not answer only that of 'ssh'."""

    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]

    def of(self, state: State) -> list[Finding]:
        """The findings of a state."""
        return [one for one in self.findings if one.state == state]

    def document(self) -> dict[str, object]:
        """Return doctor's JSON."""
        return {
            "passed": not self.of("wrong"),
            "nodes": list(self.nodes),
            "findings": [one.document() for one in self.findings],
        }


def doctor(
    connections: Mapping[str, Connection],
    cluster: Cluster | None,
    step: Callable[[str], None] | None = None,
) -> Examination:
    """Examine machines by one round trip each; the probes of gates are a second.

    connections: by node's name. cluster: None for hosts by name, which are on no fabric. step: told
    before each load; None: neither machines nor links are loaded.
    """
    silent = open_all(connections.values())
    reached = [one for name, one in connections.items() if name not in silent]
    readings = gather_readings(reached, programs(), faults())
    silent |= {name: one.message for name, one in readings.items() if isinstance(one, NixwulfError)}
    nodes = {name: one.node for name, one in connections.items()}
    subjects = [
        subject_of(nodes[name], reading, cluster)
        for name, reading in readings.items()
        if isinstance(reading, NodeReading)
    ]
    answered = {one.node.name: connections[one.node.name] for one in subjects}
    findings = [
        Finding(
            name,
            REACHED,
            "wrong" if name in silent else "ok",
            silent.get(name, "answers"),
            "the machine answers by ssh",
            f"see 'ssh {nodes[name].ssh}'" if name in silent else "",
            _GATES,
        )
        for name in connections
    ]
    for subject in subjects:
        findings += judge(subject, subjects, CHECKS)
    findings += _gates(subjects, answered, cluster)
    if step is not None:
        findings += load_machines(answered, subjects, step) if subjects else ()
        findings += load_links(answered, cluster, step) if cluster else ()
    return Examination(tuple(connections), tuple(findings))


def subject_of(node: Node, reading: NodeReading, cluster: Cluster | None) -> Subject:
    """Return a node's subject: a node of a cluster file with its platform and its fabrics."""
    platform = platforms.load_platform(node.platform or platform_of(reading))
    fabrics: Sequence[Fabric] = tuple(cluster.fabrics.values()) if cluster else ()
    ends = ((fabric, end) for fabric in fabrics for end in node.ends(fabric.name))
    return Subject(node, reading, platform, tuple(ends))


def platform_of(reading: NodeReading) -> str:
    """Find the platform as 'cluster new' does: by firmware, chip, or its system's generic one."""
    facts, lines = reading.facts, reading.lines
    arm = any(one.startswith("CPU implementer") for one in lines.get("/proc/cpuinfo", ()))
    linux = "aarch64-linux" if arm else "x86_64-linux"
    signs = platforms.Signs(
        "aarch64-darwin" if facts.system == macos.SYSTEM else linux,
        facts.other.get("product", ""),
        facts.cpu,
        pci=pci_cards("\n".join(lines.get("/proc/bus/pci/devices", ()))),
        targets=facts.hardware.targets,
        vram_gib=vram_gib(facts.hardware),
    )
    return platforms.platform_of(signs)[0]


def _gates(
    subjects: Sequence[Subject], connections: Mapping[str, Connection], cluster: Cluster | None
) -> list[Finding]:
    facts = {one.node.name: one.facts for one in subjects}
    if cluster is None:
        named = [replace(one.node, platform=one.platform["name"]) for one in subjects]
        context = GateContext(nodes=tuple(named), facts=facts)
    else:
        context = context_of_cluster(cluster, facts)
    gates = all_gates()
    return [
        Finding(
            result.node,
            result.gate,
            _STATES[result.state],
            sentence,
            gates[result.gate].holds,
            "" if result.state == "ok" else gates[result.gate].fix,
            _GATES,
        )
        for result in examine(context, connections, ())
        if result.state in _STATES
        for sentence in result.sentences or ("holds",)
    ]


def page(found: Examination) -> str:
    """Print what is wrong first; what nodes share is one finding, and what is ok one line."""
    lines: list[str] = []
    for state in _ORDER:
        shared = grouped(
            ((f.check, f.read.replace(repr(f.node), "NODE"), f.expected, f.mend, f.source), f.node)
            for f in found.of(state)
        )
        for (check, read, expected, mend, source), names in shared.items():
            nodes = list(dict.fromkeys(names))
            shown = read.replace("NODE", repr(nodes[0]) if len(nodes) == 1 else "of these")
            lines.append(f"{state:8} {check} on {some(nodes)}: {shown}")
            lines += [
                f"         {word}: {text}"
                for word, text in (("expected", expected), ("mend", mend), ("source", source))
                if text
            ]
    good = {one.check for one in found.of("ok")} - {
        one.check for one in found.findings if one.state != "ok"
    }
    counts = ", ".join(f"{len(found.of(state))} {state}" for state in _ORDER)
    machines = plural(len(found.nodes), "machine")
    lines += [f"ok       {', '.join(sorted(good))}"] if good else []
    lines.append(f"{machines}: {counts}, {len(found.of('ok'))} ok.")
    return "\n".join(lines)
