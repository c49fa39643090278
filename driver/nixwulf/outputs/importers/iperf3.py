"""iperf3: what a link carried each way over TCP, as the benchmark of that name has it."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.outputs import ParseError
from nixwulf.outputs import iperf3 as parser
from nixwulf.outputs.importers import PAIR, Found, Tool, metric
from nixwulf.outputs.iperf3 import Flow, IntervalRow

_ENDS = re.compile(r"local (\S+) port \d+ connected (?:to|with) (\S+) port")
_SUMMED = re.compile(
    r"^\[\s*(?P<id>\d+)\](?P<role>\[[TR]X-[CS]\])?\s+0\.00-(?P<end>\d{1,9}\.\d\d)\s+sec .*"
    r"\b(?P<side>sender|receiver)\s*$",
    re.MULTILINE,
)
# Of 10 s it is 0.3 % on 1 Gbit/s, and less on faster links.
_IN_BUFFERS = 0.01
_DATAGRAMS = "Total Datagrams"


@dataclass(frozen=True)
class _Test:
    """What an output says of its test; what it does not say is None. ends: pairs of addresses."""

    protocol: str
    streams: int | None
    seconds: int | None
    warm: bool | None
    ends: frozenset[tuple[str, str]]


def _read(text: str) -> list[Found]:
    flows = parser.parse(text)
    test = _test_of_json(text) if text.lstrip().startswith("{") else _test_of_text(text)
    if test.protocol != "TCP":
        raise ParseError(f"iperf3's test was of {test.protocol}, and records have TCP alone.")
    for one, other in test.ends:
        if one == other:
            raise ParseError("iperf3 connected a machine to itself: that measures no fabric.")
    direction = "bidir" if len(flows) > 1 else next(iter(flows))
    parameters = {"streams": test.streams, "direction": direction, "seconds": test.seconds}
    return [
        Found(
            "iperf3",
            [_metric(direction, flow, test) for direction, flow in flows.items()],
            machines=True,
            nodes=PAIR,
            parameters={key: value for key, value in parameters.items() if value is not None},
            transport="tcp",
        )
    ]


TOOL = Tool("iperf3", parser, _read)


def _metric(direction: str, flow: Flow, test: _Test) -> Mapping[str, Any]:
    """Its samples are the intervals, where all of them are there and arrived; else the sum is.

    The intervals of a sender have in them what is still in buffers at the end.
    """
    rows = _whole(flow.rows)
    total = flow.received_gbps if flow.received_gbps is not None else flow.sent_gbps
    if rows and total is not None:
        mean = statistics.fmean(row.gbps for row in rows)
        rows = rows if abs(mean - total) <= _IN_BUFFERS * total else ()
    return metric(
        "bandwidth",
        "Gbit/s",
        None if rows else total,
        samples=[row.gbps for row in rows],
        state={True: "warm", False: "cold", None: None}[test.warm],
        conditions={"direction": direction, "interval_s": _length(rows)},
        observed={
            "sent_gbps": flow.sent_gbps,
            "received_gbps": flow.received_gbps,
            "retransmits": flow.retransmits,
        },
    )


def _whole(rows: Sequence[IntervalRow]) -> Sequence[IntervalRow]:
    """The rows, less a last one of milliseconds; None where one between them is missing."""
    if not rows:
        return ()
    length = _length(rows) or 0
    kept = [row for row in rows if row.end_s - row.start_s > length / 2]
    gaps = (after.start_s - before.end_s for before, after in itertools.pairwise(kept))
    return kept if all(abs(gap) < length / 2 for gap in gaps) else ()


def _length(rows: Sequence[IntervalRow]) -> float | None:
    """Seconds of an interval."""
    lengths = [row.end_s - row.start_s for row in rows]
    return round(statistics.median(lengths), 1) if lengths else None


def _test_of_json(text: str) -> _Test:
    start = json.loads(text).get("start", {})
    test = start.get("test_start", {})
    ends = [(str(one["local_host"]), str(one["remote_host"])) for one in _connections(start)]
    omitted = test.get("omit")
    return _Test(
        str(test.get("protocol", "TCP")),
        _count(test.get("num_streams")),
        _count(test.get("duration")),
        omitted > 0 if isinstance(omitted, int | float) else None,
        frozenset(ends),
    )


def _connections(start: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = start.get("connected")
    keys = {"local_host", "remote_host"}
    return [one for one in found if keys <= set(one)] if isinstance(found, list) else []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _test_of_text(text: str) -> _Test:
    """Of its sums: each stream has its number there, each way; the sender's end when it is over."""
    streams: dict[str, set[str]] = {}
    seconds: set[int] = set()
    for line in _SUMMED.finditer(text):
        streams.setdefault(f"{line['role']} {line['side']}", set()).add(line["id"])
        if line["side"] == "sender":
            seconds.add(round(float(line["end"])))
    return _Test(
        "UDP" if _DATAGRAMS in text else "TCP",
        max((len(found) for found in streams.values()), default=None),
        seconds.pop() if len(seconds) == 1 else None,
        True if "(omitted)" in text else None,
        frozenset(_ENDS.findall(text)),
    )
