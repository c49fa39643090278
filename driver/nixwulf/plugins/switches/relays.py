"""Relays that are switched by HTTP: Shelly's two generations, and Tasmota.

https://shelly-api-docs.shelly.cloud/gen1/ (/relay/N?turn=),
https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch (Switch.Set),
https://tasmota.github.io/docs/Commands/ (Power<x>).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from time import sleep

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import PowerSwitch
from nixwulf.plugins.switches import SwitchKind

_TIMEOUT_S = 10.0
# A relay that is on the Wi-Fi of what it has just switched off is back within a minute or so.
_PAUSES_ON_S = (1.0, 4.0, 10.0, 30.0)


class _MayBeDone(NixwulfError):
    """The request arrived, or may have, and the answer did not come."""


def relay(name: str, path: Callable[[int, str], str]) -> SwitchKind:
    """A kind of relay; path: the path and query that turn a channel 'on' or 'off'."""

    def cycle(node: str, switch: PowerSwitch, off_s: float) -> None:
        with suppress(_MayBeDone):  # then it may be off, and is switched on below
            _get(node, switch, path(switch.channel, "off"))
        # These pauses are not cut short by an interrupt: the node would stay off.
        sleep(off_s)
        for pause_s in (*_PAUSES_ON_S, None):
            try:
                _get(node, switch, path(switch.channel, "on"))
            except NixwulfError as error:
                if pause_s is None:
                    url = switch.url.rstrip("/") + path(switch.channel, "on")
                    raise NixwulfError(
                        f"Node {node!r} is OFF: it was not switched on again in "
                        f"{len(_PAUSES_ON_S) + 1} attempts; switch it on by hand, or by: "
                        f"curl {shlex.quote(url)} ({error.message.rstrip('.')})."
                    ) from None
                sleep(pause_s)
            else:
                return

    return SwitchKind(name, "url", cycle, optional=("channel",))


def _get(node: str, switch: PowerSwitch, path: str) -> None:
    url = switch.url.rstrip("/") + path
    try:
        answer = web.fetch(web.client(switch.url), "GET", url, _TIMEOUT_S, 0, head=True)
    except web.NoAnswer as error:
        raise (_MayBeDone if error.sent else NixwulfError)(
            f"The power switch of {node!r} did not answer ({error.kind}); try 'curl {url}'."
        ) from None
    if answer.status != web.OK:
        raise NixwulfError(
            f"The power switch of {node!r} answered with HTTP {answer.status}; try 'curl {url}'."
        )


SWITCHES = (
    relay("shelly", lambda channel, state: f"/relay/{channel}?turn={state}"),
    relay(
        "shelly-gen2",
        lambda channel, state: f"/rpc/Switch.Set?id={channel}&on={str(state == 'on').lower()}",
    ),
    relay("tasmota", lambda channel, state: f"/cm?cmnd=Power{channel + 1}%20{state.capitalize()}"),
)
