"""What a machine is that may be imaged: read in one round trip from any Linux, or from macOS.

Also whether an installed node answers under its name, runs the system of the flake and is on its
fabrics.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.core.printed import check_numbers
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.inventory.fabrics import MAC_RDMA_KINDS
from nixwulf.nodes.facts import Facts, gather
from nixwulf.nodes.process import SHELL
from nixwulf.nodes.ssh import Connection, each, open_all
from nixwulf.plugins.gates.fabric import fabric_problem

_SYSTEM_ARCHITECTURES = {"arm64": "aarch64", "amd64": "x86_64"}


@dataclass(frozen=True)
class Disk:
    """A whole disk: size in bytes, its links in /dev/disk/by-id, and names of its partitions.

    labels: by the partition's device, such as '/dev/sda1', its name in the partition table.
    drivers: the kernel's modules that it and its controller need here.
    """

    name: str
    size: int
    model: str = ""
    serial: str = ""
    ids: tuple[str, ...] = ()
    mountpoints: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    read_only: bool = False
    drivers: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Its model and size, as printed on it: powers of ten."""
        return f"{self.model or 'unnamed'}, {self.size / 1e9:.1f} GB"


@dataclass(frozen=True)
class Machine:
    """Facts of a machine; memory in bytes. What could not be read is empty or None.

    user: 'root', 'sudo' for one who may become root without a password, else the user's name.
    kexec_disabled: the kernel's own switch, None where the kernel has no kexec.
    boot: differs between machines, and from one boot to the next. cluster: whose system it runs,
    where this project made it. interfaces: all names of network interfaces, also those that another
    system would give them. driverless_cards: network cards for which there is no driver. owned:
    processes that drivers started there.
    """

    kernel: str = ""
    architecture: str = ""
    hostname: str = ""
    os: str = ""
    nixos: bool = False
    installer: bool = False
    product: str = ""
    firmware: str = ""
    firmware_version: str = ""
    secure_boot: bool | None = None
    locked_down: bool = False
    kexec_disabled: bool | None = None
    memory: int = 0
    user: str = ""
    programs: frozenset[str] = frozenset()
    disks: tuple[Disk, ...] = ()
    system_path: str = ""
    boot: str = ""
    rdma: str = ""
    rdma_devices: tuple[str, ...] = ()
    cluster: str = ""
    interfaces: tuple[str, ...] = ()
    driverless_cards: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()

    @property
    def system(self) -> str:
        """What Nix calls it, such as 'x86_64-linux'."""
        architecture = _SYSTEM_ARCHITECTURES.get(self.architecture, self.architecture)
        return f"{architecture}-{self.kernel.lower()}"

    def disk(self, by_id: str) -> Disk | None:
        """The disk that a link in /dev/disk/by-id leads to."""
        return next((disk for disk in self.disks if by_id in disk.ids), None)


def local_machine_identity() -> tuple[str, str]:
    """The boot and the host name of this machine, as they are read from others."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    text = boot.read_text("utf-8").strip() if boot.exists() else ""
    return text, os.uname().nodename.partition(".")[0]


def identity_script() -> str:
    """What prints, on any machine, the part of parse_machine's sections that every survey needs."""
    return shipped_text("ops/deploy/identity.sh")


def script() -> str:
    """What is run on a machine that may be imaged."""
    return SHELL + identity_script() + shipped_text("ops/deploy/machine.sh")


def gather_machines(connections: Iterable[Connection]) -> dict[str, Machine | NixwulfError]:
    """The machines behind connections, by node, in parallel; why not, where one did not answer."""
    asked = script()

    def attempt(connection: Connection) -> Machine | NixwulfError:
        try:
            text = connection.script(asked, timeout_s=30)
            return parse_machine(check_numbers(connection.node.name, text))
        except NixwulfError as error:
            return error

    nodes = list(connections)
    return {c.node.name: found for c, found in zip(nodes, each(attempt, nodes), strict=True)}


def reach_machines(connections: Mapping[str, Connection]) -> dict[str, Machine | str]:
    """What answers for each node, or why none does; connections are opened all at once."""
    failures = open_all(connections.values())
    reached = [node for name, node in connections.items() if name not in failures]
    found = gather_machines(reached)
    return failures | {
        name: one if isinstance(one, Machine) else one.message for name, one in found.items()
    }


def parse_machine(text: str) -> Machine:
    """The machine of the script's output; what is not understood is left out."""
    sections: dict[str, str] = {}
    for part in f"\n{text}".split("\n== ")[1:]:
        name, _, content = part.partition("\n")
        sections.setdefault(name, content.strip())

    def first(name: str) -> str:
        return sections.get(name, "").partition("\n")[0].strip()

    release = dict(line.partition("=")[::2] for line in sections.get("os-release", "").splitlines())
    release = {key: value.strip("\"'") for key, value in release.items()}
    nixos = release.get("ID") == "nixos"
    disabled = first("kexec-disabled")
    secure = first("secure-boot")
    system_path = first("system")
    return Machine(
        kernel=first("kernel"),
        architecture=first("architecture"),
        hostname=first("hostname").partition(".")[0],
        os=release.get("PRETTY_NAME", ""),
        nixos=nixos,
        installer=nixos and release.get("VARIANT_ID") == "installer",
        product=first("product"),
        firmware=first("firmware"),
        firmware_version=first("firmware-version"),
        secure_boot=secure == "1" if secure else None,
        locked_down=bool(re.search(r"\[(integrity|confidentiality)\]", first("lockdown"))),
        kexec_disabled=disabled == "1" if disabled else None,
        memory=_memory(sections),
        user=first("user"),
        programs=frozenset(
            line.rpartition("/")[2] for line in sections.get("programs", "").splitlines()
        ),
        disks=_disks(
            sections.get("disks", ""),
            sections.get("disk-ids", ""),
            sections.get("disk-drivers", ""),
        ),
        system_path=system_path if system_path.startswith("/nix/store/") else "",
        boot=first("boot"),
        rdma=first("rdma"),
        rdma_devices=tuple(re.findall(r"^\s*(rdma_\w+)", sections.get("rdma-devices", ""), re.M)),
        cluster=first("cluster"),
        interfaces=tuple(dict.fromkeys(sections.get("interfaces", "").split())),
        driverless_cards=tuple(sections.get("network-cards-without-driver", "").split()),
        owned=tuple(sections.get("owned", "").splitlines()),
    )


def _memory(sections: dict[str, str]) -> int:
    kib = re.search(r"^MemTotal:\s*([0-9]{1,20}) kB", sections.get("memory", ""), re.M)
    if kib:
        return int(kib[1]) * 1024
    return _number(sections.get("memory-bytes", ""))


def _disks(listing: str, links: str, drivers: str) -> tuple[Disk, ...]:
    """Whole disks with all mountpoints on them; lsblk before 2.33 writes its numbers as text."""
    modules = {
        words[0]: tuple(words[1:]) for line in drivers.splitlines() if (words := line.split())
    }
    ids: dict[str, list[str]] = {}
    for line in links.splitlines():
        link, _, device = line.rpartition(" ")
        ids.setdefault(device, []).append(link)
    try:
        devices = json.loads(listing)["blockdevices"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    found = []
    for device in devices if isinstance(devices, list) else []:
        if not isinstance(device, dict) or device.get("type") != "disk":
            continue
        name = _device(device)
        size = _number(device.get("size"))
        if size == 0 or re.match(r"/dev/(zram|ram)[0-9]", name):
            continue
        found.append(
            Disk(
                name=name,
                size=size,
                model=_words(device.get("model")),
                serial=_words(device.get("serial")),
                ids=tuple(sorted(ids.get(name, []))),
                mountpoints=tuple(sorted({place for _, place in _named(device, "mountpoint")})),
                labels=tuple(_named(device, "partlabel")),
                read_only=_number(device.get("ro")) == 1,
                drivers=tuple(dict.fromkeys(modules.get(name, ()))),
            )
        )
    return tuple(found)


def _device(device: dict[str, Any]) -> str:
    return "/dev/" + str(device.get("name", "")).replace("!", "/")


def _named(device: dict[str, Any], column: str) -> Iterable[tuple[str, str]]:
    """A column of a device and of all that is on it, where there is text in it, with its device."""
    if isinstance(device.get(column), str):
        yield _device(device), device[column]
    children = device.get("children")
    for child in children if isinstance(children, list) else []:
        if isinstance(child, dict):
            yield from _named(child, column)


def _number(value: object) -> int:
    text = str(int(value) if isinstance(value, bool) else value).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else 0


def _words(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


_PAUSE_S = 2.0
_SETTLING_S = 30  # sshd may answer before every fabric has its address


@dataclass(frozen=True)
class Verified:
    """What a node was found to be, and what is wrong with it; nothing is when it is verified."""

    node: Node
    machine: Machine | None
    problems: tuple[str, ...]


def verify(
    cluster: Cluster,
    connections: Sequence[Connection],
    expected_paths: Mapping[str, str],
    wait_s: float,
) -> list[Verified]:
    """Verify nodes over new connections; one that restarts may take wait_s until it answers."""
    fresh = [connection.fresh() for connection in connections]
    deadline = time.monotonic() + wait_s
    machines = _wait(fresh, deadline)
    deadline = min(deadline, time.monotonic() + _SETTLING_S)
    while True:
        found = [
            _look(cluster, connection, machines[connection.node.name], expected_paths)
            for connection in fresh
        ]
        if not any(one.problems for one in found) or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE_S)
        machines = gather_machines(fresh)


def _look(
    cluster: Cluster,
    connection: Connection,
    machine: Machine | NixwulfError,
    expected_paths: Mapping[str, str],
) -> Verified:
    node = connection.node
    if not isinstance(machine, Machine):
        return Verified(node, None, (machine.message,))
    problems = machine_problems(node, machine, expected_paths.get(node.name))
    if not problems and machine.kernel == "Linux":
        problems = _fabric_problems(cluster, connection)
    if machine.kernel == "Darwin":
        problems += _rdma_problems(cluster, node, machine)
    return Verified(node, machine, tuple(problems))


def machine_problems(node: Node, machine: Machine, expected_path: str | None) -> list[str]:
    """What is wrong with the machine that answers; a wrong one is not asked for more."""
    name = node.name
    if machine.installer:
        return [
            f"Node {name!r} is in an installer ({machine.hostname!r}); take its image out, see the "
            "boot order in its firmware, or deploy it again."
        ]
    if machine.hostname != name:
        return [
            f"Node {name!r} answers as {machine.hostname!r}; deploy it, or correct its ssh address."
        ]
    if not machine.system_path:
        return [
            f"Node {name!r} runs {machine.os or machine.kernel!r}, which Nix did not make; deploy "
            "it."
        ]
    if expected_path and machine.system_path != expected_path:
        return [
            f"Node {name!r} runs {machine.system_path!r} and the flake makes {expected_path!r}; "
            "run 'nixwulf update'."
        ]
    return []


def _wait(connections: Sequence[Connection], deadline: float) -> dict[str, Machine | NixwulfError]:
    """The machines behind connections, asked again until each answers as itself, or time is up."""
    found = gather_machines(connections)
    while time.monotonic() < deadline:
        left = [c for c in connections if not _is_itself(c.node, found[c.node.name])]
        if not left:
            break
        time.sleep(_PAUSE_S)
        found |= gather_machines(left)
    return found


def _is_itself(node: Node, machine: Machine | NixwulfError) -> bool:
    return isinstance(machine, Machine) and not machine_problems(node, machine, None)


def _fabric_problems(cluster: Cluster, connection: Connection) -> list[str]:
    node = connection.node
    try:
        facts: Facts = gather([connection], ())[node.name]
    except NixwulfError as error:
        return [error.message]
    found = (
        fabric_problem(node, cluster.fabrics[name], end, facts)
        for name in node.fabric_names
        for end in node.ends(name)
    )
    return [problem for problem in found if problem]


def _rdma_problems(cluster: Cluster, node: Node, machine: Machine) -> list[str]:
    """Apple TN3205: RDMA is enabled in macOS Recovery only, and then ibv_devices lists rdma_en*."""
    kinds = {cluster.fabrics[name].kind for name in node.fabric_names}
    if machine.rdma_devices or not kinds & MAC_RDMA_KINDS:
        return []
    return [
        f"Node {node.name!r} has no RDMA device; run 'rdma_ctl enable' in macOS Recovery there, "
        "and see that it has macOS 26.2 or later and Thunderbolt 5."
    ]
