"""ethtool INTERFACE: the speed an interface claims, which is nominal on thunderbolt-net."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nixwulf.outputs import ParseError


@dataclass(frozen=True)
class Settings:
    """Of one interface; speed_gbps is None where ethtool says 'Unknown!'."""

    interface: str
    speed_gbps: float | None


def parse(text: str) -> Settings:
    """The settings of one interface; raises ParseError."""
    header = re.search(r"^\s*Settings for (\S+):", text, re.MULTILINE)
    if not header:
        raise ParseError("ethtool: line 1 names no interface, expected 'Settings for INTERFACE:'.")
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = line.strip().partition(": ")
        if key == "Speed":
            match = re.fullmatch(r"([0-9]{1,9})Mb/s|Unknown!.*", value.strip())
            if not match:
                raise ParseError(
                    f"ethtool: line {number} says the speed {value.strip()[:40]!r}, expected NMb/s."
                )
            return Settings(header[1], int(match[1]) / 1000 if match[1] else None)
    raise ParseError("ethtool: the output has no line 'Speed: NMb/s'.")


def recognises(text: str) -> bool:
    """Its first line."""
    return re.search(r"^\s*Settings for \S+:", text, re.MULTILINE) is not None
