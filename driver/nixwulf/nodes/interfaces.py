"""Hardware and network interfaces of a node.

GPUs, cables, RDMA devices and frequency limits are of files of sysfs. What each interface is, its
addresses, its speed as linked and its RDMA devices: of Linux from `ip -j -d address` and files of
sysfs, all of which any user may read; of macOS see macos.py.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nixwulf.core.files import DATA, read_toml

_FILES = read_toml(DATA / "machine_files.toml")["linux"]
HARDWARE_FILES: tuple[str, ...] = tuple(_FILES["hardware"])
FILES: tuple[str, ...] = tuple(_FILES["interfaces"])
DOCTOR_FILES: tuple[str, ...] = (*HARDWARE_FILES, *FILES, *_FILES["doctor"])

AMD = "0x1002"
ROCE_V2 = "RoCE v2"
_OF_GIDS = ("gids", "gid_attrs/types")
_SPEED = r"([0-9]{1,4}(?:\.[0-9]{1,3})?) Gb/s"
_LANES = r"([0-9]{1,4})"
_MES_MASK = 0xFFF
# Cooling devices that slow a processor down; the others are fans.
_SLOWING = re.compile(r"Processor|.*cpufreq.*|.*devfreq.*|intel_powerclamp|TCC Offset")


@dataclass(frozen=True)
class Gpu:
    """A graphics card; its PCI vendor, memory in bytes, the MES's firmware; 0 where unknown."""

    vendor: str
    gtt_bytes: int = 0
    vram_bytes: int = 0
    mes: int = 0


@dataclass(frozen=True)
class Link:
    """A cable to another host: the peer's name, Gbit/s of one lane and the lanes, each way."""

    peer: str
    tx_gbps: float
    tx_lanes: int
    rx_gbps: float
    rx_lanes: int

    def document(self) -> dict[str, str]:
        """As the kernel's files have it; the peer is a host's name and stays out of records."""
        return {
            "tx_speed": f"{self.tx_gbps:.1f} Gb/s",
            "tx_lanes": str(self.tx_lanes),
            "rx_speed": f"{self.rx_gbps:.1f} Gb/s",
            "rx_lanes": str(self.rx_lanes),
        }


@dataclass(frozen=True)
class RdmaDevice:
    """Port 1 of an RDMA device: PCI vendor (empty for software), state, GIDs and types by index."""

    vendor: str
    state: str
    gids: Mapping[int, str]
    types: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hardware:
    """The hardware of a node; empty where a fact could not be read.

    targets: GPUs as LLVM names them; slowing: the cooling devices that could slow a processor, and
    their state (0: they do not); throttled: the Raspberry Pi firmware's bits.
    """

    gpus: tuple[Gpu, ...] = ()
    targets: frozenset[str] = frozenset()
    nvidia_driver: str = ""
    links: Mapping[str, Link | None] = field(default_factory=dict)
    rdma: Mapping[str, RdmaDevice] = field(default_factory=dict)
    slowing: Mapping[str, int] = field(default_factory=dict)
    throttled: int | None = None
    governor: str = ""
    governor_driver: str = ""
    energy_preference: str = ""
    platform_profile: str = ""
    linux_firmware: str = ""

    def document(self) -> dict[str, str]:
        """What a record keeps beside the older facts: no name and no GID, which has an address."""
        known = {
            "governor": self.governor,
            "energy_preference": self.energy_preference,
            "platform_profile": self.platform_profile,
            "linux_firmware": self.linux_firmware,
            "gpu": " ".join(sorted(self.targets)),
            "nvidia_driver": self.nvidia_driver,
            "mes": " ".join(hex(gpu.mes) for gpu in self.gpus if gpu.mes),
        }
        states = {f"rdma {name} state": device.state for name, device in self.rdma.items()}
        cables = {
            f"cable {name} {key}": value
            for name, link in self.links.items()
            if link is not None
            for key, value in link.document().items()
        }
        return {key: value for key, value in {**known, **states, **cables}.items() if value}


def parse_hardware(files: Mapping[str, list[str]]) -> Hardware:
    """The hardware of lines by file; what is not as the kernel writes it is left out."""
    folders = ("/sys/", "/proc/driver/", "/run/")
    first = {path: lines[0].strip() for path, lines in files.items() if path.startswith(folders)}
    cpufreq = "/sys/devices/system/cpu/cpu0/cpufreq"
    # Its path has a colon of its own, soc:firmware, so that the rest of it begins the line.
    throttled = [v for v in first.values() if v.startswith("firmware/get_throttled:")]
    return Hardware(
        gpus=tuple(map(_gpu, _folders(first, r"/sys/class/drm/(card\d+)/device/(.+)").values())),
        targets=frozenset(_targets(files)),
        nvidia_driver=_nvidia(first.get("/proc/driver/nvidia/version", "")),
        links=_links(first),
        rdma=_rdma(first),
        slowing=_slowing(first),
        throttled=_hexadecimal(throttled[0].rpartition(":")[2]) if throttled else None,
        governor=first.get(f"{cpufreq}/scaling_governor", ""),
        governor_driver=first.get(f"{cpufreq}/scaling_driver", ""),
        energy_preference=first.get(f"{cpufreq}/energy_performance_preference", ""),
        platform_profile=first.get("/sys/firmware/acpi/platform_profile", ""),
        linux_firmware=first.get("/run/booted-system/etc/nixwulf/linux-firmware", ""),
    )


def _folders(first: Mapping[str, str], pattern: str) -> dict[str, dict[str, str]]:
    """Files by the folder (the pattern's first group), each by its name (the second)."""
    found: dict[str, dict[str, str]] = {}
    for path, value in first.items():
        match = re.fullmatch(pattern, path)
        if match:
            found.setdefault(match[1], {})[match[2]] = value
    return found


def _gpu(files: Mapping[str, str]) -> Gpu:
    mes = _hexadecimal(files.get("fw_version/mes_fw_version", "")) or 0
    return Gpu(
        files.get("vendor", ""),
        whole_number(files.get("mem_info_gtt_total", "")),
        whole_number(files.get("mem_info_vram_total", "")),
        mes & _MES_MASK,
    )


def _targets(files: Mapping[str, list[str]]) -> list[str]:
    """gfx_target_version 110501 is gfx1151: major, two digits of minor, two of stepping (hex)."""
    found = []
    for path, lines in files.items():
        if path.startswith("/sys/class/kfd/"):
            for line in lines:
                match = re.fullmatch(r"gfx_target_version (\d{1,2})(\d\d)(\d\d)", line, re.ASCII)
                if match:
                    found.append(f"gfx{int(match[1])}{int(match[2]):x}{int(match[3]):x}")
    return found


def _nvidia(text: str) -> str:
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text, re.ASCII)
    return match[1] if match else ""


def _links(first: Mapping[str, str]) -> dict[str, Link | None]:
    """Cables to other hosts; what has `authorized` is a dock or a disk."""
    folders = _folders(first, r"/sys/bus/thunderbolt/devices/([^/]+)/([^/]+)")
    return {
        name: link_of(files)
        for name, files in folders.items()
        if "rx_speed" in files and "authorized" not in files
    }


def link_of(attributes: Mapping[str, str]) -> Link | None:
    """The link of one device of /sys/bus/thunderbolt by its files, or None where one lacks."""
    speeds = [re.fullmatch(_SPEED, attributes.get(f"{way}_speed", "")) for way in ("tx", "rx")]
    lanes = [re.fullmatch(_LANES, attributes.get(f"{way}_lanes", "")) for way in ("tx", "rx")]
    (tx, rx), (tx_lanes, rx_lanes) = speeds, lanes
    if not (tx and rx and tx_lanes and rx_lanes):
        return None
    return Link(
        attributes.get("device_name", ""),
        float(tx[1]),
        int(tx_lanes[0]),
        float(rx[1]),
        int(rx_lanes[0]),
    )


def _rdma(first: Mapping[str, str]) -> dict[str, RdmaDevice]:
    devices = {}
    for name, files in _folders(first, r"/sys/class/infiniband/([^/]+)/(.+)").items():
        gids, types = (
            {int(file.rpartition("/")[2]): value for file, value in files.items() if matches(file)}
            for matches in (
                re.compile(rf"ports/1/{kind}/[0-9]{{1,3}}").fullmatch for kind in _OF_GIDS
            )
        )
        state = files.get("ports/1/state", "").rpartition(": ")[2]
        devices[name] = RdmaDevice(files.get("device/vendor", ""), state, gids, types)
    return devices


def ipv4_of_gid(gid: str) -> str | None:
    """The IPv4 address that a GID is made of, or None."""
    try:
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None
    return str(mapped) if mapped else None


def _slowing(first: Mapping[str, str]) -> dict[str, int]:
    folders = _folders(first, r"/sys/class/thermal/(cooling_device\d+)/(type|cur_state)")
    return {
        f"{files['type']} ({name})": whole_number(files.get("cur_state", ""))
        for name, files in folders.items()
        if _SLOWING.fullmatch(files.get("type", ""))
    }


def whole_number(text: str) -> int:
    """Of a text of digits; 0 for any other."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", text) else None


# What carries an interface: a fabric can be made of the first three.
Medium = Literal["ethernet", "thunderbolt", "infiniband", "wifi", "tunnel", "virtual"]

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

    files: lines of FILES and HARDWARE_FILES, by path. folders: where the links /sys/class/net/*
    lead, and /sys/class/infiniband/*/device/net/*.
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


def _flags(entry: Mapping[str, object]) -> list[Any]:
    flags = entry.get("flags")
    return flags if isinstance(flags, list) else []


def _kind(entry: Mapping[str, object]) -> str:
    info = entry.get("linkinfo")
    kind = info.get("info_kind", "") if isinstance(info, dict) else ""
    return kind if isinstance(kind, str) else ""


def _medium(
    entry: Mapping[str, object],
    entries: Sequence[Mapping[str, object]],
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


def _addresses(entry: Mapping[str, object]) -> Iterable[ipaddress.IPv4Interface]:
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
                if port.types.get(index) == ROCE_V2
                and (address := ipv4_of_gid(port.gids[index])) is not None
            }
            yield RdmaPort(device, port.state, gids, software=f"{root}/parent" in first)


def _megabits(text: str) -> float | None:
    """Gbit/s of Mbit/s; the kernel has -1, or its 32 bits without sign, where it does not know."""
    return int(text) / 1000 if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None


def _rate(first: Mapping[str, str], device: str) -> float | None:
    match = _RATE.match(first.get(f"/sys/class/infiniband/{device}/ports/1/rate", ""))
    return float(match[1]) or None if match else None
