"""Power switches: what turns a node off and on when nothing on it answers any more.

A module of this package has kinds of them in its tuple SWITCHES; a cluster file names a kind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import cast

from nixwulf.core.errors import InputError
from nixwulf.core.registry import choose, discover
from nixwulf.inventory.cluster import Cluster, PowerSwitch

# Long enough for a power supply's capacitors.
OFF_S = 10.0


@dataclass(frozen=True)
class SwitchKind:
    """A kind of power switch.

    requires, optional: keys of `power_switch` in a cluster file beside `kind`. cycle: turns the
    node of a name off, waits so many seconds, and turns it on; raises NixwulfError.
    """

    name: str
    requires: str
    cycle: Callable[[str, PowerSwitch, float], None]
    optional: tuple[str, ...] = ()


@cache
def all_switches() -> dict[str, SwitchKind]:
    """Every kind of power switch by name."""
    return cast(dict[str, SwitchKind], discover(sys.modules[__name__], "SWITCHES"))


def cycle(name: str, switch: PowerSwitch, off_s: float = OFF_S) -> None:
    """Turn a node off and on again; off_s without power, where the kind can turn off.

    Raises:
        NixwulfError: The switch does not answer, or refuses.
        InputError: No kind has the switch's name.
    """
    _kind(switch, "the cluster file").cycle(name, switch, off_s)


def require_known(cluster: Cluster) -> None:
    """Raise InputError for a switch of an unknown kind, or with other keys than its kind has."""
    for node in cluster.nodes:
        if node.power_switch:
            _check(node.power_switch, f"{cluster.source}: node {node.name!r}: power_switch")


def _check(switch: PowerSwitch, source: str) -> None:
    kind = _kind(switch, source)
    given = {key.name for key in fields(switch) if getattr(switch, key.name) != key.default}
    if kind.requires not in given:
        raise InputError(f"{source} of kind {kind.name!r} lacks {kind.requires!r}.")
    for key in sorted(given - {"kind", kind.requires, *kind.optional}):
        raise InputError(f"{source} of kind {kind.name!r} has no {key!r}; remove it.")


def _kind(switch: PowerSwitch, source: str) -> SwitchKind:
    return choose(all_switches(), switch.kind, "kind of power switch", source)
