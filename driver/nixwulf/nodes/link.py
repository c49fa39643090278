"""The link between two nodes, measured over a fabric: 64-byte round trips and TCP bandwidth."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.core.metric import percentile
from nixwulf.inventory.cluster import Fabric
from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes import macos
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection, Unreachable
from nixwulf.outputs import ParseError, iperf3, ping

# What a user may ask of ping: seconds between packets, and how long to wait for each. Below 0.1 s
# macOS wants root, and its -W is in milliseconds (ping(8), macOS 13.6.5 and 10.13.6:
# https://man.freebsd.org/cgi/man.cgi?manpath=macOS+13.6.5&query=ping&sektion=8).
_PAUSE_S = 0.01
_PAUSE_MACOS_S = 0.1
# ping -s takes the payload alone: 56 + 8 = 64 bytes.
_ICMP_HEADER = 8
_SIZE = 64
# Each takes 16 ms where the kernel counts time in 250 ticks a second. The median of 20 is within
# 1-3 % of that of 30 or more in the lab, and it varies by more than that over time.
_COUNT = 20
PORT = TCP["iperf3"]
PROGRAMS = ("iperf3", "ping")
# Long enough to leave slow start at 1 ms, short enough for every run of a sweep.
_STREAM_S = 0.3
_STREAM_LIMIT_S = 15.0
# A server starts in a scope of systemd's: seconds on a machine that is busy with something else.
_LISTEN_LIMIT_S = 30.0


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
    """What one TCP stream carried, Gbit/s as received; a sender on macOS reports no retransmits."""

    gbps: float
    retransmits: int | None

    def document(self) -> dict[str, Any]:
        """As in a record."""
        return {
            "unit": "Gbit/s",
            "value": self.gbps,
            "tool": "iperf3",
            **({} if self.retransmits is None else {"retransmits": self.retransmits}),
        }


def round_trips(
    source: Connection, address: str, *, count: int = _COUNT, system: str = "Linux"
) -> RoundTrips | None:
    """Round trips of packets of 64 bytes from a 'Linux' or a 'Darwin'; None when none came back."""
    argv = ping_arguments(address, count, _SIZE, system)
    done = source.run(argv, timeout_s=count * _PAUSE_MACOS_S + 20)
    try:
        replies = ping.parse(done.stdout)
    except ParseError:
        return None
    return RoundTrips(replies.samples, replies.lost) if replies.samples else None


def ping_arguments(address: str, count: int, size: int, system: str) -> list[str]:
    """A ping as fast as a user may; size: bytes of each, with its ICMP header."""
    pace = ["-i", str(_PAUSE_S), "-W", "1"]
    if system == macos.SYSTEM:
        pace = ["-i", str(_PAUSE_MACOS_S), "-W", "1000"]
    pace = ["-c", str(count), *pace]
    return ["ping", "-n", *pace, "-s", str(size - _ICMP_HEADER), address]


def stream_bytes(speed_gbps: float) -> int:
    """What the stream that measures a fabric of such a nominal speed carries."""
    return max(1_000_000, int(speed_gbps * 1e9 / 8 * _STREAM_S))


def bandwidth(source: Connection, target: Connection, fabric: Fabric, folder: Path) -> Bandwidth:
    """What one TCP stream carries between two nodes.

    fabric: both are on it; its speed sets how much is sent. folder: where the output of iperf3's
    server goes.

    Raises NixwulfError: with iperf3's own words.
    """
    end = target.node.end_to(fabric.name, source.node.name)
    if end is None:
        raise NixwulfError(
            f"No cable of {fabric.name!r} joins {source.node.name!r} and {target.node.name!r}."
        )
    address = end.address
    volume = stream_bytes(fabric.speed_gbps)
    server = OwnedProcess.start(
        target, f"iperf3-{target.node.name}", iperf3_server(address), {}, folder
    )
    try:
        wait_for_line(server, "listening")
        begun = time.monotonic()
        client = ["iperf3", "-c", address, "-p", str(PORT), "-J", "-n", str(volume)]
        done = source.run([*client, "--connect-timeout", "3000"], timeout_s=_STREAM_LIMIT_S)
    except Unreachable:
        raise NixwulfError(
            f"iperf3 did not carry {volume / 1e6:.0f} MB from {source.node.name!r} to "
            f"{target.node.name!r} over {fabric.name!r} in {time.monotonic() - begun:.0f} s."
        ) from None
    finally:
        server.stop()
    flow = iperf3.parse(done.stdout or done.stderr)["forward"]
    return Bandwidth(gbps=round(flow.received_gbps or 0.0, 4), retransmits=flow.retransmits)


def iperf3_server(address: str) -> list[str]:
    """A server of one test that listens on one address; it reports that at once."""
    return ["iperf3", "-s", "-1", "-B", address, "-p", str(PORT), "--forceflush"]


def wait_for_line(server: OwnedProcess, word: str) -> None:
    """Wait until a server has printed a word; raises NixwulfError with what it printed instead."""
    until = time.monotonic() + _LISTEN_LIMIT_S
    while word not in server.output:
        if not server.running or time.monotonic() > until:
            words = " ".join(server.errors.split())
            raise NixwulfError(
                f"{server.argv[0]!r} does not listen on node {server.node!r}: {words or 'silence'}."
            )
        time.sleep(0.01)
