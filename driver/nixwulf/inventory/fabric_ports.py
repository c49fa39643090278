"""Ports on which programs listen for other nodes, which the flake's firewall opens to them.

Both read data/ports.toml. A port of the loopback, such as a server's API, is its engine's own.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_TABLE = tomllib.loads((Path(__file__).parents[1] / "data" / "ports.toml").read_text("utf-8"))

TCP: dict[str, int] = _TABLE["tcp"]
UDP: dict[str, int] = _TABLE["udp"]
# The kernel's own for programs that ask for no port, first and last.
FREE: tuple[int, int] = (_TABLE["ranges"]["free"][0], _TABLE["ranges"]["free"][1])
