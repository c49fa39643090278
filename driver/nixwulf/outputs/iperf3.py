"""iperf3: what each direction of a test carried in each interval, from its JSON or its text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nixwulf.outputs import ParseError
from nixwulf.outputs.json_text import json_object

_ROW = re.compile(
    r"^\[\s*(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?\s+"
    r"(?P<start>\d+(?:\.\d+)?)-(?P<end>\d+(?:\.\d+)?)\s+sec\s+\d+(?:\.\d+)?\s+[KMGT]?Bytes\s+"
    r"(?P<rate>\d+(?:\.\d+)?)\s+(?P<unit>[KMGT]?)bits/sec(?P<rest>.*)$"
)
_ERROR = re.compile(r"^iperf3?: (?:error - )?(?P<words>.+)$")
# What the client sends is forward, whichever side prints it.
_DIRECTION = {"TX-C": "forward", "RX-S": "forward", "RX-C": "reverse", "TX-S": "reverse"}
_GBPS = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}


@dataclass(frozen=True)
class IntervalRow:
    """What all streams of a direction carried in an interval: seconds of the test, Gbit/s."""

    start_s: float
    end_s: float
    gbps: float


@dataclass(frozen=True)
class Flow:
    """One direction of a test; what iperf3 did not say is None. Omitted intervals are left out."""

    rows: tuple[IntervalRow, ...] = ()
    sent_gbps: float | None = None
    received_gbps: float | None = None
    retransmits: int | None = None


def parse(text: str) -> dict[str, Flow]:
    """The directions 'forward' (client to server) and 'reverse' of a test that ended well.

    Takes -J or text of either side. Raises ParseError, also with iperf3's own error: 3.12 exits 0
    with one in its JSON.
    """
    flows, error = _read(text)
    if error:
        raise ParseError(f"iperf3 failed: {error.rstrip('.')}.")
    if not flows or not all(flow.received_gbps or flow.sent_gbps for flow in flows.values()):
        last = len(text.splitlines())
        raise ParseError(f"iperf3 printed no summary by line {last}, expected sender or receiver.")
    return flows


def parse_unfinished(text: str) -> dict[str, Flow]:
    """As parse, of a test that was stopped: the rows there are, perhaps none."""
    try:
        return _read(text)[0]
    except ParseError:
        return {}


def recognises(text: str) -> bool:
    """An interval of its text, or the keys that no other tool's JSON has together."""
    if '"bits_per_second"' in text and '"sum_sent"' in text:
        return True
    return any(_ROW.match(line.strip()) for line in text.splitlines())


def _read(text: str) -> tuple[dict[str, Flow], str | None]:
    if text.lstrip().startswith("{"):
        document = json_object("iperf3", text)
        try:
            return _from_json(document), _error_of(document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ParseError(
                f"iperf3's JSON from line 1 on lacks what a test has, at {error}."
            ) from None
    return _from_text(text)


def _error_of(document: Mapping[str, Any]) -> str | None:
    return str(document["error"]) if "error" in document else None


def _from_json(document: Mapping[str, Any]) -> dict[str, Flow]:
    end = document.get("end") or {}
    test = document.get("start", {}).get("test_start", {})
    first = "reverse" if test.get("reverse") else "forward"
    flows = {}
    for direction, suffix in ((first, ""), ("reverse", "_bidir_reverse")):
        rows = tuple(
            IntervalRow(float(row["start"]), float(row["end"]), _gbps(row))
            for interval in document.get("intervals", ())
            if (row := interval.get(f"sum{suffix}")) and not row.get("omitted")
        )
        sent, received = (end.get(f"sum_{what}{suffix}") for what in ("sent", "received"))
        if rows or sent or received:
            flows[direction] = Flow(
                rows,
                _gbps(sent) if sent else None,
                _gbps(received) if received else None,
                int(sent["retransmits"]) if sent and "retransmits" in sent else None,
            )
    return flows


def _gbps(entry: Mapping[str, Any]) -> float:
    rate = float(entry["bits_per_second"])
    if not 0 <= rate < math.inf:
        raise ValueError(f"bits_per_second {rate:g}")
    return round(rate / 1e9, 6)


def _from_text(text: str) -> tuple[dict[str, Flow], str | None]:
    matches: dict[str, list[re.Match[str]]] = {}
    unmarked, error = "forward", None
    for line in text.splitlines():
        match = _ROW.match(line.strip())
        if match:
            direction = _DIRECTION.get(match["role"] or "", unmarked)
            matches.setdefault(direction, []).append(match)
        elif line.startswith("Reverse mode"):
            unmarked = "reverse"
        elif failed := _ERROR.match(line):
            error = failed["words"]
    if not matches and error is None:
        raise ParseError("iperf3 printed no interval in any line, expected '[ ID] 0.00-1.00 sec'.")
    return {direction: _flow(found) for direction, found in matches.items()}, error


def _flow(matches: Iterable[re.Match[str]]) -> Flow:
    """The sums of a direction's lines; iperf3 prints [SUM] only of more than one stream."""
    kept = [match for match in matches if "(omitted)" not in match["rest"]]
    sums = [match for match in kept if match["id"] == "SUM"]
    lines = sums or kept
    rows: dict[tuple[float, float], float] = {}
    ends: dict[str, float] = {}
    retransmits: int | None = None
    for match in lines:
        gbps = float(match["rate"]) * _GBPS[match["unit"]]
        words = match["rest"].split()
        side = next((word for word in words if word in {"sender", "receiver"}), None)
        if side is None:
            span = float(match["start"]), float(match["end"])
            rows[span] = rows.get(span, 0.0) + gbps
            continue
        ends[side] = ends.get(side, 0.0) + gbps
        if side == "sender" and words[0].isdecimal():
            retransmits = (retransmits or 0) + int(words[0])
    return Flow(
        tuple(IntervalRow(*span, round(gbps, 6)) for span, gbps in rows.items()),
        round(ends["sender"], 6) if "sender" in ends else None,
        round(ends["receiver"], 6) if "receiver" in ends else None,
        retransmits,
    )
