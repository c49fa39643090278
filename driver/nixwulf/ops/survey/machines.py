"""Machines' own answers: one script, one round trip a machine, all at the same time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nixwulf.core.errors import GateError, InputError
from nixwulf.core.files import shipped_text
from nixwulf.core.printed import check_numbers
from nixwulf.core.query import grouped
from nixwulf.inventory.cluster import Node
from nixwulf.inventory.platforms import Signs
from nixwulf.nodes import interfaces, macos
from nixwulf.nodes.interfaces import Hardware, Interface
from nixwulf.nodes.ssh import Connection, each, open_all
from nixwulf.ops.deploy.machine import Machine, identity_script, parse_machine

_LIMIT_S = 60
# Of a line of /proc/bus/pci/devices: bus and function, vendor and device.
_PCI = re.compile(r"^[0-9a-f]{4}\t([0-9a-f]{4})([0-9a-f]{4})\b", re.MULTILINE)


@dataclass(frozen=True)
class Surveyed:
    """A machine as it answered: what tells its platform, and the address that ssh came to."""

    node: Node
    machine: Machine
    hardware: Hardware
    interfaces: tuple[Interface, ...]
    signs: Signs
    reached_at: str = ""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def identity(self) -> frozenset[tuple[str, str, str]]:
        """A key of one machine: addresses of its network cards, and when it was booted."""
        return frozenset(
            (self.machine.boot, one.name, one.mac)
            for one in self.interfaces
            if one.mac.strip("0:") and one.medium != "virtual"
        )


def survey(connections: Sequence[Connection]) -> list[Surveyed]:
    """Ask machines, in their order; raises GateError where one does not answer."""
    failures = list(open_all(connections).values())
    if failures:
        raise GateError(" ".join(failures))
    asked = script()
    texts = each(lambda one: one.script(asked, timeout_s=_LIMIT_S), connections)
    return [
        parse(one.node, check_numbers(one.node.name, text))
        for one, text in zip(connections, texts, strict=True)
    ]


def script() -> str:
    """Return the script for a machine, with the globs of the files that it prints."""
    globs = " ".join((*interfaces.HARDWARE_FILES, *interfaces.FILES))
    return identity_script() + shipped_text("ops/survey/survey.sh").replace('"$@"', globs)


def parse(node: Node, text: str) -> Surveyed:
    """A machine of the script's output; what is not understood is left out."""
    sections = {
        name: content.strip("\n")
        for name, _, content in (part.partition("\n") for part in f"\n{text}".split("\n== ")[1:])
    }
    parts = (line.partition(":") for line in sections.get("files", "").splitlines())
    lines = grouped((path, content) for path, _, content in parts)
    found = interfaces.parse_hardware(lines)
    ports = interfaces.parse_interfaces(
        sections.get("addresses", ""), lines, found, sections.get("folders", "").splitlines()
    )
    if sections.get("kernel", "").strip() == macos.SYSTEM:
        names = ("interfaces", "ports", "thunderbolt", "rdma-ports")
        ports = macos.interfaces(*(sections.get(name, "") for name in names))
    session = sections.get("ssh", "").split()
    reached_at = session[2] if len(session) == 4 else ""  # noqa: PLR2004 - both ends' address and port
    cores = re.search(r"Total Number of Cores: ([0-9]{1,3})\b", sections.get("displays", ""))
    machine = parse_machine(text)
    signs = Signs(
        machine.system,
        machine.product,
        sections.get("cpu", "").partition("\n")[0].rpartition(": ")[2].strip(),
        tuple(sections.get("compatible", "").split()),
        pci_cards(sections.get("pci", "")),
        found.targets,
        vram_gib(found),
        int(cores[1]) if cores else 0,
    )
    return Surveyed(node, machine, found, ports, signs, reached_at)


def pci_cards(text: str) -> tuple[str, ...]:
    """'vendor:device' of each line of /proc/bus/pci/devices."""
    return tuple(map(":".join, _PCI.findall(text)))


def vram_gib(hardware: Hardware) -> frozenset[int]:
    """The sizes of its cards' memory that are known, GiB."""
    return frozenset(round(gpu.vram_bytes / 2**30) for gpu in hardware.gpus) - {0}


def check_different(machines: Sequence[Surveyed]) -> None:
    """Raise InputError where two names lead to one machine."""
    for index, one in enumerate(machines):
        for other in machines[:index]:
            if one.identity & other.identity:
                raise InputError(
                    f"{other.node.ssh!r} and {one.node.ssh!r} are one machine, "
                    f"{one.machine.hostname!r}, by its network cards; leave one of them out."
                )


_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40


def node_names(machines: Sequence[Surveyed]) -> list[str]:
    """A name for each: its host name, or where two have the same, what ssh calls it."""
    hosts = [_plain(one.machine.hostname) for one in machines]
    called = [_plain(one.node.ssh.rpartition("@")[2]) for one in machines]
    return [
        host if host and hosts.count(host) == 1 and host not in called[:index] else name
        for index, (host, name) in enumerate(zip(hosts, called, strict=True))
    ]


def _plain(text: str) -> str:
    return _NAME.sub("-", text).strip("._-")[:_LONGEST_NAME]
