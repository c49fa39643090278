"""A node's hardware by the files of sysfs: GPUs, cables, RDMA devices, frequency limits."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Shell globs, read by one grep; each is a file of one line that any user may read. The firmware of
# amdgpu is also in debugfs, which only root reads.
FILES = (
    "/proc/driver/nvidia/version",
    "/sys/class/drm/card*/device/vendor",
    "/sys/class/drm/card*/device/mem_info_gtt_total",
    "/sys/class/drm/card*/device/mem_info_vram_total",
    "/sys/class/drm/card*/device/fw_version/mes_fw_version",
    "/sys/class/kfd/kfd/topology/nodes/*/properties",
    "/sys/bus/thunderbolt/devices/*/?x_speed",
    "/sys/bus/thunderbolt/devices/*/?x_lanes",
    "/sys/bus/thunderbolt/devices/*/device_name",
    "/sys/bus/thunderbolt/devices/*/authorized",
    "/sys/class/infiniband/*/device/vendor",
    "/sys/class/infiniband/*/ports/1/state",
    "/sys/class/infiniband/*/ports/1/gids/?",
    "/sys/class/infiniband/*/ports/1/gids/1?",
    "/sys/class/thermal/cooling_device*/type",
    "/sys/class/thermal/cooling_device*/cur_state",
    "/sys/devices/platform/soc*/*firmware/get_throttled",
    "/sys/devices/system/cpu/cpu0/cache/index3/size",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference",
    "/sys/firmware/acpi/platform_profile",
    "/run/booted-system/etc/nixwulf/linux-firmware",
)

AMD = "0x1002"
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
    """Port 1 of an RDMA device: PCI vendor (empty for software), state, and GIDs by index."""

    vendor: str
    state: str
    gids: Mapping[int, str]


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
        _number(files.get("mem_info_gtt_total", "")),
        _number(files.get("mem_info_vram_total", "")),
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
        gids = {
            int(file.rpartition("/")[2]): gid
            for file, gid in files.items()
            if re.fullmatch(r"ports/1/gids/[0-9]{1,3}", file)
        }
        state = files.get("ports/1/state", "").rpartition(": ")[2]
        devices[name] = RdmaDevice(files.get("device/vendor", ""), state, gids)
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
        f"{files['type']} ({name})": _number(files.get("cur_state", ""))
        for name, files in folders.items()
        if _SLOWING.fullmatch(files.get("type", ""))
    }


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", text) else None
