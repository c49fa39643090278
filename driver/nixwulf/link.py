"""The link between two nodes, measured over a fabric: 64-byte round trips and TCP bandwidth."""

from __future__ import annotations

import json
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.benchmarks import percentile
from nixwulf.cluster import Fabric
from nixwulf.errors import NixwulfError
from nixwulf.process import OwnedProcess
from nixwulf.ssh import Connection, Unreachable

# ping counts its 8-byte ICMP header beside the payload: 56 + 8 = 64 bytes.
_PING_PAYLOAD = 56
PORT = 50151
PROGRAMS = ("iperf3", "ping")
# Long enough to leave slow start at 1 ms, short enough for every run of a sweep.
_STREAM_S = 0.3
_STREAM_LIMIT_S = 15.0


@dataclass(frozen=True)
class RoundTrips:
    """Round trips in microseconds, and how many packets were lost."""

    samples: tuple[float, ...]
    lost: int

    @property
    def median(self) -> float:
        """Median in microseconds."""
        return statistics.median(self.samples)

    def document(self) -> dict[str, Any]:
        """As in a record; p95 is the nearest rank."""
        return {
            "unit": "us",
            "median": self.median,
            "p95": percentile(self.samples, 95),
            "samples": list(self.samples),
            "lost": self.lost,
        }


@dataclass(frozen=True)
class Bandwidth:
    """What one TCP stream carried, Gbit/s as received."""

    gbps: float
    retransmits: int

    def document(self) -> dict[str, Any]:
        """As in a record."""
        return {
            "unit": "Gbit/s",
            "value": self.gbps,
            "tool": "iperf3",
            "retransmits": self.retransmits,
        }


def round_trips(source: Connection, address: str, *, count: int = 30) -> RoundTrips | None:
    """Round trips from a node to an address, 10 ms apart; none when no packet came back."""
    command = ["ping", "-n", "-c", str(count), "-i", "0.01", "-W", "1", "-s", str(_PING_PAYLOAD)]
    done = source.run([*command, address], timeout_s=count * 0.01 + 20)
    return parse_ping(done.stdout)


def parse_ping(text: str) -> RoundTrips | None:
    """The samples of ping's output; none when it has none."""
    samples = [float(value) * 1000 for value in re.findall(r"time[=<]([\d.]+) ms", text)]
    counts = re.search(r"(\d+) packets transmitted, (\d+) (?:packets )?received", text)
    if not samples or not counts:
        return None
    return RoundTrips(
        tuple(round(sample, 1) for sample in samples), int(counts[1]) - int(counts[2])
    )


def bandwidth(source: Connection, target: Connection, fabric: Fabric, folder: Path) -> Bandwidth:
    """What one TCP stream carries between two nodes; raises NixwulfError with iperf3's words."""
    address = target.node.fabrics[fabric.name].address
    volume = max(1_000_000, int(fabric.speed_gbps * 1e9 / 8 * _STREAM_S))
    endpoint = ["-p", str(PORT), "-J"]
    listen = ["iperf3", "-s", "-1", "-B", address, "-p", str(PORT), "--forceflush"]
    server = OwnedProcess.start(target, f"iperf3-{target.node.name}", listen, {}, folder)
    try:
        _wait_for_line(server, "listening")
        client = ["iperf3", "-c", address, *endpoint, "-n", str(volume)]
        done = source.run([*client, "--connect-timeout", "3000"], timeout_s=_STREAM_LIMIT_S)
    except Unreachable:
        raise NixwulfError(
            f"iperf3 did not carry {volume / 1e6:.0f} MB from {source.node.name!r} to "
            f"{target.node.name!r} over {fabric.name!r} in {_STREAM_LIMIT_S:g} s."
        ) from None
    finally:
        server.stop()
    return parse_iperf3(done.stdout or done.stderr)


def _wait_for_line(server: OwnedProcess, word: str, limit_s: float = 10) -> None:
    until = time.monotonic() + limit_s
    while word not in server.stdout.read_text(errors="replace"):
        if not server.running or time.monotonic() > until:
            words = " ".join(server.stderr.read_text(errors="replace").split())
            raise NixwulfError(
                f"iperf3 does not listen on node {server.node!r}: {words or 'silence'}."
            )
        time.sleep(0.01)


def parse_iperf3(text: str) -> Bandwidth:
    """The result of iperf3's JSON; version 3.12 exits 0 on failure, so its error key decides."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        raise NixwulfError(f"iperf3 gave no JSON: {text[:200]!r}.") from None
    if "error" in document:
        raise NixwulfError(f"iperf3 failed: {document['error']}.")
    end = document["end"]
    return Bandwidth(
        gbps=round(end["sum_received"]["bits_per_second"] / 1e9, 4),
        retransmits=end["sum_sent"].get("retransmits", 0),
    )
