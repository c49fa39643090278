"""Gate: the nodes have one build of an engine, of a version that the driver can drive."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown
from nixwulf.plugins.runtime import upstream

if TYPE_CHECKING:
    from nixwulf.plugins.engines import Engine

_STORE = "/nix/store/"
_MARK = "nixwulf-engine:"


def _concerns(context: GateContext, node: Node) -> bool:
    # Images are named by digest, and so are one build.
    return (context.case is None or context.case.image is None) and bool(_engines(context, node))


def _engines(context: GateContext, node: Node) -> list[Engine]:
    """The case's; without a case all that are on the node's PATH."""
    from nixwulf.plugins.engines import all_engines

    if context.engine is not None:
        return [] if context.engine.elsewhere else [context.engine]
    if context.case is not None:
        return []
    programs = context.facts[node.name].programs
    return [engine for engine in all_engines().values() if engine.version_command(programs)]


def _command(context: GateContext, node: Node) -> Sequence[str] | None:
    programs = context.facts[node.name].programs
    script = ""
    for engine in _engines(context, node):
        command = engine.version_command(programs)
        place = next((programs[name] for name in engine.programs if name in programs), None)
        if command and place:
            script += f"echo {shlex.quote(_MARK + engine.name)}; readlink -f {shlex.quote(place)}\n"
            script += f"{shlex.join(command)}\necho\n"
    return ["sh", "-c", script] if script else None


def _judge(context: GateContext, node: Node) -> Iterator[Verdict]:
    for engine in _engines(context, node):
        lacking = engine.missing(context.facts[node.name].programs)
        if lacking and context.engine is None:  # of a case the gate 'programs' reports it
            yield refused(
                f"Node {node.name!r} has a part of {engine.name} and lacks {lacking} on PATH; "
                f"deploy it or {context.installing(engine)}."
            )
        others = [other for other in context.nodes if engine in _engines(context, other)]
        yield from _compare(context, node, others[0], engine)
        text = _answer(context, node, engine.name)
        problem = upstream.problem(engine.name, text, _given(context))
        problem = problem or engine.build_problem(text, several=len(others) > 1)
        if problem:
            yield refused(f"Node {node.name!r} has {problem}")


def _given(context: GateContext) -> dict[str, str]:
    if context.case is None:
        return upstream.of_cluster(len(context.nodes))
    pairs = len(context.nodes) > len("ab")
    cables = pairs and any(c.rdma and c.fabric.link_prefix for c in context.crossings)
    return upstream.of_case(context.case) | ({"cables": "rdma"} if cables else {})


def _compare(context: GateContext, node: Node, first: Node, engine: Engine) -> Iterator[Verdict]:
    if node is first:
        return
    ours, theirs = (_build(context, each, engine.name) for each in (node, first))
    if not ours or not theirs:
        silent = (node if theirs else first).name
        yield unknown(f"{engine.name} prints no version on {silent!r}.")
    elif ours != theirs:
        yield refused(
            f"Node {node.name!r} has {engine.name} {ours!r} and {first.name!r} has {theirs!r}; "
            f"deploy both from one flake or {context.installing(engine)}."
        )


def _answer(context: GateContext, node: Node, engine: str) -> str:
    """What a node printed of an engine: the place of its program, then its version."""
    text = context.answer("versions", node)
    parts = (part.partition("\n") for part in f"\n{text}".split(f"\n{_MARK}")[1:])
    return next((lines.strip() for name, _, lines in parts if name == engine), "")


def _build(context: GateContext, node: Node, engine: str) -> str:
    """The version; the store path itself where every node has the same one."""
    own = _answer(context, node, engine)
    place, _, printed = own.partition("\n")
    answers = (_answer(context, other, engine) for other in context.nodes)
    if place.startswith(_STORE) and {text.partition("\n")[0] for text in answers} <= {place, ""}:
        return place
    lines = [line.strip() for line in printed.splitlines()]
    alone = len(lines) == 1 and re.search(r"\d\.\d", lines[0])
    return " ".join(line for line in lines if alone or "version" in line.lower())


GATES = (
    Gate(
        name="versions",
        holds="all nodes have one build of an engine, of a version that has every word that the "
        "driver "
        "uses; without a case, of every engine on PATH",
        reads="the store path of its program (`readlink -f`), the version that it prints, and "
        "[the tables](versions.md)",
        fix="deploy all nodes from one flake, or install one version that the sentence names",
        concerns=_concerns,
        judge=_judge,
        command=_command,
        systems=None,
    ),
)
