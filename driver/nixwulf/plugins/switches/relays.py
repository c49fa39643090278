"""Relays that are switched by HTTP: Shelly's two generations, and Tasmota.

https://shelly-api-docs.shelly.cloud/gen1/ (/relay/N?turn=),
https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch (Switch.Set),
https://tasmota.github.io/docs/Commands/ (Power<x>).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import PowerSwitch
from nixwulf.plugins.switches import SwitchKind

_TIMEOUT_S = 10.0


def relay(name: str, path: Callable[[int, str], str]) -> SwitchKind:
    """A kind of relay; path: the path and query that turn a channel 'on' or 'off'."""

    def cycle(node: str, switch: PowerSwitch, off_s: float) -> None:
        _get(node, switch, path(switch.channel, "off"))
        time.sleep(off_s)
        _get(node, switch, path(switch.channel, "on"))

    return SwitchKind(name, "url", cycle, optional=("channel",))


def _get(node: str, switch: PowerSwitch, path: str) -> None:
    import httpx

    url = switch.url.rstrip("/") + path
    try:
        # Switches are on the local network: no proxy reaches them.
        answer = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NixwulfError(
            f"The power switch of {node!r} did not answer ({type(error).__name__}); try 'curl "
            f"{url}'."
        ) from None
    if answer.status_code != httpx.codes.OK:
        raise NixwulfError(
            f"The power switch of {node!r} answered with HTTP {answer.status_code}; try 'curl "
            f"{url}'."
        )


SWITCHES = (
    relay("shelly", lambda channel, state: f"/relay/{channel}?turn={state}"),
    relay(
        "shelly-gen2",
        lambda channel, state: f"/rpc/Switch.Set?id={channel}&on={str(state == 'on').lower()}",
    ),
    relay("tasmota", lambda channel, state: f"/cm?cmnd=Power{channel + 1}%20{state.capitalize()}"),
)
