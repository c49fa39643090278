"""Holding all gates against nodes: by facts first, then by one more round trip where needed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.ssh import Connection, Unreachable, each
from nixwulf.plugins.gates import Gate, GateContext, GateResult, all_gates, result_of

_MARK = "nixwulf-gate:"
_LIMIT_S = 60


def examine(
    subject: GateContext,
    connections: Mapping[str, Connection],
    waived: Sequence[str],
    gates: Iterable[Gate] | None = None,
) -> list[GateResult]:
    """What every gate says of every node, by gate and then by node.

    Commands are run only where the facts alone refuse nothing that is not waived: a node without
    an address has no path to probe.
    """
    chosen = list(all_gates().values() if gates is None else gates)
    commands = {
        (gate.name, node.name): command
        for gate in chosen
        for node in subject.nodes
        if _answerable(gate, subject, node) and (command := gate.command(subject, node))
    }
    results = {
        (gate.name, node.name): result_of(gate, subject, node, waived)
        for gate in chosen
        for node in subject.nodes
        if (gate.name, node.name) not in commands
    }
    refusal = next((r for r in results.values() if r.state == "refused"), None)
    if refusal is None and commands:
        before = time.time()
        answers = _ask(subject, connections, commands)
        subject = replace(subject, answers=answers, asked=(before, time.time()))
    for gate in chosen:
        for node in subject.nodes:
            if (gate.name, node.name) in commands:
                results[gate.name, node.name] = (
                    result_of(gate, subject, node, waived)
                    if refusal is None
                    else GateResult(
                        gate.name,
                        node.name,
                        "unknown",
                        (f"Not asked, because gate {refusal.gate!r} refuses {refusal.node!r}.",),
                    )
                )
    return [results[gate.name, node.name] for gate in chosen for node in subject.nodes]


def _answerable(gate: Gate, subject: GateContext, node: Node) -> bool:
    return gate.concerns(subject, node) and gate.reads_of(subject.facts[node.name])


def _ask(
    subject: GateContext,
    connections: Mapping[str, Connection],
    commands: Mapping[tuple[str, str], Sequence[str]],
) -> dict[str, dict[str, str]]:
    """What the commands print, by gate and node; each node runs all of its own in one script."""

    def ask(node: Node) -> dict[str, str]:
        script = "".join(
            f"echo {_MARK}{gate}; {shlex.join(command)} 2>&1 </dev/null; echo\n"
            for (gate, name), command in commands.items()
            if name == node.name
        )
        if not script:
            return {}
        try:
            done = connections[node.name].run(["sh", "-c", script], timeout_s=_LIMIT_S)
        except Unreachable as error:
            return {gate: error.message for gate, name in commands if name == node.name}
        parts = f"\n{done.stdout}".split(f"\n{_MARK}")[1:]
        return {gate: text.strip() for gate, _, text in (part.partition("\n") for part in parts)}

    answers: dict[str, dict[str, str]] = {}
    for node, by_gate in zip(subject.nodes, each(ask, subject.nodes), strict=True):
        for gate, text in by_gate.items():
            answers.setdefault(gate, {})[node.name] = text
    return answers
