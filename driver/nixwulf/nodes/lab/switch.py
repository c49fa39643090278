"""A switch in user space: delay, rate and loss for kernels without netem.

Its process takes whole frames (to 64 KiB, with the virtio header that says how to cut them) from
the hub's ends of the nodes' links and sleeps until the next one is due.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.lab.links import queue_bytes
from nixwulf.nodes.lab.node import set_timer_slack

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

    The sender's uplink and the receiver's downlink each pass one frame at a time, at the rate; one
    delay later it leaves. Loss drops whole frames as taken, as netem does: one of 64 KiB counts
    once.

    `waiting` holds (release time in ns, order, output port, frame, whether its lateness counts).
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
        """Take a frame that arrived at a port, whose number is from 0."""
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


# linux/if_packet.h, linux/if_ether.h, asm-generic/socket.h
SOL_PACKET = 263
PACKET_STATISTICS = 6
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35

FRAME_BYTES = 65_536 + 64
BUFFER_BYTES = 16 << 20
# Frames taken from one port before the timers and the other ports get their turn.
BATCH = 16
# The lateness that may be subtracted: more is a machine with no CPU to spare, not a constant.
LATENESS_MAXIMUM_NS = 200_000
LATENESS_STEP_NS = 3_000


def start(links: list[str]) -> tuple[int, socket.socket]:
    """Fork a switch that serves the named links; returns its process and its channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(5)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_switch(links, theirs)
    theirs.close()
    return pid, ours


def ask(channel: socket.socket, shape: dict[str, float] | None) -> dict[str, int]:
    """Tell a switch its shape, None for as it is; when it holds, what the switch has counted.

    Frames that it forwarded, lost as asked, dropped from full queues, and missed.
    """
    try:
        channel.send(json.dumps(shape).encode())
        counters: dict[str, int] = json.loads(channel.recv(1024))
    except (OSError, ValueError):
        raise NixwulfError("A switch of the lab has ended; start anew: nixwulf lab down") from None
    return counters


def _be_switch(links: list[str], channel: socket.socket) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = 1
    try:
        set_timer_slack(1)
        with suppress(PermissionError):
            # Beside busy engines a frame would otherwise wait for its turn on the CPU, for ms.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        _forward([_open(link) for link in links], channel)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _open(link: str) -> socket.socket:
    # Protocol 0 takes nothing before bind; else frames of other links would be in the queue.
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    try:
        port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:  # without root: net.core.rmem_max is the most
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    port.bind((link, ETH_P_ALL))
    port.setblocking(False)
    return port


def _forward(ports: list[socket.socket], channel: socket.socket) -> None:
    forwarding = Switch(len(ports))
    waiting = forwarding.waiting
    numbers = {port.fileno(): number for number, port in enumerate(ports)}
    channel_number = channel.fileno()
    readable = [*numbers, channel_number]
    usual = _lateness()
    lateness = 0
    missed = 0
    clock = time.monotonic_ns
    while True:
        timeout = None
        if waiting:
            timeout = max(0.0, (waiting[0][0] - lateness - clock()) / 1e9)
        for ready in select.select(readable, [], [], timeout)[0]:
            if ready == channel_number:
                request = channel.recv(1024)
                if not request:
                    return
                shape = json.loads(request)
                if shape is not None:
                    forwarding.line = LineTiming.of(Shape(**shape))
                    lateness = min(usual, forwarding.line.delay)
                missed += sum(_missed(port) for port in ports)
                counters = {
                    "forwarded": forwarding.forwarded,
                    "lost": forwarding.lost,
                    "dropped": forwarding.dropped,
                    "missed": missed,
                }
                channel.send(json.dumps(counters).encode())
            else:
                _receive(forwarding, ports[numbers[ready]], numbers[ready])
        while waiting:
            if clock() < waiting[0][0] - lateness:
                break
            release, _, output, frame, alone = heapq.heappop(waiting)
            if alone:
                # Steps of one size follow the median: one frame that waited ms for a CPU counts as
                # much as one that was 5 us late.
                lateness += LATENESS_STEP_NS if clock() > release else -LATENESS_STEP_NS
                lateness = min(max(lateness, 0), forwarding.line.delay, LATENESS_MAXIMUM_NS)
            with suppress(OSError):  # a link that is down drops, as a cable does
                ports[output].send(frame)


def _lateness() -> int:
    """How late this process wakes from a sleep of 200 us, the median of 25, in ns."""
    samples = []
    for _ in range(25):
        due = time.monotonic_ns() + 200_000
        select.select([], [], [], 200e-6)
        samples.append(time.monotonic_ns() - due)
    return sorted(samples)[len(samples) // 2]


def _receive(forwarding: Switch, port: socket.socket, number: int) -> None:
    for _ in range(BATCH):
        try:
            frame, ancillary, _, _ = port.recvmsg(FRAME_BYTES, 64)
        except OSError:
            return
        now = time.monotonic_ns()
        if ancillary:
            # The kernel's time of arrival: the delay also covers the time it took to wake up.
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
            age = time.time_ns() - seconds * 1_000_000_000 - nanoseconds
            now -= min(max(age, 0), LATENESS_MAXIMUM_NS)
        forwarding.take(frame, number, now)


def _missed(port: socket.socket) -> int:
    """Frames that found the socket's buffer full since the last call."""
    _, drops = struct.unpack("II", port.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    return int(drops)
