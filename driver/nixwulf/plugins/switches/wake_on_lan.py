"""Wake-on-LAN, which turns on and cannot turn off.

https://www.amd.com/content/dam/amd/en/documents/archived-tech-docs/white-papers/20213.pdf
"""

from __future__ import annotations

import socket

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import PowerSwitch
from nixwulf.plugins.switches import SwitchKind

_PORT = 9


def packet_of(mac: str) -> bytes:
    """The packet that wakes the network card of an address."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16


def _cycle(node: str, switch: PowerSwitch, off_s: float) -> None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.sendto(packet_of(switch.mac), (switch.broadcast, _PORT))
    except OSError as error:
        raise NixwulfError(
            f"Cannot wake {node!r} at {switch.broadcast!r}: {error.strerror}; set the broadcast "
            "address of its network in power_switch."
        ) from None


SWITCHES = (SwitchKind("wake-on-lan", "mac", _cycle, optional=("broadcast",)),)
