"""Thunderbolt and USB4 links, as sysfs and the kernel's log tell of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nixwulf.outputs import ParseError

_SPEED = r"([0-9]{1,4}(?:\.[0-9]{1,3})?) Gb/s"
_LANES = r"([0-9]{1,4})"
_LISTED = re.compile(
    rf"\s*(\d+-\d+) (\S+) tx={_SPEED}x{_LANES} rx={_SPEED}x{_LANES}\s*", flags=re.ASCII
)
_HOST = re.compile(
    r"thunderbolt (\d+-\d+): new host found, vendor=(0x[0-9a-f]+) device=(0x[0-9a-f]+)", re.ASCII
)
_NAMED = re.compile(r"thunderbolt (\d+-\d+): (\S+) (\S+)\s*$", re.ASCII)


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
class Host:
    """A host that the kernel found at the other end of a cable; IDs are as it prints them."""

    vendor: str
    device: str
    name: str = ""


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


def parse(text: str) -> dict[str, Link]:
    """Links by device of lines such as '0-2 strix-2 tx=20.0 Gb/sx2 rx=10.0 Gb/sx2'.

    Lines without 'tx=' are the shell's; raises ParseError for one that has it and is no link.
    """
    links = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LISTED.fullmatch(line)
        if match:
            device, peer, tx, tx_lanes, rx, rx_lanes = match.groups()
            links[device] = Link(peer, float(tx), int(tx_lanes), float(rx), int(rx_lanes))
        elif " tx=" in line and "$" not in line:
            raise ParseError(
                f"thunderbolt: line {number} is {line.strip()[:80]!r}, expected 'DEVICE PEER "
                "tx=SPEED Gb/sxLANES rx=SPEED Gb/sxLANES'."
            )
    if not links:
        raise ParseError("thunderbolt: no link in the output, expected 'DEVICE PEER tx=... rx=...'")
    return links


def parse_log(text: str) -> dict[str, Host]:
    """Hosts by device of the kernel's log; empty when it found none."""
    hosts: dict[str, Host] = {}
    for line in text.splitlines():
        found, named = _HOST.search(line), _NAMED.search(line)
        if found:
            hosts[found[1]] = Host(found[2], found[3])
        elif named and named[1] in hosts:
            known = hosts[named[1]]
            hosts[named[1]] = Host(known.vendor, known.device, named[3])
    return hosts


def recognises(text: str) -> bool:
    """A line of a link, or a host in the kernel's log."""
    return any(_LISTED.fullmatch(line) or _HOST.search(line) for line in text.splitlines())
