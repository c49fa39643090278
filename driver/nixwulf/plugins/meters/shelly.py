"""Meters of Shelly.

The first generation: https://shelly-api-docs.shelly.cloud/gen1/ (/status: meters[], emeters[]); the
later ones: https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch
(Switch.GetStatus: apower).
"""

from __future__ import annotations

from typing import Any

from nixwulf.plugins.meters import MeterError, MeterKind


def _watts(answer: Any, channel: int) -> Any:
    found = answer["emeters" if answer.get("emeters") else "meters"][channel]
    if found.get("is_valid") is False:
        raise MeterError("reports that its power is not valid")
    return found["power"]


METERS = (
    MeterKind("shelly", lambda channel: "/status", _watts),
    MeterKind(
        "shelly-gen2",
        lambda channel: f"/rpc/Switch.GetStatus?id={channel}",
        lambda answer, channel: answer["apower"],
    ),
)
