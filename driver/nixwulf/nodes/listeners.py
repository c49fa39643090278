"""Addresses and ports that a node listens on, as its kernel lists them."""

from __future__ import annotations

import ipaddress
import re

# The fourth column (proc_net_tcp in the kernel's documentation), and its value for listeners.
_STATE = 3
_LISTEN = "0A"


def listeners(text: str) -> set[tuple[str, int]]:
    """Addresses and ports that are listened on, of /proc/net/tcp and tcp6; other lines are not."""
    found = set()
    for line in text.splitlines():
        words = line.split()
        if words[_STATE : _STATE + 1] == [_LISTEN]:
            match = re.fullmatch(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})", words[1])
            if match:
                found.add((_address(match[1]), int(match[2], 16)))
    return found


def _address(digits: str) -> str:
    """The kernel prints each 32-bit word in the machine's order; nodes are little-endian."""
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    if len(words) == 1:
        return str(ipaddress.IPv4Address(words[0]))
    address = ipaddress.IPv6Address(b"".join(words))
    return str(address.ipv4_mapped or address)
