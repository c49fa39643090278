"""A shaped fabric in the hub: its ports, its shape, and the switch process where one serves it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.lab import links, switch
from nixwulf.nodes.lab.links import LabPort, Shaping


class ShapedFabric:
    """One fabric of a running lab."""

    def __init__(self, ports: list[LabPort], *, kernel_has_netem: bool) -> None:
        self.ports = ports
        self.kernel_has_netem = kernel_has_netem
        self.shape = Shape()
        self.shaping: Shaping = "none"
        self._switch: tuple[int, socket.socket] | None = None

    def set_shape(self, shape: Shape) -> None:
        """Shape every port anew; the nodes' interfaces stay as they are."""
        shaping = links.choose(shape, kernel_has_netem=self.kernel_has_netem)
        if shaping != "switch":
            self._stop_switch()
        if not (shaping == "switch" and self._switch):
            commands = [c for port in self.ports for c in links.shape_port(port, shape, shaping)]
            links.run_batch("tc", [words for program, *words in commands if program == "tc"])
            links.run_batch("ip", [words for program, *words in commands if program == "ip"])
        if shaping == "switch":
            self._tell_switch(shape)
        self.shape, self.shaping = shape, shaping

    def counters(self) -> dict[str, int]:
        """What the switch counted since it started; empty for the kernel's shapings."""
        if self._switch is None:
            return {}
        return switch.ask_counters(self._switch[1])

    def _tell_switch(self, shape: Shape) -> None:
        if self._switch is None:
            self._switch = switch.start([port.link for port in self.ports])
        switch.ask_shape(self._switch[1], shape)

    def _stop_switch(self) -> None:
        if self._switch is None:
            return
        pid, channel = self._switch
        channel.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._switch = None
