"""What a metric's unit tells: which direction is better, and whether nodes are to add up."""

from __future__ import annotations

import re
from typing import Literal

_TIME = re.compile(r"(n|u|m)?s(/[a-z]+)?")
_ENERGY = re.compile(r"[kMm]?(J|Wh)(/[a-z]+)?")
_RATE = re.compile(r"(?P<counted>.+)/s(/(W|\$))?")
_DATA = re.compile(r"[kKMGT]?i?(bit|b|B)")


def better(unit: str) -> Literal["more", "less", ""]:
    """More of a rate (tok/s, tok/s/W, tok/s/$), less of a time or an energy, else neither."""
    if _TIME.fullmatch(unit) or _ENERGY.fullmatch(unit):
        return "less"
    return "more" if _RATE.fullmatch(unit) else ""


def is_time(unit: str) -> bool:
    """Whether it is seconds, or a fraction of them, of something or of each of many."""
    return bool(_TIME.fullmatch(unit))


def adds_up(unit: str) -> bool:
    """Whether N nodes should give N times one: rates of work (tok/s, Gflop/s), not of a link."""
    rate = _RATE.fullmatch(unit)
    return bool(rate and not unit.endswith(("/W", "/$")) and not _DATA.fullmatch(rate["counted"]))
