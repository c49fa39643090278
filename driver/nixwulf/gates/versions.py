"""Gate: all nodes of a case have the same build of the engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from nixwulf.cluster import Node
from nixwulf.gates import Gate, Subject, Verdict, refused, unknown

_STORE = "/nix/store/"


def _concerns(subject: Subject, node: Node) -> bool:
    # Images are named by digest, and so are one build.
    own = subject.case is None or subject.case.image is None
    return subject.engine is not None and own and len(subject.nodes) > 1


def _command(subject: Subject, node: Node) -> Sequence[str] | None:
    programs, engine = subject.facts[node.name].programs, subject.engine
    command = engine.version_command(programs) if engine else []
    if engine is None or not command:
        return None
    place = next(programs[name] for name in engine.programs if name in programs)
    return ["sh", "-c", f'readlink -f "$1"; {shlex.join(command)}', "sh", place]


def _judge(subject: Subject, node: Node) -> Iterator[Verdict]:
    first = subject.nodes[0]
    ours, theirs = _build(subject, node), _build(subject, first)
    name = subject.engine.name if subject.engine else ""
    if not ours or not theirs:
        yield unknown(f"{name} tells no version on {(node if theirs else first).name!r}.")
    elif ours != theirs:
        yield refused(
            f"Node {node.name!r} has {name} {ours!r} and {first.name!r} has {theirs!r}; deploy "
            "both from one flake, or install one version."
        )


def _build(subject: Subject, node: Node) -> str:
    """The version; the store path itself where every node has the same one."""
    answers = subject.answers.get(GATE.name, {})
    places = {answers.get(other.name, "").partition("\n")[0] for other in subject.nodes}
    if len(places) == 1 and next(iter(places)).startswith(_STORE):
        return next(iter(places))
    lines = [line.strip() for line in answers.get(node.name, "").splitlines()[1:]]
    alone = len(lines) == 1 and re.search(r"\d\.\d", lines[0])
    return " ".join(line for line in lines if alone or "version" in line.lower())


GATE = Gate(
    name="versions",
    holds="all nodes of the case have one build of the engine",
    reads="the store path of its program (`readlink -f`), else the version that it tells",
    fix="deploy all nodes from one flake, or install one version",
    concerns=_concerns,
    judge=_judge,
    command=_command,
    systems=None,
)
