"""What a program asks of a fabric of cables, each between two nodes, when more than two take part.

Nothing passes through a node: what has no cable does not reach each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class OverCables:
    """What has to be there by one transport.

    pairs: a cable between each two nodes; without it a ring is enough. control: a network over
    which the ranks find each other.
    """

    pairs: bool = True
    control: bool = False


def cables_problem(
    name: str, over: Mapping[str, OverCables], point: Mapping[str, object]
) -> str | None:
    """Why a program cannot cross the cables of a point of a sweep, or None.

    over: what it asks by transport; of one that is not there, a node has to have one address.
    point: its coordinates; `cables`: 'pairs' or 'ring' where more than two nodes are on cables,
    else None; `control`: whether these name a network.
    """
    cables, transport = point.get("cables"), str(point.get("transport"))
    if not cables:
        return None
    asked = over.get(transport)
    if asked is None:
        return (
            f"{name} by {transport} gives a node one address for all others, and on cables it has "
            "one for each; take 2 nodes, or a network"
        )
    if asked.pairs and cables == "ring":
        return (
            f"{name} by {transport} needs a cable between each two nodes, and these are in a ring"
        )
    if asked.control and not point.get("control"):
        return (
            f"ranks of {name} find each other over a network, and the cluster file names none for "
            "these cables; add control"
        )
    return None
