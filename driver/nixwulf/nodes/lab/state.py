"""What a lab is: what it accepts, its definition for every later command, its folder and lock."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import ipaddress
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import read_json, runtime_dir
from nixwulf.inventory.cluster import Cluster, Fabric, Node, Shape
from nixwulf.inventory.fabrics import Attachment
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE

# A unix socket's path holds 107 bytes, and ssh adds 17 characters while it makes one.
STATE_PATH_MAXIMUM = 80
_WRITES_S = 2.0


@dataclass(frozen=True)
class Definition:
    """All that the processes of a lab need to know; written once, before they start."""

    name: str
    cluster: Cluster
    subnet: ipaddress.IPv4Network
    user: str
    sshd: str
    shown: tuple[str, ...]


class StateFolder:
    """A lab's state folder, and paths inside of it.

    definition: JSON; control: the supervisor's unix socket; lock: every process of the lab keeps it
    locked: unlocked means all are gone; process_id: the supervisor's on the host, a number, true
    while the lock is held; log: what the supervisor and the switches print, empty in a healthy lab;
    ssh_config: reaches the nodes; connections: ssh's multiplexed ones, a socket a node.
    """

    def __init__(self, folder: Path) -> None:
        """Paths inside FOLDER, whether there is one or not."""
        self.folder = folder
        self.definition = folder / "lab.json"
        self.control = folder / "control"
        self.lock = folder / "lock"
        self.process_id = folder / "pid"
        self.log = folder / "supervisor.log"
        self.ssh_config = folder / "ssh_config"
        self.connections = folder / "mux"

    def last_words(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text("utf-8").strip().splitlines()
        return lines[-1] if lines else "it ended without a word."

    def node(self, name: str) -> Path:
        """A node's folder: its home, keys and files of /etc; mounted on /run/lab in the node."""
        return self.folder / "nodes" / name

    def is_up(self) -> bool:
        """Whether a process of this lab still runs."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def remove(self) -> None:
        """Remove the folder; the lock last, for it shows others that a process is still here."""
        # A program that was started in the moment of an interrupt may write a file yet.
        until = time.monotonic() + _WRITES_S
        while True:
            try:
                self._remove_files()
                self.lock.unlink(missing_ok=True)
                return self.folder.rmdir()
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _remove_files(self) -> None:
        for child in list(self.folder.iterdir()):
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            elif child != self.lock:
                child.unlink(missing_ok=True)


def base() -> Path:
    """Where the labs' state folders are: in $XDG_RUNTIME_DIR, or without it in ~/.local/state."""
    return (runtime_dir() or Path.home() / ".local" / "state") / "nixwulf" / "lab"


def state_of(name: str) -> StateFolder:
    """The state folder of a name; raises InputError where its path is too long for sockets."""
    folder = base() / name
    if len(os.fsencode(folder)) > STATE_PATH_MAXIMUM:
        raise InputError(
            f"The state folder {str(folder)!r} is longer than {STATE_PATH_MAXIMUM} bytes, too long "
            "for a unix socket in it; choose a shorter --name, or set XDG_RUNTIME_DIR."
        )
    return StateFolder(folder)


def write_definition(state: StateFolder, definition: Definition) -> None:
    """Write lab.json."""
    document = dataclasses.asdict(definition)
    state.definition.write_text(json.dumps(document, default=str, indent=1), encoding="utf-8")


def read_definition(state: StateFolder) -> Definition:
    """Read lab.json."""
    document = read_json(state.definition)
    return Definition(
        name=document["name"],
        cluster=_cluster(document["cluster"]),
        subnet=ipaddress.IPv4Network(document["subnet"]),
        user=document["user"],
        sshd=document["sshd"],
        shown=tuple(document["shown"]),
    )


def _cluster(document: dict[str, Any]) -> Cluster:
    nodes = (
        Node(
            **{
                **node,
                "fabrics": _ends(node["fabrics"]),
                "links": {name: _ends(ends) for name, ends in node["links"].items()},
            }
        )
        for node in document["nodes"]
    )
    fabrics = {name: _fabric(fabric) for name, fabric in document["fabrics"].items()}
    return Cluster(**{**document, "nodes": tuple(nodes), "fabrics": fabrics})


def _ends(document: dict[str, Any]) -> dict[str, Attachment]:
    """A lab has no RDMA devices and no twins, whose tuples JSON makes lists."""
    none: dict[str, Any] = {"rdma_devices": (), "twins": ()}
    return {key: Attachment(**{**end, **none}) for key, end in document.items()}


def _fabric(document: dict[str, Any]) -> Fabric:
    shape = None if document["shape"] is None else Shape(**document["shape"])
    subnet = ipaddress.IPv4Network(document["subnet"])
    return Fabric(**{**document, "subnet": subnet, "shape": shape})


PERCENT = 100
NODES_MINIMUM, NODES_MAXIMUM = 2, 16
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
DELAY_MAXIMUM_US = 1_000_000
RATE_MINIMUM_GBPS, RATE_MAXIMUM_GBPS = 0.001, 1000
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


def check_cluster(cluster: Cluster) -> None:
    """Raise InputError for a cluster that a lab cannot be."""
    if not cluster.is_lab:
        raise InputError(
            f"{cluster.source}: its nodes are machines, not a lab's; give a cluster with a [lab] "
            "table, or none: nixwulf lab up"
        )
    check_count(len(cluster.nodes), cluster.source)
    for node in cluster.nodes:
        interfaces = [end.interface for end in node.all_ends]
        for interface in interfaces:
            if not INTERFACE.fullmatch(interface) or interface in ("lo", MANAGEMENT_INTERFACE):
                raise InputError(
                    f"{cluster.source}: a lab cannot make the interface {interface!r} of node "
                    f"{node.name!r}; use another name, for example 'eth0'."
                )
            if interfaces.count(interface) > 1:
                raise InputError(
                    f"{cluster.source}: node {node.name!r} has the interface {interface!r} on two "
                    "fabrics; in a lab each fabric needs its own, for example 'eth1'."
                )
    for fabric in cluster.fabrics.values():
        check_shape(fabric.name, fabric.shape or Shape())


def check_name(name: str) -> None:
    """Raise InputError for a lab's name that is not a plain short word."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"The lab name {name!r} is not 1 to 32 letters a-z, digits and inner hyphens; "
            "use for example: --name lab"
        )


def check_count(nodes: int, source: str) -> None:
    """Raise InputError for a number of nodes that a lab does not have."""
    if not NODES_MINIMUM <= nodes <= NODES_MAXIMUM:
        raise InputError(
            f"{source}: a lab has {NODES_MINIMUM} to {NODES_MAXIMUM} nodes, not {nodes}; give "
            "another number with --nodes."
        )


def check_shape(fabric: str, shape: Shape) -> None:
    """Raise InputError for a shape that no link can have."""
    rate = RATE_MAXIMUM_GBPS if shape.rate_gbps is None else shape.rate_gbps
    if not 0 <= shape.delay_us <= DELAY_MAXIMUM_US:
        raise InputError(
            f"The delay of {fabric!r} is {shape.delay_us:g} us, expected 0 to "
            f"{DELAY_MAXIMUM_US} us."
        )
    if not RATE_MINIMUM_GBPS <= rate <= RATE_MAXIMUM_GBPS:
        raise InputError(
            f"The rate of {fabric!r} is {rate:g} Gbit/s, expected {RATE_MINIMUM_GBPS} to "
            f"{RATE_MAXIMUM_GBPS} Gbit/s."
        )
    if not 0 <= shape.loss_percent <= PERCENT:
        raise InputError(
            f"The loss of {fabric!r} is {shape.loss_percent:g} percent, expected 0 to 100."
        )
