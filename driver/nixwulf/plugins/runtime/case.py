"""Cases: the points of a sweep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nixwulf.core.naming import fingerprint
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
        """12 hexadecimal digits that stand for all coordinates and the model's definition."""
        return fingerprint(asdict(self))[:12]

    def document(self) -> dict[str, Any]:
        """As in a plan and a record: what has no value is absent."""
        values = {"id": self.id, **asdict(self)}
        del values["model_digest"], values["image"]
        return {key: value for key, value in values.items() if value is not None}

    def nodes_of(self, cluster: Cluster) -> tuple[Node, ...]:
        """The nodes it takes: the first ones that are on its fabric, the head first."""
        possible = cluster.nodes if self.fabric is None else cluster.nodes_on(self.fabric)
        return possible[: self.nodes]
