"""A point of a sweep, and how long a run of it may take."""

from __future__ import annotations

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
