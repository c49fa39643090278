"""Power switches: what turns a node off and on when nothing on it answers any more.

Sources of the requests: Shelly's first generation https://shelly-api-docs.shelly.cloud/gen1/
(/relay/N?turn=), the later ones
https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch (Switch.Set), Tasmota
https://tasmota.github.io/docs/Commands/ (Power<x>), wake-on-LAN's packet
https://www.amd.com/content/dam/amd/en/documents/archived-tech-docs/white-papers/20213.pdf.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import time

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import PowerSwitch

# Long enough for a power supply's capacitors.
OFF_S = 10.0
_TIMEOUT_S = 10.0
_COMMAND_S = 120
_WAKE_PORT = 9


def cycle(name: str, switch: PowerSwitch, off_s: float = OFF_S) -> None:
    """Turn a node off and on again; wake-on-LAN only turns on.

    Args:
        name: of the node, for messages.
        switch: what its power comes through.
        off_s: seconds for which it is off.

    Raises:
        NixwulfError: the switch did not do it.
    """
    if switch.kind == "command":
        _run(name, switch.command)
    elif switch.kind == "wake-on-lan":
        _wake(name, switch)
    else:
        _ask(name, switch, "off")
        time.sleep(off_s)
        _ask(name, switch, "on")


def request_of(switch: PowerSwitch, state: str) -> str:
    """The path and query that turn it 'on' or 'off'."""
    return {
        "shelly": f"/relay/{switch.channel}?turn={state}",
        "shelly-gen2": f"/rpc/Switch.Set?id={switch.channel}&on={str(state == 'on').lower()}",
        "tasmota": f"/cm?cmnd=Power{switch.channel + 1}%20{state.capitalize()}",
    }[switch.kind]


def packet_of(mac: str) -> bytes:
    """The packet that wakes the network card of an address."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16


def _ask(name: str, switch: PowerSwitch, state: str) -> None:
    import httpx

    url = switch.url.rstrip("/") + request_of(switch, state)
    try:
        # Switches are on the local network: no proxy knows them.
        answer = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NixwulfError(
            f"The power switch of {name!r} did not answer ({type(error).__name__}); try 'curl "
            f"{url}'."
        ) from None
    if answer.status_code != httpx.codes.OK:
        raise NixwulfError(
            f"The power switch of {name!r} answered with HTTP {answer.status_code}; try 'curl "
            f"{url}'."
        )


def _wake(name: str, switch: PowerSwitch) -> None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.sendto(packet_of(switch.mac), (switch.broadcast, _WAKE_PORT))
    except OSError as error:
        raise NixwulfError(
            f"Cannot wake {name!r} at {switch.broadcast!r}: {error.strerror}; set the broadcast "
            "address of its network in power_switch."
        ) from None


def _run(name: str, command: tuple[str, ...]) -> None:
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_S,
            check=False,
        )
    except OSError as error:
        raise NixwulfError(
            f"The power switch of {name!r} cannot be run: {shown!r}: {error.strerror}."
        ) from None
    except subprocess.TimeoutExpired:
        raise NixwulfError(
            f"The power switch of {name!r} did not end in {_COMMAND_S} s; try: {shown}"
        ) from None
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())
        raise NixwulfError(
            f"The power switch of {name!r} failed with {done.returncode}: {words or 'silence'}; "
            f"try: {shown}"
        )
