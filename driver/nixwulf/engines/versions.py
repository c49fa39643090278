"""Versions of an engine on the nodes of a run: they have to be one."""

from __future__ import annotations

from collections.abc import Mapping


def version_problem(versions: Mapping[str, str]) -> str | None:
    """The first two nodes whose programs say unlike versions, in one sentence; none if all agree.

    versions: by node, the head first; a node whose program says none is left out.
    """
    known = {node: version for node, version in versions.items() if version}
    for node, version in known.items():
        first, expected = next(iter(known.items()))
        if version != expected:
            return (
                f"Node {first!r} runs version {expected!r} of the engine and node {node!r} "
                f"{version!r}; deploy the same build to all nodes."
            )
    return None
