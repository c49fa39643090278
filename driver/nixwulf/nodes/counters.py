"""Counters of a node's interfaces and RDMA devices, read in one round trip."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nixwulf.core.files import shipped_text
from nixwulf.core.printed import check_numbers
from nixwulf.nodes import macos
from nixwulf.nodes.ssh import Connection, Unreachable, run_all

SOFT_ROCE = "rdma_rxe"

_SCRIPT = shipped_text("nodes/counters.sh")

# InfiniBand counts data in words of four octets (IBTA, PortXmitData), and so do RoCE's drivers.
_WORD = 4
_DEVICE_FILE = re.compile(r"/sys/class/infiniband/([^/]+)/(.+)")
_PORT_DATA = re.compile(r"ports/1/counters/port_(?:xmit|rcv)_data")
# Names as in the kernel: irdma ip4OutOctets, efa and bnxt_re tx_bytes, rxe sent_pkts.
_HARDWARE_BYTES = re.compile(r"ports/1/hw_counters/(?:ip[46](?:In|Out)Octets|[rt]x_bytes)")
_HARDWARE_PACKETS = re.compile(
    r"ports/1/hw_counters/(?:ip[46](?:In|Out)Pkts|[rt]x_pkts|sent_pkts|rcvd_pkts)"
)
# thunderbolt_ibverbs has no port counters; its debugfs file, for root only, counts frames.
_USB4_SUMMARY = "/sys/kernel/debug/thunderbolt_ibverbs/summary"
# The largest packet of InfiniBand and RoCE, and the frame of USB4.
_PACKET_BYTES = 4096
_USB4_FRAMES = re.compile(r"data_[rt]x_completed: (\d+)")
# Of a TCP connection, as `ss -i` prints it: https://man7.org/linux/man-pages/man8/ss.8.html
_CONNECTION = re.compile(r"\bbytes_sent:(\d+).*\bbytes_received:(\d+) segs_out:(\d+) segs_in:(\d+)")
_HEADERS = 66  # Ethernet's, IPv4's and TCP's with a time stamp


@dataclass(frozen=True)
class RdmaCounters:
    """What an RDMA device has carried, both ways; None is a counter that it does not have."""

    driver: str
    bytes: int | None
    packets: int | None

    @property
    def carried(self) -> int:
        """Bytes; of a device that counts packets only, the most that they can hold."""
        return self.bytes if self.bytes is not None else (self.packets or 0) * _PACKET_BYTES


@dataclass(frozen=True)
class Counters:
    """What a node's interfaces have carried, both ways, in bytes, and its RDMA devices.

    management: the interface by which ssh reaches the node; None when that cannot be read.
    counts_rdma: whether the system has counters of RDMA devices at all. own: bytes of the driver's
    own connection to the node, with their headers, which its interface carried too; 0 where the
    system does not show them.
    """

    interfaces: Mapping[str, int]
    management: str | None
    rdma: Mapping[str, RdmaCounters]
    counts_rdma: bool = True
    own: int = 0


def read(connections: Iterable[Connection]) -> dict[str, Counters]:
    """Counters of nodes by name, in parallel, one round trip a node; raises Unreachable."""
    nodes = list(connections)
    counters = {}
    for node, answer in zip(
        nodes, run_all(nodes, ["sh", "-c", _SCRIPT], timeout_s=30), strict=True
    ):
        if isinstance(answer, Unreachable):
            raise answer
        counters[node.node.name] = parse(check_numbers(node.node.name, answer.stdout))
    return counters


def parse(text: str) -> Counters:
    """Counters of the script's output; lines that are not known are left out."""
    interfaces: dict[str, int] = {}
    addresses: dict[str, str] = {}
    management = ""
    files: dict[str, list[str]] = {}
    lines = text.splitlines()
    for line in lines:
        path, _, content = line.partition(":")
        assigned = re.match(r"\d+: (\S+)\s+inet6? ([^/\s]+)", line)
        if assigned:
            addresses[_plain(assigned[2])] = assigned[1]
        elif path == "management":
            management = _plain(content)
        elif path == "/proc/net/dev":
            name, _, values = content.partition(":")
            numbers = values.split()
            if len(numbers) > 8 and numbers[0].isdigit() and numbers[8].isdigit():  # noqa: PLR2004
                interfaces[name.strip()] = int(numbers[0]) + int(numbers[8])
        else:
            files.setdefault(path, []).append(content)
    if files.get("system") == [macos.SYSTEM]:
        return _of_macos(lines, management, "".join(files.get("ports", [])).split())
    sent = _CONNECTION.search(text)
    own = [int(number) for number in sent.groups()] if sent else []
    return Counters(
        interfaces,
        addresses.get(management),
        _devices(files),
        own=sum(own[:2]) + _HEADERS * sum(own[2:]),
    )


def _of_macos(lines: list[str], management: str, ports: list[str]) -> Counters:
    """No counter of RDMA over Thunderbolt is known to this project."""
    names = {
        _plain(address): name
        for name, port in macos.ports(lines).items()
        for address in port.addresses
    }
    interfaces = {name: sum(both) for name, both in macos.carried(lines).items()}
    own = macos.connection(lines, ports)
    return Counters(interfaces, names.get(management), {}, counts_rdma=False, own=own)


def _plain(address: str) -> str:
    """An address in one spelling: an IPv4 address that arrived in IPv6's form is the same."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _devices(files: Mapping[str, list[str]]) -> dict[str, RdmaCounters]:
    known: dict[str, dict[str, list[str]]] = {}
    for path, lines in files.items():
        match = _DEVICE_FILE.fullmatch(path)
        if match:
            known.setdefault(match[1], {})[match[2]] = lines
    frames = [int(found) for found in _USB4_FRAMES.findall("\n".join(files.get(_USB4_SUMMARY, [])))]
    return {name: _device(own, frames) for name, own in known.items()}


def _device(files: Mapping[str, list[str]], usb4_frames: list[int]) -> RdmaCounters:
    words = _numbers(files, _PORT_DATA)
    octets = [_WORD * number for number in words] or _numbers(files, _HARDWARE_BYTES)
    packets = _numbers(files, _HARDWARE_PACKETS)
    if not octets and not packets:
        packets = usb4_frames
    driver = next(
        (line[7:] for line in files.get("device/uevent", []) if line.startswith("DRIVER=")), ""
    )
    # Only a soft device hangs on an interface instead of a PCI device.
    driver = driver or (SOFT_ROCE if "parent" in files else "unknown")
    return RdmaCounters(driver, sum(octets) if octets else None, sum(packets) if packets else None)


def _numbers(files: Mapping[str, list[str]], pattern: re.Pattern[str]) -> list[int]:
    values = (lines[0].strip() for path, lines in files.items() if pattern.fullmatch(path))
    return [int(value) for value in values if value.isdigit()]
