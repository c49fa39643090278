"""What the nodes and the wall meters of one run reported, brought to the driver's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nixwulf.nodes.power import energy
from nixwulf.nodes.power.samples import Point, Samples

# Of what a counter of a source's kind stands for; the others are watts.
_CUMULATIVE = "rapl"
SOURCES = ("rapl", "amdgpu", "nvidia", "pmic", "powermetrics")


@dataclass(frozen=True)
class NodeSamples:
    """What one node's sampler reported; offset leads from its clock to the driver's, seconds.

    reason: why there are no samples at all; twin: another node is the same machine.
    """

    samples: Samples = field(default_factory=lambda: Samples((), {}, ()))
    offset: float = 0.0
    reason: str = ""
    twin: bool = False

    def joules(self) -> dict[str, list[Point]]:
        """Joules since the first sample by source, in the driver's clock."""
        channels: dict[str, list[list[Point]]] = {}
        for key, points in sorted(self.samples.series.items()):
            source = key.partition(":")[0]
            if source in SOURCES:
                here = [(time + self.offset, value) for time, value in points]
                joules = here if source == _CUMULATIVE else energy.integral(here)
                channels.setdefault(source, []).append(joules)
        return {source: energy.total(found) for source, found in channels.items()}


@dataclass(frozen=True)
class MeterPoints:
    """What a wall meter reported, in the driver's clock and watts, and which nodes hang on it."""

    nodes: tuple[str, ...]
    others: tuple[str, ...]
    points: Sequence[Point]
    error: str = ""
    key: str = ""
