"""A lab that is up, as the driver and the commands handle it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import Cluster, Shape
from nixwulf.nodes.lab.checks import check_name, check_shape
from nixwulf.nodes.lab.links import Shaping
from nixwulf.nodes.lab.state import Definition, StateFolder, base, read_definition, state_of

ANSWER_SECONDS = 10.0
END_SECONDS = 10.0


@dataclass(frozen=True)
class Lab:
    """A cluster of network namespaces; lifeline: a descriptor whose closing ends the lab."""

    files: StateFolder
    definition: Definition
    lifeline: int | None = None

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.definition.name

    @property
    def cluster(self) -> Cluster:
        """The cluster as it was brought up."""
        return self.definition.cluster

    @property
    def state(self) -> Path:
        """The folder with everything the lab keeps on disk."""
        return self.files.folder

    @property
    def ssh_config(self) -> Path:
        """The configuration for `ssh -F` that reaches the nodes by name."""
        return self.files.ssh_config

    @property
    def is_up(self) -> bool:
        """Whether the lab runs; one that was killed leaves its folder until `down`."""
        return self.files.is_up()

    def set_shape(self, fabric: str, shape: Shape) -> None:
        """Shape a fabric anew while the lab is up; returns when the new shape holds."""
        self._known(fabric)
        check_shape(fabric, shape)
        self._ask({"do": "link", "fabric": fabric, "shape": dataclasses.asdict(shape)})

    def shape(self, fabric: str) -> Shape:
        """The shape last asked for."""
        return Shape(**self.status()[self._known(fabric)]["shape"])

    def shaping(self, fabric: str) -> Shaping:
        """What shapes a fabric now; "none": it is unshaped."""
        return cast(Shaping, self.status()[self._known(fabric)]["shaping"])

    def status(self) -> dict[str, dict[str, Any]]:
        """Each fabric's shape, shaping, and the frames that a switch counted since it started."""
        return self._ask({"do": "status"})

    def down(self) -> None:
        """End the lab, also one whose supervisor was killed; leaves no process, mount or file."""
        self._close_connections()
        try:
            self._ask({"do": "down"})
        except NixwulfError:
            self._kill()
        if self.lifeline is not None:
            with suppress(OSError):
                os.close(self.lifeline)
        self._wait_until_gone()
        self.files.remove()

    def _kill(self) -> None:
        """For a supervisor that does not answer; the kernel ends all of its lab with it."""
        if self.is_up:
            with suppress(OSError, ValueError):
                os.kill(int(self.files.process_id.read_text("utf-8")), signal.SIGKILL)

    def _close_connections(self) -> None:
        # ssh's own masters live on this machine, outside the lab. A lab that is ending removes its
        # folder meanwhile, and with it their sockets.
        sockets: list[Path] = []
        with suppress(FileNotFoundError):
            sockets = list(self.files.connections.glob("*"))
        masters = [
            subprocess.Popen(
                ["ssh", "-F", str(self.ssh_config), "-O", "exit", connection.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for connection in sockets
        ]
        for master in masters:
            master.wait()

    def _wait_until_gone(self) -> None:
        try:
            lock = os.open(self.files.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            deadline = time.monotonic() + END_SECONDS
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                if time.monotonic() > deadline:
                    raise NixwulfError(f"Lab {self.name!r} did not end; see {self.files.log}.")
                time.sleep(0.01)
        finally:
            os.close(lock)

    def _known(self, fabric: str) -> str:
        if fabric not in self.cluster.fabrics:
            raise InputError(
                f"Lab {self.name!r} has no fabric {fabric!r}; it has: "
                f"{', '.join(self.cluster.fabrics) or 'none'}."
            )
        return fabric

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self.files.control))
                connection.sendall(json.dumps(request).encode() + b"\n")
                line = connection.makefile().readline()
        except OSError as error:
            raise NixwulfError(
                f"Lab {self.name!r} does not answer ({error.strerror or error}); clean up with: "
                f"nixwulf lab down --name {self.name}"
            ) from None
        reply: dict[str, Any] = json.loads(line) if line else {}
        if "error" in reply:
            raise NixwulfError(reply["error"])
        return reply


def labs() -> list[Lab]:
    """Every lab of this user, also those that were killed and not yet cleaned up."""
    found = []
    folders = sorted(base().iterdir()) if base().is_dir() else []
    for state in map(StateFolder, folders):
        # One that is ending takes its definition away at any moment.
        with suppress(InputError):
            found.append(Lab(state, read_definition(state)))
    return found


def find(name: str) -> Lab:
    """The lab of a name; raises InputError with the next command if there is none."""
    check_name(name)
    state = state_of(name)
    if not state.definition.exists():
        raise InputError(f"No lab {name!r} is up; bring it up with: nixwulf lab up --name {name}")
    return Lab(state, read_definition(state))
