"""A switch in user space: delay, rate and loss for kernels without netem.

The sender's uplink and the receiver's downlink each pass one frame at a time, at the rate; one
delay later it leaves. Loss drops whole frames as taken, as netem does: one of 64 KiB counts once.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.lab.links import queue_bytes

# The virtio header before each frame, linux/virtio_net.h.
HEADER = 10
# Frames up to this size, alone on their link, tell how late the switch is.
SMALL_FRAME = 1_600
SEED = 1


@dataclass
class LineTiming:
    """What is common to all links of the fabric; times in ns, the rate in ns per byte."""

    delay: int = 0
    ns_per_byte: float = 0.0
    loss: float = 0.0
    queue: float = float("inf")

    @classmethod
    def of(cls, shape: Shape) -> LineTiming:
        """The line that a shape asks for."""
        line = cls(delay=round(shape.delay_us * 1e3), loss=shape.loss_percent / 100)
        if shape.rate_gbps is not None:
            line.ns_per_byte = 8 / shape.rate_gbps
            line.queue = queue_bytes(shape.rate_gbps) * line.ns_per_byte
        return line


@dataclass
class Switch:
    """The forwarding, without sockets and clocks: frames go in with a time, and come out with one.

    `waiting` holds (release time in ns, order, output port, frame, whether it tells the lateness).
    """

    count: int
    line: LineTiming = field(default_factory=LineTiming)
    waiting: list[tuple[int, int, int, bytes, bool]] = field(default_factory=list)
    dropped: int = 0
    lost: int = 0
    forwarded: int = 0

    def __post_init__(self) -> None:
        self._up = [0] * self.count
        self._down = [0] * self.count
        self._table: dict[bytes, int] = {}
        self._random = random.Random(SEED)  # noqa: S311

    def take(self, frame: bytes, port: int, now: int) -> None:
        """Take a frame (behind its virtio header) that arrived at a port at a time."""
        line = self.line
        destination, source = frame[HEADER : HEADER + 6], frame[HEADER + 6 : HEADER + 12]
        self._table[source] = port
        if line.loss and self._random.random() < line.loss:
            self.lost += 1
            return
        duration = int((len(frame) - HEADER) * line.ns_per_byte)
        sent = max(now, self._up[port]) + duration
        if sent - now > line.queue:
            self.dropped += 1
            return
        self._up[port] = sent
        known = self._table.get(destination)
        outputs = [known] if known is not None else [n for n in range(self.count) if n != port]
        for output in outputs:
            # The downlink starts with the frame's first byte, so a free one adds nothing.
            received = max(sent, self._down[output] + duration)
            if received - sent > line.queue:
                self.dropped += 1
                continue
            self._down[output] = received
            self.forwarded += 1
            alone = received == now + duration and len(frame) < SMALL_FRAME
            release = received + line.delay
            heapq.heappush(self.waiting, (release, self.forwarded, output, frame, alone))
