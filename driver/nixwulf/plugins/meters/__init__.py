"""Wall meters, which the driver asks over HTTP while the nodes work.

A module of this package has some kinds of them in its tuple METERS. A cluster file names a kind.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError, quoted
from nixwulf.core.query import grouped
from nixwulf.core.registry import choose, discover
from nixwulf.inventory.cluster import Cluster, Meter, Node
from nixwulf.nodes.power import Point
from nixwulf.nodes.ssh import each

# The meters measure anew about once a second.
INTERVAL_S = 1.0
_TIMEOUT_S = 3.0
_MOST_WATTS = 1e6
_MOST_BYTES = 2**20


class MeterError(NixwulfError):
    """A meter that does not answer, or not with watts: a clause that follows its name."""


@dataclass(frozen=True)
class MeterKind:
    """A kind of wall meter; path and watts are by the channel that is asked for.

    path: the path and query that are asked. watts: the power in an answer that was JSON; raises
    MeterError, or KeyError, IndexError, TypeError or AttributeError where it has no power.
    """

    name: str
    path: Callable[[int], str]
    watts: Callable[[Any, int], Any]


@cache
def all_meters() -> dict[str, MeterKind]:
    """Every kind of meter by name."""
    return cast(dict[str, MeterKind], discover(sys.modules[__name__], "METERS"))


def kind_of(meter: Meter, source: str = "the cluster file") -> MeterKind:
    """The kind of a meter; raises InputError."""
    return choose(all_meters(), meter.kind, "kind of meter", source)


def require_known(cluster: Cluster) -> None:
    """Raise InputError for a meter of a kind that there is not."""
    for node in cluster.nodes:
        if node.meter:
            kind_of(node.meter, f"{cluster.source}: node {node.name!r}")


def watts_of(meter: Meter, answer: object) -> float:
    """The watts of an answer that was JSON; raises MeterError."""
    try:
        value = kind_of(meter).watts(answer, meter.channel)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise MeterError(f"has no power for channel {meter.channel} in its answer") from None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MOST_WATTS
    ):
        raise MeterError(f"reports {quoted(value)}, expected watts")
    return float(value)


def read(meter: Meter) -> float:
    """Watts now; raises MeterError."""
    try:
        asked = web.client(meter.url)
        answer = web.fetch(asked, "GET", _address(meter), _TIMEOUT_S, _MOST_BYTES)
    except web.NoAnswer as error:
        raise MeterError(f"did not answer ({error.kind})") from None
    if answer.status != web.OK:
        raise MeterError(f"answered with HTTP {answer.status}")
    if answer.json is None:
        raise MeterError("answered with something that is not JSON")
    return watts_of(meter, answer.json)


def complaints(nodes: Iterable[Node]) -> list[str]:
    """A sentence for each meter of these nodes that reports no watts now."""
    fed = grouped((node.meter, node.name) for node in nodes if node.meter)

    def complaint(meter: Meter) -> str:
        try:
            read(meter)
        except MeterError as error:
            return (
                f"The meter of {', '.join(map(repr, fed[meter]))} {error.message}; the runs go on "
                f"without its watts until it does: try 'curl {_address(meter)}'."
            )
        return ""

    return [*filter(None, each(complaint, fed))]


class MeterReader:
    """A thread that reads one meter once a second and keeps the points.

    points are in seconds of the driver's monotonic clock and watts; error is the last complaint;
    answered is set once there is one or the other.
    """

    def __init__(self, meter: Meter, raw: Path) -> None:
        """Read a meter, and write its points to a file as well."""
        self.meter = meter
        self.points: list[Point] = []
        self.error = ""
        self.answered = threading.Event()
        self._raw = raw
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._raw.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """End after a last reading, so that the points reach over all that was measured."""
        self._done.set()
        self._thread.join(_TIMEOUT_S + INTERVAL_S)

    def _read(self) -> None:
        with self._raw.open("w") as file:
            while True:
                begin, stopping = time.monotonic(), self._done.is_set()
                if stopping and not self.points:
                    return
                try:
                    watts = read(self.meter)
                except MeterError as error:
                    self.error = error.message
                else:
                    moment = (begin + time.monotonic()) / 2
                    self.points.append((moment, watts))
                    file.write(f"{moment:.3f} {watts:g}\n")
                self.answered.set()
                if stopping:
                    return
                self._done.wait(max(0.0, begin + INTERVAL_S - time.monotonic()))


def _address(meter: Meter) -> str:
    return meter.url.rstrip("/") + kind_of(meter).path(meter.channel)
