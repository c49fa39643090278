"""Gate: the programs that a case starts are on the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.link import PROGRAMS
from nixwulf.plugins.gates import MACOS, Gate, GateContext, Verdict, refused


def _concerns(subject: GateContext, node: Node) -> bool:
    return subject.is_case or bool(subject.crossings_of(node))


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    programs = subject.facts[node.name].programs
    # zsh reads no other file for what ssh starts.
    mac = subject.facts[node.name].system == MACOS
    seen = " (ssh sees the PATH of ~/.zshenv)" if mac else ""
    lacking = subject.engine.missing(programs) if subject.engine else None
    if subject.engine and lacking:
        yield refused(
            f"Node {node.name!r} lacks {lacking} on PATH{seen}; deploy it or install "
            f"{subject.engine.name}."
        )
    lacking = subject.benchmark.missing(programs) if subject.benchmark else None
    if lacking:
        yield refused(f"Node {node.name!r} lacks {lacking}{seen}.")
    for name in PROGRAMS if subject.crossings_of(node) else ():
        if name not in programs:
            yield refused(
                f"Node {node.name!r} lacks {name!r} on PATH{seen}, which measures the link; "
                "deploy it or install it."
            )


GATE = Gate(
    name="programs",
    holds="the engine's, the benchmark's and the link's programs are on PATH",
    reads="`command -v`",
    fix="deploy the node, or install them",
    concerns=_concerns,
    judge=_judge,
    systems=None,
)
