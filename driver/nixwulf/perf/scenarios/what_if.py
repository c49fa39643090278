"""What-ifs: one fact taken to be another, as 'fabric.usb4.latency_us=7'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.text import did_you_mean
from nixwulf.perf.constants import Constants
from nixwulf.perf.inputs import PlatformFacts

BANDWIDTH = "memory_bandwidth_gbs"
KEYS: Mapping[str, tuple[str, ...]] = {
    "fabric": ("latency_us", "rtt_us", "bandwidth_gbps"),
    "platform": (BANDWIDTH, "compute_tflops", "memory_gib"),
    "engine": ("layer_us", "hop_us", "sync_us"),
}
"""What can be changed. latency_us is one way, rtt_us a round trip: twice of it."""
_ONE_WAY = "latency_us"
_FIELDS = {BANDWIDTH: "bandwidth_gbs", "compute_tflops": "tflops"}  # of PlatformFacts
# Far outside of what a machine can have, and still far from where numbers overflow.
_LEAST, _MOST = 1e-6, 1e9


@dataclass(frozen=True)
class WhatIf:
    """A fact of a group's member and the value that it is taken to have, in the key's unit."""

    group: str
    name: str
    key: str
    value: float

    @property
    def about(self) -> tuple[str, str, str]:
        """The fact: its group, name and key, a latency being half of a round trip."""
        return self.group, self.name, "rtt_us" if self.key == _ONE_WAY else self.key

    @property
    def text(self) -> str:
        """As it is given on the command line."""
        return f"{self.group}.{self.name}.{self.key}={self.value:g}"


def parse(text: str) -> WhatIf:
    """The what-if of a text GROUP.NAME.KEY=VALUE; raises InputError."""
    place, equals, number = text.partition("=")
    group, _, rest = place.strip().partition(".")
    name, _, key = rest.rpartition(".")
    if not (equals and name and key):
        raise InputError(
            f"What-if {quoted(text)} is not GROUP.NAME.KEY=VALUE; give one such as "
            "fabric.cable.latency_us=7 or platform.framework-desktop.memory_bandwidth_gbs=500."
        )
    if group not in KEYS:
        raise InputError(
            f"What-if {quoted(text)}: {quoted(group)} is unknown; {did_you_mean(group, KEYS)}"
        )
    if key not in KEYS[group]:
        raise InputError(
            f"What-if {quoted(text)}: a {group} has no {quoted(key)}; it has "
            f"{', '.join(KEYS[group])}."
        )
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and _LEAST <= value <= _MOST):
        raise InputError(
            f"What-if {quoted(text)}: {quoted(number)} is no number from {_LEAST:g} to {_MOST:g}; "
            f"give it alone, as in {place.strip()}=7."
        )
    return WhatIf(group, name, key, value)


def parse_all(texts: Iterable[str], names: Mapping[str, Sequence[str]]) -> tuple[WhatIf, ...]:
    """All of them; raises InputError for two about one fact, and for names that are not there.

    names: those of the cluster, by group.
    """
    found = tuple(map(parse, texts))
    for number, one in enumerate(found):
        if one.name not in names[one.group]:
            raise InputError(
                f"What-if {one.text!r}: there is no {one.group} {quoted(one.name)} in this "
                f"question; {did_you_mean(one.name, names[one.group])}"
            )
        for other in found[:number]:
            if one.about == other.about:
                raise InputError(
                    f"What-ifs {other.text!r} and {one.text!r} are about one fact; give one of "
                    "them."
                )
    return found


def of_platform(facts: PlatformFacts, what_ifs: Iterable[WhatIf]) -> PlatformFacts:
    """The facts with what is taken to be different; what was assumed of it is assumed no more."""
    for one in what_ifs:
        if (one.group, one.name) == ("platform", facts.name):
            changed: dict[str, Any] = {_FIELDS.get(one.key, one.key): one.value}
            changed |= {"assumptions": ()} if one.key == BANDWIDTH else {}
            facts = replace(facts, **changed)
    return facts


def of_link(fabric: str, what_ifs: Iterable[WhatIf]) -> dict[str, float]:
    """rtt_us and bandwidth_gbps of a fabric where they are taken to be different."""
    return {
        one.about[2]: 2 * one.value if one.key == _ONE_WAY else one.value
        for one in what_ifs
        if (one.group, one.name) == ("fabric", fabric)
    }


def of_constants(engine: str, constants: Constants, what_ifs: Iterable[WhatIf]) -> Constants:
    """The constants of an engine with the changes of what-ifs.

    what_ifs: those of other engines or facts change nothing.
    """
    for one in what_ifs:
        if (one.group, one.name) == ("engine", engine):
            changed: dict[str, Any] = {one.key: one.value}
            constants = replace(constants, **changed)
    return constants
