"""A cluster file's content of what machines said: its document, and what is uncertain about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core.text import format_significant, plural
from nixwulf.inventory.cluster import RDMA_KINDS
from nixwulf.inventory.platforms import platforms_like, platforms_of
from nixwulf.nodes import macos
from nixwulf.nodes.hardware import AMD
from nixwulf.nodes.interfaces import Interface, RdmaPort
from nixwulf.ops.deploy.refusals import shown
from nixwulf.ops.survey.machines import Surveyed
from nixwulf.ops.survey.reach import Endpoint
from nixwulf.ops.survey.wires import LeftOut, Wire, meshes

UNKNOWN_PLATFORM = "generic-x86_64"
_VENDORS = {AMD: "amd", "0x10de": "nvidia"}
# Where nothing says a speed: what is usual, and a comment that it is only that.
_USUAL_GBPS = {"ethernet": 1, "thunderbolt": 20, "infiniband": 100}
_LONGEST_NAME = 40
_MOST_NAMED = 4

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Draft:
    """A cluster file to be: its document, comments by the place that they stand above, the rest.

    notes: above a key, such as ('fabrics', 'lan', 'mtu'), or above the table that it names.
    left_out: what the machines have and the file has not, with the reason, a line each.
    """

    document: dict[str, Any]
    notes: Mapping[Place, tuple[str, ...]]
    left_out: tuple[str, ...] = ()

    @property
    def uncertain(self) -> list[str]:
        """The comments above keys: each says why a value may be wrong."""
        return [text for place, texts in self.notes.items() if len(place) > 2 for text in texts]  # noqa: PLR2004


def draft(
    name: str, machines: Sequence[Surveyed], wires: Sequence[Wire], left: Iterable[LeftOut]
) -> Draft:
    """The cluster file of machines and of the wires between them, the fastest first.

    The network that ssh takes comes last among equals.
    """
    reached = {machine.reached_at for machine in machines}
    order = sorted(
        meshes(wires),
        key=lambda group: (_is_sshs(group[0], reached), -(group[0].speed_gbps or 0)),
    )
    notes: dict[Place, tuple[str, ...]] = {}
    names = _names([wire for group in order for wire in group])
    fabrics: dict[str, Any] = {}
    attachments: dict[str, dict[str, Any]] = {machine.name: {} for machine in machines}
    for group in order:
        for wire in group:
            fabric = names[id(wire)]
            rdma = _rdma(wire)
            fabrics[fabric], said = _fabric(wire, rdma)
            notes |= {("fabrics", fabric, key): texts for key, texts in said.items() if texts}
            notes["fabrics", fabric] = tuple(_headline(wire, group, reached))
            for end, port in zip(wire.members, rdma, strict=True):
                attachments[end.node][fabric] = _attachment(end, port, fabrics[fabric]["kind"])
    nodes = []
    for index, machine in enumerate(machines):
        platform, why = platform_of(machine)
        node = {"name": machine.name, "platform": platform, "ssh": machine.node.ssh}
        on = attachments[machine.name]
        nodes.append({**node, **({"fabrics": on} if on else {})})
        notes["nodes", index, "platform"] = why
        notes["nodes", index, "disk"] = tuple(_disks(machine))
    document = {"name": name, "fabrics": fabrics, "nodes": nodes}
    return Draft(document, {k: v for k, v in notes.items() if v}, tuple(_sentences(left, machines)))


def platform_of(machine: Surveyed) -> tuple[str, tuple[str, ...]]:
    """The platform of a machine, and why it may be another one."""
    product = machine.machine.product
    known = platforms_of(product)
    if len(known) == 1:
        return known[0], ()
    system, hardware = machine.machine.system, machine.hardware
    vendors = [_VENDORS[gpu.vendor] for gpu in hardware.gpus if gpu.vendor in _VENDORS]
    vendor = next(iter(vendors), "apple" if machine.machine.kernel == macos.SYSTEM else "")
    like = platforms_like(system, vendor, next(iter(sorted(hardware.targets)), None))
    why = f"No platform has the product {product!r}" if product else "The firmware names no product"
    if len(like) == 1:
        return like[0], (f"{why}; the GPU is that of this platform.",)
    if like:
        return UNKNOWN_PLATFORM, (f"{why}; the GPU is that of {' and of '.join(like)}.",)
    return UNKNOWN_PLATFORM, (f"{why}: it is measured, and not predicted (docs/new-platform.md).",)


def _rdma(wire: Wire) -> list[RdmaPort | None]:
    """Each end's RDMA device, the one that works first; none where fewer than two ends have one."""
    ports = [
        min(
            (port for port in one.rdma if not port.software),
            key=lambda port: port.state != "ACTIVE",
            default=None,
        )
        for one in wire.interfaces
    ]
    return ports if len([port for port in ports if port]) > 1 else [None] * len(ports)


def _kind(wire: Wire, rdma: Sequence[RdmaPort | None]) -> str:
    media = {one.medium for one in wire.interfaces}
    if "infiniband" in media:
        return "infiniband"
    if not wire.is_thunderbolt:
        return "roce" if any(rdma) else "ethernet"
    if not any(rdma):
        return "thunderbolt-net"
    macs = all(port is None or port.device.startswith("rdma_en") for port in rdma)
    return "thunderbolt5-rdma" if macs else "usb4-rdma"


def _fabric(
    wire: Wire, rdma: Sequence[RdmaPort | None]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """A fabric's table, and comments by its keys."""
    kind = _kind(wire, rdma)
    speed = wire.speed_gbps or float(_USUAL_GBPS[wire.interfaces[0].medium])
    fabric = {
        "kind": kind,
        "speed_gbps": int(speed) if speed == int(speed) else speed,
        "mtu": wire.mtu,
        "subnet": str(wire.network),
    }
    notes = {
        "kind": tuple(_kind_notes(wire, kind, rdma)),
        "speed_gbps": tuple(_speed_notes(wire)),
        "mtu": tuple(_mtu_notes(wire)),
        "subnet": wire.crossed,
    }
    return fabric, notes


def _kind_notes(wire: Wire, kind: str, rdma: Sequence[RdmaPort | None]) -> Iterable[str]:
    media = sorted({one.medium for one in wire.interfaces})
    if len(media) > 1:
        yield f"Its ends differ: {' and '.join(media)}."
    for end, one, port in zip(wire.members, wire.interfaces, rdma, strict=True):
        if port is None and kind in RDMA_KINDS:
            yield f"{end.node} has no RDMA device on {end.interface} and takes part by tcp."
        elif port is None and one.rdma:
            devices = ", ".join(other.device for other in one.rdma)
            software = all(other.software for other in one.rdma)
            why = "RDMA in software" if software else "no other end has RDMA"
            yield f"{devices} of {end.node} is left out: {why}."
        elif port is not None:
            yield from _port_notes(end, one, port, kind)


def _port_notes(end: Endpoint, one: Interface, port: RdmaPort, kind: str) -> Iterable[str]:
    others = [other.device for other in one.rdma if other is not port and not other.software]
    if others:
        yield f"{end.interface} of {end.node} has the RDMA devices {', '.join(others)} too."
    if port.state != "ACTIVE":
        yield f"The port of {port.device} on {end.node} is {port.state or 'in no state'}."
    if kind in {"roce", "usb4-rdma"} and _gid_index(end, port) is None:
        yield (
            f"No GID of {port.device} on {end.node} is of RoCE v2 and {end.address.ip}: its "
            "gid_index is not known."
        )


def _gid_index(end: Endpoint, port: RdmaPort) -> int | None:
    wanted = str(end.address.ip)
    return next((index for index, address in port.gids.items() if address == wanted), None)


def _speed_notes(wire: Wire) -> Iterable[str]:
    speeds: dict[float, list[str]] = defaultdict(list)
    for end, one in zip(wire.members, wire.interfaces, strict=True):
        speeds[one.speed_gbps or 0.0].append(end.node)
    unknown = speeds.pop(0.0, [])
    if not speeds:
        yield "Nothing says the speed: this is what is usual; 'nixwulf bench links' measures it."
    elif unknown:
        yield f"The speed of {_some(unknown)} is not known."
    if len(speeds) > 1:
        parts = [
            f"{_some(nodes)} {format_significant(speed)}" for speed, nodes in sorted(speeds.items())
        ]
        yield f"Ends are linked at unlike speeds, Gbit/s: {'; '.join(parts)}."


def _mtu_notes(wire: Wire) -> Iterable[str]:
    mtus: dict[int, list[str]] = defaultdict(list)
    for end in wire.members:
        mtus[end.mtu].append(end.node)
    if not wire.mtu_known:
        yield "Small packets pass; of which size whole ones do could not be tried."
    elif wire.mtu < min(mtus):
        yield f"The interfaces have MTU {min(mtus)}; what is between them passes {wire.mtu}."
    if len(mtus) > 1:
        parts = [f"{_some(nodes)} {mtu}" for mtu, nodes in sorted(mtus.items())]
        yield f"MTUs of the interfaces differ: {'; '.join(parts)}."


def _attachment(end: Endpoint, port: RdmaPort | None, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {"interface": end.interface, "address": str(end.address.ip)}
    if port is not None:
        found["rdma_device"] = port.device
        index = 0 if kind == "infiniband" else _gid_index(end, port)
        if index is not None and kind != "thunderbolt5-rdma":
            found["gid_index"] = index
    return found


def _is_sshs(wire: Wire, reached: set[str]) -> bool:
    return any(str(end.address.ip) in reached for end in wire.members)


def _headline(wire: Wire, group: Sequence[Wire], reached: set[str]) -> Iterable[str]:
    ends = [f"{end.node} ({end.interface})" for end in wire.members]
    if wire.is_cable:
        yield f"A cable from {ends[0]} to {ends[1]}."
    else:
        yield f"{plural(len(ends), 'node')} that reach each other both ways."
    if len(group) > 1 and wire is group[0]:
        nodes = dict.fromkeys(end.node for one in group for end in one.members)
        yield f"It and the next {len(group) - 1} are the cables of a mesh of {', '.join(nodes)}."
    if _is_sshs(wire, reached):
        yield "ssh takes this network too."


def _names(wires: Sequence[Wire]) -> dict[int, str]:
    """A name for each, of its kind; of several that are alike with the interface or both ends."""
    bases = {
        id(wire): "cable" if wire.is_cable else {"ethernet": "lan"}.get(kind, kind)
        for wire in wires
        for kind in [_kind(wire, _rdma(wire))]
    }
    taken: set[str] = set()
    found: dict[int, str] = {}
    for wire in wires:
        base = bases[id(wire)]
        interfaces = {end.interface for end in wire.members}
        several = list(bases.values()).count(base) > 1
        ends = [end.node for end in wire.members] if wire.is_cable else sorted(interfaces)
        plain = f"{base}-{'-'.join(ends)}" if several else base
        fits = len(plain) <= _LONGEST_NAME and (
            wire.is_cable or len(interfaces) == 1 or not several
        )
        options = [plain] if fits else []
        options += [f"{base}-{number}" for number in range(1, len(wires) + 1)]
        found[id(wire)] = next(option for option in options if option not in taken)
        taken.add(found[id(wire)])
    return found


def _disks(machine: Surveyed) -> Iterable[str]:
    """What deploy could wipe, as comments: a line that is in the file is a decision."""
    for disk in machine.machine.disks:
        if disk.ids:
            used = f", mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
            yield f'disk = "{shown(disk)}"  # {disk.words}{used}'


def _sentences(left: Iterable[LeftOut], machines: Sequence[Surveyed]) -> Iterable[str]:
    """A line for each reason and interface: what is the same on many machines is said once."""
    grouped: dict[tuple[str, str], list[LeftOut]] = defaultdict(list)
    for one in left:
        grouped[one.interface, one.reason].append(one)
    for (interface, reason), ones in grouped.items():
        nodes = list(dict.fromkeys(one.node for one in ones))
        what = list(dict.fromkeys(one.what for one in ones))
        whose = "every node" if len(nodes) == len(machines) > 1 else _some(nodes)
        yield f"{interface} of {whose} ({_some(what)}): {reason}."


def _some(names: Sequence[str]) -> str:
    """The first of names, and how many there are beside them."""
    more = len(names) - _MOST_NAMED
    shown_ = names if more <= 1 else names[:_MOST_NAMED]
    return ", ".join(shown_) + (f" and {more} more" if more > 1 else "")
