"""A point of a sweep, and how long a run of it may take.

What a program asks of a fabric of cables, each between two nodes, when more than two take part.

Nothing passes through a node: what has no cable does not reach each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nixwulf.core.text import fingerprint
from nixwulf.inventory.cluster import Cluster, Node


@dataclass(frozen=True)
class Case:
    """One point of a sweep; fabric and transport are None on one node.

    image is that of the case's toolbox, by digest; None where programs are the nodes' own.
    Engine, model and parallelism are None where the benchmark measures the machines themselves.
    """

    engine: str | None
    benchmark: str
    model: str | None
    nodes: int
    fabric: str | None
    transport: str | None
    parallelism: str | None
    parameters: dict[str, Any]
    seed: int
    samples: int
    warm_up: bool
    model_digest: str | None
    image: str | None = None

    @property
    def id(self) -> str:
        """12 hexadecimal digits that identify all coordinates and the model's definition."""
        return fingerprint(asdict(self))[:12]

    def run_name(self, repetition: int) -> str:
        """The id of its run of that index, from 0, and the file name of what the run leaves."""
        return f"{self.id}-r{repetition}"

    def document(self) -> dict[str, Any]:
        """As in a plan and a record: what has no value is absent."""
        values = {"id": self.id, **asdict(self)}
        del values["model_digest"], values["image"]
        return {key: value for key, value in values.items() if value is not None}

    def nodes_of(self, cluster: Cluster) -> tuple[Node, ...]:
        """The nodes it takes: the first ones that its fabric joins, the head first."""
        if self.fabric is None:
            return cluster.nodes[: self.nodes]
        return cluster.joined(self.fabric, self.nodes)


@dataclass(frozen=True)
class Limits:
    """The two clocks of a run, seconds: in all, and without a sign of progress."""

    wall_s: float = 600.0
    progress_s: float = 120.0


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
