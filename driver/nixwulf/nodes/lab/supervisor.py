"""The supervisor of a lab: process 1 of its PID namespace, in the hub between the nodes' links.

It makes the nodes and links, serves the control socket, and ends everything on request, on
SIGTERM, or when the lifeline breaks. However it ends, the kernel ends the nodes with it and frees
the namespaces, mounts and links. Run by `nixwulf.nodes.lab.up` as `python -m
nixwulf.nodes.lab.supervisor STATE READY LOCK LIFELINE` (inherited descriptors; -1 is none).
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.lab import links, switch
from nixwulf.nodes.lab.links import LabPort, Shaping
from nixwulf.nodes.lab.node import Spawned, spawn, sysctl
from nixwulf.nodes.lab.state import Definition, StateFolder, read_definition


class ShapedLink:
    """One network of a running lab, or one cable."""

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
            if self._switch is None:
                self._switch = switch.start([port.link for port in self.ports])
            switch.ask(self._switch[1], dataclasses.asdict(shape))
        self.shape, self.shaping = shape, shaping

    def counters(self) -> dict[str, int]:
        """What the switch counted since it started; empty for the kernel's shapings."""
        if self._switch is None:
            return {}
        return switch.ask(self._switch[1], None)

    def _stop_switch(self) -> None:
        if self._switch is None:
            return
        pid, channel = self._switch
        channel.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._switch = None


START_SECONDS = 30.0
BANNER = b"SSH-2.0"


class Ended(Exception):
    """The lab was asked to end."""


class Supervisor:
    """The running lab: its nodes and its fabrics."""

    def __init__(self, state: StateFolder, definition: Definition) -> None:
        self.state = state
        self.definition = definition
        self.nodes: list[Spawned] = []
        self.fabrics: dict[str, list[ShapedLink]] = {}

    def start(self) -> None:
        """Make nodes, links and shapes; returns when each node's sshd has answered."""
        cluster, subnet = self.definition.cluster, self.definition.subnet
        sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        for number in range(1, len(cluster.nodes) + 1):
            self.nodes.append(spawn(self.state, self.definition, number))
        networks = {node.name: node.network for node in self.nodes}
        links.run_batch("ip", links.hub_links(cluster, subnet, networks))
        for node in self.nodes:
            node.start.send(b"g")
        for node in self.nodes:
            node.start.settimeout(START_SECONDS)
            if node.start.recv(1) != b"r":
                words = self.state.last_words()
                raise NixwulfError(f"Node {node.name!r} did not start: {words}")
            node.start.close()
        netem = links.kernel_has_netem()
        for name, fabric in cluster.fabrics.items():
            self.fabrics[name] = [
                ShapedLink(ports, kernel_has_netem=netem) for ports in links.segments(cluster, name)
            ]
            for link in self.fabrics[name]:
                link.set_shape(fabric.shape or Shape())
        for name, address in links.management_addresses(cluster, subnet).items():
            self._wait_for_sshd(name, address)

    def _wait_for_sshd(self, node: str, address: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(address):
            if time.monotonic() > deadline:
                log = (self.state.node(node) / "sshd.log").read_text("utf-8")
                raise NixwulfError(
                    f"The sshd of node {node!r} did not answer within {START_SECONDS:.0f} s: "
                    f"{log.strip()!r}."
                )
            time.sleep(0.01)

    def serve(self, control: socket.socket, lifeline: int) -> None:
        """Answer requests until the lab is asked to end (raises Ended)."""
        wake, signalled = socket.socketpair()
        signalled.setblocking(False)
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only with a handler is the wakeup written
        signal.signal(signal.SIGTERM, _end)
        signal.set_wakeup_fd(signalled.fileno())
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ, lambda: self._answer(control))
            selector.register(wake, selectors.EVENT_READ, lambda: _reap(wake))
            if lifeline >= 0:
                selector.register(lifeline, selectors.EVENT_READ, _end)
            while True:
                for key, _ in selector.select():
                    key.data()

    def _answer(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection, suppress(OSError):
            connection.settimeout(2)
            try:
                request = json.loads(connection.makefile().readline())
                if request["do"] == "socket":
                    with socket.socket() as made_here:
                        socket.send_fds(connection, [b"\0"], [made_here.fileno()])
                    return
                reply = self._do(request)
            except (NixwulfError, KeyError, ValueError) as error:
                reply = {"error": str(error)}
            connection.sendall(json.dumps(reply).encode() + b"\n")

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "down":
            raise Ended
        if request["do"] == "link":
            for link in self.fabrics[request["fabric"]]:
                link.set_shape(Shape(**request["shape"]))
        return {name: _status(fabric) for name, fabric in self.fabrics.items()}

    def end(self) -> None:
        """End every process of the lab but this one, then remove the state folder."""
        signal.set_wakeup_fd(-1)
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all of this PID namespace
        with suppress(ChildProcessError):
            while True:
                os.wait()
        self.state.remove()


def _status(fabric: list[ShapedLink]) -> dict[str, Any]:
    """The shape of its links, which have one, and the sum of what they counted."""
    counted: Counter[str] = Counter()
    for link in fabric:
        counted.update(link.counters())
    first = fabric[0]
    return {"shape": dataclasses.asdict(first.shape), "shaping": first.shaping, **counted}


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=5) as connection:
            return connection.recv(len(BANNER)) == BANNER
    except OSError:
        return False


def _end(*_: object) -> None:
    raise Ended


def _reap(wake: socket.socket) -> None:
    with suppress(BlockingIOError):
        wake.recv(64)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def main(folder: str, ready: int, lock: int, lifeline: int) -> None:
    """Start the lab in a state folder, and serve until it ends.

    Args:
        ready: the file descriptor on which the start is reported.
        lock: the file descriptor of the lab's lock.
        lifeline: the file descriptor with whose end the lab ends, negative for none.
    """
    for descriptor in (ready, lock, lifeline):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    state = StateFolder(Path(folder))
    # /proc is still the host's, so this is the number to kill from outside.
    state.process_id.write_text(str(Path("/proc/self").readlink()), "utf-8")
    supervisor = Supervisor(state, read_definition(state))
    try:
        with socket.socket(socket.AF_UNIX) as control:
            control.bind(str(state.control))
            control.listen(64)
            supervisor.start()
            os.write(ready, b"ready")
            os.close(ready)
            supervisor.serve(control, lifeline)
    except Ended:
        pass
    except NixwulfError as error:
        os.write(ready, error.message.encode())
    except OSError:
        traceback.print_exc()
    supervisor.end()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
