"""What a lab's fabric gives, measured between its first two nodes."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.nodes.lab.handle import Lab
from nixwulf.nodes.link import RoundTrips, bandwidth, round_trips
from nixwulf.nodes.ssh import connections, open_all


@dataclass(frozen=True)
class FabricMeasurement:
    """Round trips (None: no packet came back); what one TCP stream carried, or why it did not."""

    trips: RoundTrips | None
    stream: str

    def __str__(self) -> str:
        if self.trips is None:
            return "no packet came back"
        lost = f", {self.trips.lost} packets lost" if self.trips.lost else ""
        return f"RTT {self.trips.median:.0f} us{lost}, {self.stream}"


def measure(lab: Lab, fabric_name: str) -> FabricMeasurement | None:
    """Measure a fabric; None when fewer than two nodes are on it."""
    fabric, shape = lab.cluster.fabrics[fabric_name], lab.shape(fabric_name)
    attached = [node for node in lab.cluster.nodes if fabric_name in node.fabrics][:2]
    if len(attached) < 2:  # noqa: PLR2004
        return None
    reached = connections(lab.cluster, lab.ssh_config)
    source, target = (reached[node.name] for node in attached)
    open_all([source, target])
    trips = round_trips(source, attached[1].fabrics[fabric_name].address)
    if trips is None:
        return FabricMeasurement(None, "")
    if shutil.which("iperf3") is None:
        return FabricMeasurement(trips, "bandwidth not measured: no iperf3 on PATH")
    # The volume sent follows the nominal speed, which a slow shape would take long to carry.
    speed = min(fabric.speed_gbps, shape.rate_gbps or fabric.speed_gbps)
    with tempfile.TemporaryDirectory() as folder:
        as_shaped = dataclasses.replace(fabric, speed_gbps=speed)
        try:
            carried = bandwidth(source, target, as_shaped, Path(folder))
        except NixwulfError as error:
            return FabricMeasurement(trips, error.message)
    return FabricMeasurement(trips, f"{carried.gbps:.2f} Gbit/s")
