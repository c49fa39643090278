"""iperf3: what each direction of a test carried in each interval, from its JSON or its text.

Of iperf 2 (https://sourceforge.net/p/iperf2/code) the text, whose sum no word marks.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nixwulf.core.metric import Metric
from nixwulf.outputs import PAIR, Found, ParseError, Tool, ToolFailed, json_object

_ROW = re.compile(
    r"^\[\s*(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?\s+"
    r"(?P<start>\d+(?:\.\d+)?)- ?(?P<end>\d+(?:\.\d+)?)\s+sec\s+\d+(?:\.\d+)?\s+[KMGT]?Bytes\s+"
    r"(?P<rate>\d+(?:\.\d+)?)\s+(?P<unit>[KMGT]?(?:bits|Bytes))/sec(?P<rest>.*)$"
)
_ERROR = re.compile(r"^iperf3?: (?:error - )?(?P<words>.+)$")
_NEVER_BEGAN = r"^[ \t]*iperf3?: error - unable to (?:connect|create|start|receive control)"
_OWN_WORDS = re.compile(rf'{_NEVER_BEGAN}|"version":\s*"iperf', re.MULTILINE)
# What the client sends is forward, whichever side prints it.
_DIRECTION = {"TX-C": "forward", "RX-S": "forward", "RX-C": "reverse", "TX-S": "reverse"}
# With -f K, M, G and T it is bytes, by 1024: src/units.c of https://github.com/esnet/iperf.
_GBPS = {f"{one}bits": 1000**n / 1e9 for n, one in enumerate(("", *"KMGT"))}
_GBPS |= {f"{one}Bytes": 1024**n * 8 / 1e9 for n, one in enumerate(("", *"KMGT"))}
_REVERSE = re.compile(r"^[ \t]*Reverse mode|\biperf3? (?:.* )?(?:-R|--reverse)(?!\S)")
_ENDS = re.compile(r"local (\S+) port \d+ connected (?:to|with) (\S+) port")
_SUMMED = re.compile(
    r"^[ \t]*\[\s*(?P<id>\d+)\](?P<role>\[[TR]X-[CS]\])?\s+0\.00-(?P<end>\d{1,9}\.\d\d)\s+sec .*"
    r"\b(?P<side>sender|receiver)\s*$",
    re.MULTILINE,
)
# Of 10 s it is 0.3 % on 1 Gbit/s, and less on faster links.
_IN_BUFFERS = 0.01
_DATAGRAMS = "Total Datagrams"
_IPERF2 = re.compile(
    r"^[ \t]*(?:Client connecting to|Server listening on) .*(TCP|UDP) port", re.MULTILINE
)
_WINDOW = re.compile(r"^[ \t]*TCP window size: +(\d+(?:\.\d+)? ?\w+)", re.MULTILINE)


@dataclass(frozen=True)
class IntervalRow:
    """An interval of a direction, all streams together: seconds of the test, Gbit/s."""

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


@dataclass(frozen=True)
class _Test:
    """An output's report of its test; the rest is None. ends: pairs of addresses.

    observed: what it has of the test beside the numbers of its sums.
    """

    protocol: str
    streams: int | None
    seconds: int | None
    warm: bool | None
    ends: frozenset[tuple[str, str]]
    observed: Mapping[str, object] = field(default_factory=dict)


def parse(text: str) -> dict[str, Flow]:
    """The directions 'forward' (client to server) and 'reverse' of a test that ended well.

    Takes -J or text of either side. Raises ParseError, also with iperf3's own error: 3.12 exits 0
    with one in its JSON.
    """
    flows, error = _flows(text)
    if error:
        raise ToolFailed(f"iperf3 failed: {error.rstrip('.')}.")
    if not flows or not all(flow.received_gbps or flow.sent_gbps for flow in flows.values()):
        last = len(text.splitlines())
        raise ParseError(f"iperf3 printed no summary by line {last}, expected sender or receiver.")
    return flows


def parse_unfinished(text: str) -> dict[str, Flow]:
    """Parse a test that was stopped: the rows there are, perhaps none."""
    try:
        return _flows(text)[0]
    except ParseError:
        return {}


def recognises(text: str) -> bool:
    """An interval of its text, its own error, or keys that no other tool's JSON has together."""
    if '"bits_per_second"' in text and '"sum_sent"' in text:
        return True
    if "iperf" in text and _OWN_WORDS.search(text):
        return True
    lines = text.splitlines() if re.search("(?:bits|Bytes)/sec", text) else ()
    return any(_ROW.match(line.strip()) for line in lines)


def read(text: str) -> list[Found]:
    """One case of the machines: what a link carried in each direction over TCP."""
    flows = parse(text)
    test = _test_of_json(text) if text.lstrip().startswith("{") else _test_of_text(text)
    if test.protocol != "TCP":
        raise ParseError(f"iperf3's test was of {test.protocol}, and records have TCP alone.")
    for one, other in test.ends:
        if one == other:
            raise ParseError("iperf3 connected a machine to itself: that measures no fabric.")
    direction = "bidir" if len(flows) > 1 else next(iter(flows))
    parameters = {"streams": test.streams, "direction": direction, "seconds": test.seconds}
    return [
        replace(
            _CASE,
            metrics=[_metric(direction, flow, test) for direction, flow in flows.items()],
            parameters={key: value for key, value in parameters.items() if value is not None},
            note="iperf 2" if _IPERF2.search(text) else "",
            peer=" ".join(sorted({other for _, other in test.ends})),
        )
    ]


_CASE = Found("iperf3", (), machines=True, nodes=PAIR, transport="tcp")
TOOL = (
    Tool("iperf3", lambda text: recognises(text) and not _IPERF2.search(text), read, failed=_CASE),
    Tool(
        "iperf2", lambda text: recognises(text) and bool(_IPERF2.search(text)), read, failed=_CASE
    ),
)


def whole(rows: Sequence[IntervalRow], interval_s: float) -> list[IntervalRow]:
    """The rows of whole intervals: a last one of milliseconds may well have carried nothing."""
    return [row for row in rows if row.end_s - row.start_s > interval_s / 2]


def _flows(text: str) -> tuple[dict[str, Flow], str | None]:
    if text.lstrip().startswith("{"):
        document = json_object("iperf3", text)
        try:
            error = str(document["error"]) if "error" in document else None
            return _from_json(document), error
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise ParseError(
                f"iperf3's JSON from line 1 on lacks what a test has, at {problem}."
            ) from None
    return _from_text(text)


def _from_json(document: Mapping[str, object]) -> dict[str, Flow]:
    end, intervals = _object(document.get("end")), document.get("intervals")
    test = _object(_object(document.get("start")).get("test_start"))
    first = "reverse" if test.get("reverse") else "forward"
    flows = {}
    for direction, suffix in ((first, ""), ("reverse", "_bidir_reverse")):
        rows = tuple(
            IntervalRow(_number(row, "start"), _number(row, "end"), _gbps(row))
            for interval in (intervals if isinstance(intervals, list) else ())
            if (row := _object(_object(interval).get(f"sum{suffix}"))) and not row.get("omitted")
        )
        sent, received = (_object(end.get(f"sum_{one}{suffix}")) for one in ("sent", "received"))
        if rows or sent or received:
            flows[direction] = Flow(
                rows,
                _gbps(sent) if sent else None,
                _gbps(received) if received else None,
                int(_number(sent, "retransmits")) if "retransmits" in sent else None,
            )
    return flows


def _object(value: object) -> Mapping[str, object]:
    """An object of its JSON, empty where there is none; raises TypeError for another value."""
    if isinstance(value, dict):
        return value
    if value:
        raise TypeError(f"a {type(value).__name__}")
    return {}


def _number(entry: Mapping[str, object], key: str) -> float:
    value = entry[key]
    if not isinstance(value, int | float | str) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{key} {value!s:.40}")
    return float(value)


def _gbps(entry: Mapping[str, object]) -> float:
    return round(_number(entry, "bits_per_second") / 1e9, 6)


def _from_text(text: str) -> tuple[dict[str, Flow], str | None]:
    matches: dict[str, list[re.Match[str]]] = {}
    unmarked, error = "forward", None
    for line in text.splitlines():
        match = _ROW.match(line.strip())
        if match:
            direction = _DIRECTION.get(match["role"] or "", unmarked)
            matches.setdefault(direction, []).append(match)
        elif _REVERSE.search(line):
            unmarked = "reverse"
        elif failed := _ERROR.match(line):
            error = failed["words"]
    if not matches and error is None:
        raise ParseError("iperf3 printed no interval in any line, expected '[ ID] 0.00-1.00 sec'.")
    side = ""
    if _IPERF2.search(text):
        side = "sender" if "Client connecting" in text else "receiver"
    return {direction: _flow(found, side) for direction, found in matches.items()}, error


def _flow(matches: Iterable[re.Match[str]], side_of_all: str) -> Flow:
    """The sums of a direction's lines; iperf prints [SUM] only of more than one stream.

    side_of_all: whose the longest line is, where none says it; empty: the lines say it.
    """
    kept = [match for match in matches if "(omitted)" not in match["rest"]]
    sums = [match for match in kept if match["id"] == "SUM"]
    lines = sums or kept
    longest = max((float(m["end"]) for m in lines if not float(m["start"])), default=0)
    sides = [_side(match, longest, side_of_all) for match in lines]
    carried: dict[str | tuple[float, float], float] = {}
    for match, side in zip(lines, sides, strict=True):
        what = side or (float(match["start"]), float(match["end"]))
        carried[what] = carried.get(what, 0.0) + float(match["rate"]) * _GBPS[match["unit"]]
    words = [m["rest"].split() for m, side in zip(lines, sides, strict=True) if side == "sender"]
    again = [int(one[0]) for one in words if one and one[0].isdecimal()]
    rates = {what: round(gbps, 6) for what, gbps in carried.items()}
    return Flow(
        tuple(IntervalRow(*what, one) for what, one in rates.items() if isinstance(what, tuple)),
        rates.get("sender"),
        rates.get("receiver"),
        sum(again) if again else None,
    )


def _side(match: re.Match[str], longest: float, side_of_all: str) -> str | None:
    """Whose sum a line is; None: it is one of an interval."""
    named = next((one for one in match["rest"].split() if one in {"sender", "receiver"}), None)
    is_sum = not float(match["start"]) and float(match["end"]) == longest
    return named or (side_of_all or None if is_sum else None)


def _metric(direction: str, flow: Flow, test: _Test) -> Metric:
    """Return a metric: its samples are the intervals, if all are there and arrived, else the sum.

    The intervals of a sender have in them what is still in buffers at the end.
    """
    rows = _complete(flow.rows)
    total = flow.received_gbps if flow.received_gbps is not None else flow.sent_gbps
    if rows and total is not None:
        mean = statistics.fmean(row.gbps for row in rows)
        rows = rows if abs(mean - total) <= _IN_BUFFERS * total else []
    return Metric(
        "bandwidth",
        "Gbit/s",
        tuple(row.gbps for row in rows),
        state={True: "warm", False: "cold", None: None}[test.warm],
        conditions={"direction": direction, "interval_s": _length(rows)},
        observed={
            "sent_gbps": flow.sent_gbps,
            "received_gbps": flow.received_gbps,
            "retransmits": flow.retransmits,
            **test.observed,
        },
        value=total,
    )


def _complete(rows: Sequence[IntervalRow]) -> list[IntervalRow]:
    """The whole rows; none at all where one between them is missing."""
    length = _length(rows) or 0
    kept = whole(rows, length)
    gaps = (after.start_s - before.end_s for before, after in itertools.pairwise(kept))
    return kept if all(abs(gap) < length / 2 for gap in gaps) else []


def _length(rows: Sequence[IntervalRow]) -> float | None:
    lengths = [row.end_s - row.start_s for row in rows]
    return round(statistics.median(lengths), 1) if lengths else None


def _test_of_json(text: str) -> _Test:
    start = _object(json.loads(text).get("start"))
    test = _object(start.get("test_start"))
    found, keys = start.get("connected"), ("local_host", "remote_host")
    connected = [one for one in (found if isinstance(found, list) else ()) if isinstance(one, dict)]
    ends = [(str(one[keys[0]]), str(one[keys[1]])) for one in connected if set(keys) <= one.keys()]
    omitted = test.get("omit")
    return _Test(
        str(test.get("protocol", "TCP")),
        _count(test.get("num_streams")),
        _count(test.get("duration")),
        omitted > 0 if isinstance(omitted, int | float) else None,
        frozenset(ends),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _test_of_text(text: str) -> _Test:
    """Read the sums: each stream has its number in each direction; seconds: the sender's end."""
    streams: dict[str, set[str]] = {}
    lasted: set[float] = set()
    for line in _SUMMED.finditer(text):
        streams.setdefault(f"{line['role']} {line['side']}", set()).add(line["id"])
        if line["side"] == "sender":
            lasted.add(float(line["end"]))
    other, window = _IPERF2.search(text), _WINDOW.search(text)
    if other:
        rows = (_ROW.match(line.strip()) for line in text.splitlines())
        lasted = {max(float(row["end"]) for row in rows if row)}
    seconds = {round(one) for one in lasted}
    count = max((len(found) for found in streams.values()), default=None)
    return _Test(
        "UDP" if _DATAGRAMS in text or (other and other[1] == "UDP") else "TCP",
        len(re.findall("connected with", text)) if other else count,
        seconds.pop() if len(seconds) == 1 else None,
        True if "(omitted)" in text else None,
        frozenset(_ENDS.findall(text)),
        {"seconds": max(lasted - {round(one) for one in lasted}, default=None)}
        | {"window": window[1] if window else None},
    )
