"""Network interfaces of a node: what each is, its addresses, its speed as linked, its RDMA devices.

Of Linux from `ip -j -d address` and files of sysfs, which any user may read; of macOS see macos.py.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nixwulf.nodes.hardware import Hardware, ipv4_of_gid

# What carries an interface: a fabric can be made of the first three.
Medium = Literal["ethernet", "thunderbolt", "infiniband", "wifi", "tunnel", "virtual"]

# Shell globs, read by one grep together with those of hardware.py.
FILES = (
    "/sys/class/net/*/speed",
    "/sys/class/net/*/phys_port_name",
    "/sys/class/net/*/uevent",
    "/sys/class/net/*/device/uevent",
    "/sys/class/infiniband/*/parent",
    "/sys/class/infiniband/*/sys_image_guid",
    "/sys/class/infiniband/*/ports/1/rate",
    "/sys/class/infiniband/*/ports/1/gid_attrs/types/?",
    "/sys/class/infiniband/*/ports/1/gid_attrs/types/1?",
    "/sys/class/infiniband/*/ports/1/gid_attrs/ndevs/?",
    "/sys/class/infiniband/*/ports/1/gid_attrs/ndevs/1?",
    "/sys/bus/thunderbolt/devices/*/unique_id",
)

# `ip -d` calls what is no device of its own by a kind. These lead to a wire; the others do not.
_ON_A_WIRE = frozenset({"", "veth", "vlan", "bond", "team", "macvlan", "ipvlan"})
_TUNNELS = frozenset(
    {"tun", "wireguard", "gre", "gretap", "ip6gre", "ipip", "sit", "vti", "xfrm", "vxlan", "geneve"}
)
_LINK_TYPES: dict[str, Medium] = {"ether": "ethernet", "infiniband": "infiniband"}
_XDOMAIN = re.compile(r"/([0-9]+-[0-9]+)/\1\.[0-9]+/net/")
_RATE = re.compile(r"([0-9.]{1,8}) Gb/sec")


@dataclass(frozen=True)
class RdmaPort:
    """Port 1 of an RDMA device on an interface; gids: of RoCE v2, the address of each by index.

    software: the kernel does it on any Ethernet (rxe), and no hardware is faster for it.
    """

    device: str
    state: str
    gids: Mapping[int, str] = field(default_factory=dict)
    software: bool = False


@dataclass(frozen=True)
class Cable:
    """A Thunderbolt cable to another host, by the identifiers that both ends have of each other."""

    ours: str
    theirs: str
    peer: str = ""


@dataclass(frozen=True)
class Interface:
    """A network interface; speed_gbps is as linked, None where it is not known.

    carrier: something is at the other end. mac: lower case, empty where it has none. physical_port:
    of a card that does RDMA, equal where interfaces are one port of one card; empty where unknown.
    """

    name: str
    medium: Medium
    carrier: bool
    mtu: int
    addresses: tuple[ipaddress.IPv4Interface, ...] = ()
    mac: str = ""
    speed_gbps: float | None = None
    rdma: tuple[RdmaPort, ...] = ()
    cable: Cable | None = None
    physical_port: str = ""


def parse_interfaces(
    addresses: str, files: Mapping[str, Sequence[str]], hardware: Hardware, folders: Iterable[str]
) -> tuple[Interface, ...]:
    """The interfaces of a Linux machine, without the loopback; what is not understood is left out.

    Args:
        files: lines of FILES and of hardware's, by path.
        folders: where the links /sys/class/net/* lead, and /sys/class/infiniband/*/device/net/*.
    """
    folders = list(folders)
    try:
        entries = [one for one in json.loads(addresses) if isinstance(one, dict)]
    except (ValueError, TypeError, RecursionError):
        return ()
    first = {path: lines[0].strip() for path, lines in files.items() if lines}
    found = [_interface(entry, entries, first, files, hardware, folders) for entry in entries]
    return tuple(one for one in found if one is not None)


def _interface(
    entry: dict[str, Any],
    entries: Sequence[dict[str, Any]],
    first: Mapping[str, str],
    files: Mapping[str, Sequence[str]],
    hardware: Hardware,
    folders: Sequence[str],
) -> Interface | None:
    name, mtu = entry.get("ifname"), entry.get("mtu")
    if not isinstance(name, str) or not isinstance(mtu, int) or "LOOPBACK" in _flags(entry):
        return None
    medium = _medium(entry, entries, files)
    place = next((folder for folder in folders if folder.endswith(f"/net/{name}")), "")
    rdma = tuple(_rdma_ports(name, first, hardware, folders))
    speed = _megabits(first.get(f"/sys/class/net/{name}/speed", ""))
    cable = None
    xdomain = _XDOMAIN.search(place)
    if xdomain:
        cable, speed = _thunderbolt(xdomain[1], first, hardware)
    if medium == "infiniband" and speed is None:
        speed = next((_rate(first, port.device) for port in rdma), None)
    mac = entry.get("address")
    return Interface(
        name=name,
        medium="thunderbolt" if xdomain and medium == "ethernet" else medium,
        carrier="LOWER_UP" in _flags(entry),
        mtu=mtu,
        addresses=tuple(_addresses(entry)),
        mac=mac.lower() if isinstance(mac, str) else "",
        speed_gbps=speed,
        rdma=rdma,
        cable=cable,
        physical_port=_physical_port(name, rdma, first),
    )


def _physical_port(name: str, rdma: Iterable[RdmaPort], first: Mapping[str, str]) -> str:
    """The card and its port behind an interface.

    A DGX Spark's card is four PCI functions, of which two and two are one port: all have its
    System image GUID (https://github.com/geerlingguy/sbc-reviews/issues/92), and the kernel names
    the port of each (https://github.com/NVIDIA/daqiri/pull/108).
    """
    port = first.get(f"/sys/class/net/{name}/phys_port_name", "")
    cards = [
        first.get(f"/sys/class/infiniband/{one.device}/sys_image_guid", "")
        for one in rdma
        if not one.software
    ]
    return f"{cards[0]} {port}" if port and cards and cards[0].strip("0:") else ""


def _flags(entry: Mapping[str, Any]) -> list[Any]:
    flags = entry.get("flags")
    return flags if isinstance(flags, list) else []


def _kind(entry: Mapping[str, Any]) -> str:
    info = entry.get("linkinfo")
    kind = info.get("info_kind", "") if isinstance(info, dict) else ""
    return kind if isinstance(kind, str) else ""


def _medium(
    entry: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    files: Mapping[str, Sequence[str]],
) -> Medium:
    kind, link_type = _kind(entry), str(entry.get("link_type"))
    if kind in _TUNNELS or link_type in {"none", "ppp", "tunnel", "sit", "ipgre"}:
        return "tunnel"
    if "DEVTYPE=wlan" in files.get(f"/sys/class/net/{entry.get('ifname')}/uevent", ()):
        return "wifi"
    if kind == "bridge":
        # One of containers has ends of theirs alone; one that a machine's address is on, a port.
        ports = [one for one in entries if one.get("master") == entry.get("ifname")]
        wired = any(_kind(port) in _ON_A_WIRE - {"veth"} for port in ports)
        return "ethernet" if wired else "virtual"
    if kind in _ON_A_WIRE:
        return _LINK_TYPES.get(link_type, "virtual")
    return "virtual"


def _addresses(entry: Mapping[str, Any]) -> Iterable[ipaddress.IPv4Interface]:
    info = entry.get("addr_info")
    for one in info if isinstance(info, list) else []:
        if isinstance(one, dict) and one.get("family") == "inet":
            try:
                yield ipaddress.IPv4Interface(f"{one.get('local')}/{one.get('prefixlen')}")
            except ValueError:
                continue


def _thunderbolt(
    xdomain: str, first: Mapping[str, str], hardware: Hardware
) -> tuple[Cable | None, float | None]:
    """The cable of a device '1-3' of the domain 1, whose own controller is '1-0'; and its speed."""
    ours, theirs = (
        first.get(f"/sys/bus/thunderbolt/devices/{device}/unique_id", "").lower()
        for device in (f"{xdomain.partition('-')[0]}-0", xdomain)
    )
    link = hardware.links.get(xdomain)
    cable = Cable(ours, theirs, link.peer if link else "") if ours and theirs else None
    speed = min(link.tx_gbps * link.tx_lanes, link.rx_gbps * link.rx_lanes) if link else None
    return cable, speed or None


def _rdma_ports(
    interface: str, first: Mapping[str, str], hardware: Hardware, folders: Sequence[str]
) -> Iterable[RdmaPort]:
    for device, port in sorted(hardware.rdma.items()):
        root = f"/sys/class/infiniband/{device}"
        on_it = {
            index
            for index in port.gids
            if first.get(f"{root}/ports/1/gid_attrs/ndevs/{index}") == interface
        }
        if on_it or f"{root}/device/net/{interface}" in folders:
            gids = {
                index: address
                for index in sorted(on_it)
                if first.get(f"{root}/ports/1/gid_attrs/types/{index}") == "RoCE v2"
                and (address := ipv4_of_gid(port.gids[index])) is not None
            }
            yield RdmaPort(device, port.state, gids, software=f"{root}/parent" in first)


def _megabits(text: str) -> float | None:
    """Gbit/s of Mbit/s; the kernel has -1, or its 32 bits without sign, where it does not know."""
    return int(text) / 1000 if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None


def _rate(first: Mapping[str, str], device: str) -> float | None:
    match = _RATE.match(first.get(f"/sys/class/infiniband/{device}/ports/1/rate", ""))
    return float(match[1]) or None if match else None
