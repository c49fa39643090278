"""What a lab's fabric gives, measured between its first two nodes."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nixwulf.lab.handle import Lab
from nixwulf.link import bandwidth, round_trips
from nixwulf.ssh import connections, open_all


@dataclass(frozen=True)
class Measured:
    """Median round trip in us (none: no packet came back), one TCP stream in Gbit/s if measured."""

    rtt_us: float | None
    gbps: float | None

    def __str__(self) -> str:
        rtt = "no packet came back" if self.rtt_us is None else f"RTT {self.rtt_us:.0f} us"
        return rtt if self.gbps is None else f"{rtt}, {self.gbps:.2f} Gbit/s"


def measure(lab: Lab, fabric_name: str) -> Measured | None:
    """Measure a fabric; none when fewer than two nodes are on it."""
    fabric, shape = lab.cluster.fabrics[fabric_name], lab.shape(fabric_name)
    attached = [node for node in lab.cluster.nodes if fabric_name in node.fabrics][:2]
    if len(attached) < 2:  # noqa: PLR2004
        return None
    reached = connections(lab.cluster, lab.ssh_config)
    source, target = (reached[node.name] for node in attached)
    open_all([source, target])
    trips = round_trips(source, attached[1].fabrics[fabric_name].address)
    if trips is None:
        return Measured(None, None)
    if shutil.which("iperf3") is None:
        return Measured(trips.median, None)
    # The volume sent follows the nominal speed, which a slow shape would take long to carry.
    speed = min(fabric.speed_gbps, shape.rate_gbps or fabric.speed_gbps)
    with tempfile.TemporaryDirectory() as folder:
        as_shaped = dataclasses.replace(fabric, speed_gbps=speed)
        carried = bandwidth(source, target, as_shaped, Path(folder))
    return Measured(trips.median, carried.gbps)
