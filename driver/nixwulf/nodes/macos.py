"""Facts of macOS, of four of its own programs, where Linux has files.

Written from Apple's manual pages, from netstat's and vm_stat's sources
(https://github.com/apple-oss-distributions/network_cmds and system_cmds) and from outputs that
others published; not yet run on a Mac by this project. Each function finds its own lines in all
that was printed, and leaves out what it does not know.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nixwulf.core.files import DATA, read_toml
from nixwulf.nodes.interfaces import Cable, Interface, Medium, RdmaPort

SYSTEM = "Darwin"

# Without -n sysctl names each value, and goes on after a name that this macOS does not have.
VALUES: tuple[str, ...] = tuple(read_toml(DATA / "machine_files.toml")["macos"]["values"])

_VALUE = re.compile(rf"({'|'.join(map(re.escape, VALUES))}): (.*)")
_PAGE_SIZE = re.compile(r"Mach Virtual Memory Statistics: \(page size of ([0-9]{1,9}) bytes\)")
_PAGES = re.compile(r'"?([A-Z][a-zA-Z -]+)"?:\s+([0-9]{1,18})\.')
# Memory that a program may have without anything being paged out: what is free, what only repeats
# files (as in Linux's MemAvailable), and what programs have marked as purgeable. vm_stat counts
# speculative pages, which repeat files too, as file-backed and not as free.
_AVAILABLE = frozenset({"Pages free", "File-backed pages", "Pages purgeable"})
_INTERFACE = re.compile(r"([^\s:]+): flags=\S+ mtu ([0-9]{1,9})\b")
_ADDRESS = re.compile(r"\s+inet6? ([^\s%]+)")
_NETWORK = re.compile(r"\s+inet ([0-9.]+) netmask 0x([0-9a-f]{8})\b")
_DETAIL = re.compile(r"\s+(ether|media:|status:|member:) (.+)")
# What a wire was negotiated at: '10Gbase-T', '2500Base-T', '1000baseT'.
_MEDIA = re.compile(r"\(([0-9.]{1,5})(G?)base", re.IGNORECASE)
_SPEED = re.compile(r"([0-9]{1,4}) Gb/s")
_HARDWARE_PORT = re.compile(r"Hardware Port: (.+)\nDevice: (\S+)")
_RECEPTACLE = re.compile(r"Thunderbolt ([0-9]{1,2})")
_RDMA_PORT = re.compile(
    r"hca_id:\s*rdma_(\S+)(?:(?!hca_id:).)*?state:\s*(?:PORT_)?(\w+)", re.DOTALL
)
# Ipkts Ierrs Ibytes Opkts Oerrs Obytes Coll
_COUNTERS = 7


@dataclass(frozen=True)
class Port:
    """A network interface as ifconfig shows it; addresses are without the interface's name.

    details: of each line that has a name, what follows it; a bridge's members are joined by spaces.
    """

    mtu: int
    addresses: tuple[str, ...]
    networks: tuple[ipaddress.IPv4Interface, ...] = ()
    details: tuple[tuple[str, str], ...] = ()

    def detail(self, name: str) -> str:
        """The value of a line such as 'status: active'; of several lines all, empty without one."""
        return " ".join(value for key, value in self.details if key == name)


def values(lines: Iterable[str]) -> dict[str, str]:
    """sysctl's values by name."""
    matches = filter(None, map(_VALUE.fullmatch, lines))
    return {match[1]: match[2].strip() for match in matches}


def memory_available(lines: Iterable[str]) -> int:
    """Bytes of memory that nothing needs, of vm_stat; 0 where it lacks one of them."""
    size = 0
    pages: dict[str, int] = {}
    for line in lines:
        if head := _PAGE_SIZE.match(line):
            size = int(head[1])
        elif size and (count := _PAGES.fullmatch(line)):
            pages[count[1]] = int(count[2])
    known = pages.keys() >= _AVAILABLE
    return size * sum(pages[name] for name in _AVAILABLE) if known else 0


def ports(lines: Iterable[str]) -> dict[str, Port]:
    """Interfaces by name, of ifconfig."""
    found: dict[str, Port] = {}
    name = ""
    for line in lines:
        if head := _INTERFACE.match(line):
            name = head[1]
            found[name] = Port(int(head[2]), ())
        elif name in found and (address := _ADDRESS.match(line)):
            port = found[name]
            found[name] = replace(
                port,
                addresses=(*port.addresses, address[1]),
                networks=(*port.networks, *_networks(line)),
            )
        elif name in found and (detail := _DETAIL.match(line)):
            key, value = detail[1].rstrip(":"), detail[2].strip()
            found[name] = replace(found[name], details=(*found[name].details, (key, value)))
        elif not line[:1].isspace():
            name = ""
    return found


def _networks(line: str) -> Iterator[ipaddress.IPv4Interface]:
    match = _NETWORK.match(line)
    if match:
        mask = ipaddress.IPv4Address(int(match[2], 16))
        try:
            yield ipaddress.IPv4Interface(f"{match[1]}/{mask}")
        except ValueError:
            return


def interfaces(
    ifconfig: str, hardware_ports: str, thunderbolt: str, rdma_ports: str
) -> tuple[Interface, ...]:
    """The interfaces of a Mac, without the loopback; what is not understood is left out.

    Args:
        hardware_ports: what `networksetup -listallhardwareports` printed: what each port is.
        thunderbolt: what `system_profiler SPThunderboltDataType -json` printed: the cables.
        rdma_ports: what `ibv_devinfo` printed, where RDMA is enabled.
    """
    names = {device: name for name, device in _HARDWARE_PORT.findall(hardware_ports)}
    buses = _buses(thunderbolt)
    rdma = dict(_RDMA_PORT.findall(rdma_ports))
    found = []
    for name, port in ports(ifconfig.splitlines()).items():
        receptacle = _RECEPTACLE.fullmatch(names.get(name, ""))
        bus = buses.get(receptacle[1], {}) if receptacle else {}
        media = _MEDIA.search(port.detail("media"))
        speed = float(media[1]) / (1 if media[2] else 1000) if media else _cable_gbps(bus)
        if not name.startswith("lo"):
            found.append(
                Interface(
                    name=name,
                    medium=_medium(name, names.get(name, ""), port, names),
                    carrier=port.detail("status") == "active",
                    mtu=port.mtu,
                    addresses=port.networks,
                    mac=port.detail("ether").lower(),
                    speed_gbps=speed or None,
                    rdma=(RdmaPort(f"rdma_{name}", rdma[name]),) if name in rdma else (),
                    cable=_cable(bus),
                )
            )
    return tuple(found)


def _medium(name: str, hardware_port: str, port: Port, names: Mapping[str, str]) -> Medium:
    if _RECEPTACLE.fullmatch(hardware_port):
        return "thunderbolt"
    if hardware_port == "Wi-Fi":
        return "wifi"
    if name.startswith(("utun", "ipsec", "ppp", "gif", "stf")):
        return "tunnel"
    if name.startswith("bridge"):
        members = [word for word in port.detail("member").split() if word in names]
        kinds = {"Thunderbolt" if "Thunderbolt" in names[one] else "" for one in members}
        return "thunderbolt" if kinds == {"Thunderbolt"} else "ethernet" if kinds else "virtual"
    return "ethernet" if hardware_port or name.startswith("en") else "virtual"


def _buses(thunderbolt: str) -> dict[str, dict[str, Any]]:
    """Thunderbolt's buses by the number of their receptacle, as a text."""
    try:
        listed = json.loads(thunderbolt)["SPThunderboltDataType"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    found = {}
    for bus in listed if isinstance(listed, list) else []:
        receptacle = bus.get("receptacle_1_tag") if isinstance(bus, dict) else None
        if isinstance(receptacle, dict):
            found[str(receptacle.get("receptacle_id_key"))] = bus
    return found


def _hosts(bus: Mapping[str, object]) -> list[dict[str, Any]]:
    """What is plugged in and is a host: only those have a domain of their own."""
    items = bus.get("_items")
    listed: Sequence[Any] = items if isinstance(items, list) else []
    return [one for one in listed if isinstance(one, dict) and "domain_uuid_key" in one]


def _cable(bus: Mapping[str, object]) -> Cable | None:
    hosts = _hosts(bus)
    ours = bus.get("domain_uuid_key")
    if not hosts or not isinstance(ours, str):
        return None
    theirs, peer = str(hosts[0]["domain_uuid_key"]), hosts[0].get("device_name_key", "")
    return Cable(ours.lower(), theirs.lower(), str(peer))


def _cable_gbps(bus: Mapping[str, Any]) -> float:
    """What it trained at; of a port without a cable the text begins with 'Up to'. 0: unknown."""
    speed = _SPEED.fullmatch(str(bus.get("receptacle_1_tag", {}).get("current_speed_key")))
    return float(speed[1]) if _hosts(bus) and speed else 0.0


def carried(lines: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """Bytes received and sent by interface, of `netstat -ibn`."""
    return {name: (received, sent) for name, received, sent in _rows(lines)}


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Each interface has one row of its link, and more of its addresses with the same numbers.

    The address of a link may be missing, so columns count from the right; a row that was cut has
    too few numbers. A star marks an interface that is down.
    """
    for line in lines:
        words = line.split()
        if len(words) < 3 or not re.fullmatch(r"<Link#[0-9]+>", words[2]):  # noqa: PLR2004
            continue
        numbers = words[3:][-_COUNTERS:]
        whole = len(numbers) == _COUNTERS and len(words) <= _COUNTERS + 4
        if whole and all(re.fullmatch(r"[0-9]{1,20}", number) for number in numbers):
            yield words[0].rstrip("*"), int(numbers[2]), int(numbers[5])


def connection(lines: Sequence[str], ports: Sequence[str]) -> int:
    """Bytes that one TCP connection, of the other end's and this port, carried both ways.

    0 where `netstat -anv` does not list it, or counts none, as of some macOS.
    """
    counted = any(" rxbytes " in line for line in lines)
    if not counted or len(ports) != 2:  # noqa: PLR2004
        return 0
    there, here = map(re.escape, ports)
    row = re.compile(
        rf"tcp\S* +\d+ +\d+ +\S+\.{here} +\S+\.{there} +\w+ +(\d{{1,20}}) +(\d{{1,20}}) "
    )
    return sum(
        int(count) for line in lines if (found := row.match(line)) for count in found.groups()
    )
