"""Tasmota's meters: https://tasmota.github.io/docs/Commands/ (Status 8: StatusSNS.ENERGY.Power)."""

from __future__ import annotations

from typing import Any

from nixwulf.plugins.meters import MeterKind


def _watts(answer: Any, channel: int) -> Any:
    power = answer["StatusSNS"]["ENERGY"]["Power"]
    return power[channel] if isinstance(power, list) or channel else power


METERS = (MeterKind("tasmota", lambda channel: "/cm?cmnd=Status%208", _watts),)
