"""sockperf ping-pong: every round trip of its full log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nixwulf.core.metric import Metric
from nixwulf.outputs import PAIR, Found, ParseError, Tool, ToolFailed

_HEADER = "packet, txTime(sec), rxTime(sec), rtt(usec)"
_ROW = re.compile(r"^\d+, (?P<sent>\d+\.\d+), \d+\.\d+, (?P<rtt>\d+\.\d+)$")
_ERROR = re.compile(r"^sockperf: ERROR: (?P<words>.+)$", re.MULTILINE)
_PROTOCOL = re.compile(r"IP = +(\S+) +PORT = +\d+ # (TCP|UDP)")
_SUMMARY = re.compile(r"^sockperf: Summary: (Latency|Round trip) is (\d+\.\d+) usec", re.MULTILINE)
_COUNT = re.compile(r"^sockperf: (?:\x1b\[[\d;]*m)?Total (\d{1,15}) observations", re.MULTILINE)
_PERCENTILE = re.compile(r"^sockperf: ---> percentile (50|99)\.000 = +(\d+\.\d+)", re.MULTILINE)
_DEVIATION = re.compile(r"^sockperf: .*\(std-dev=(\d+\.\d+)", re.MULTILINE)
_DURATION = re.compile(r"^sockperf: \[Valid Duration\] RunTime=(\d+\.\d+) sec", re.MULTILINE)
_VERSION = re.compile(r"^sockperf: (?:\x1b\[[\d;]*m)?== version #(\d[\d.]*)?", re.MULTILINE)


@dataclass(frozen=True)
class Exchanges:
    """Round trips in microseconds, in order, and the seconds from the first to the last."""

    samples: tuple[float, ...]
    span_s: float


def parse(text: str) -> Exchanges:
    """The log of `sockperf ping-pong --full-rtt --full-log /dev/stdout`.

    Raises ParseError, also with sockperf's own error: version 3.7 exits 0 when it cannot connect.
    """
    failed = _ERROR.search(text)
    if failed:
        raise ToolFailed(f"sockperf failed: {failed['words'].rstrip('.')}.")
    lines = text.splitlines()
    try:
        begin = lines.index(_HEADER) + 1
    except ValueError:
        raise ParseError(
            f"sockperf printed no log by line {len(lines)}, expected {_HEADER!r}."
        ) from None
    samples, sent = [], []
    for number, line in enumerate(lines[begin:], begin + 1):
        row = _ROW.match(line)
        if row is None:
            if line.startswith("---"):
                break
            raise ParseError(
                f"sockperf's log has {line[:80]!r} in line {number}, expected four numbers."
            )
        samples.append(float(row["rtt"]))
        sent.append(float(row["sent"]))
    else:
        raise ParseError(f"sockperf's log is cut off after line {len(lines)}.")
    if not samples:
        raise ParseError(f"sockperf's log has no round trip in line {begin + 1}.")
    return Exchanges(tuple(samples), sent[-1] - sent[0])


def recognises(text: str) -> bool:
    """The head of its output or of its log, its summary, or its own name for its errors."""
    known = (_VERSION, _SUMMARY, _ERROR) if "sockperf: " in text else ()
    return _HEADER in text or any(one.search(text) for one in known)


def read(text: str) -> list[Found]:
    """One case: round trips over sockets, each where there is a log, else their mean."""
    summary = None if _HEADER in text or _ERROR.search(text) else _SUMMARY.search(text)
    found = None if summary else parse(text)
    match = _PROTOCOL.search(text)
    if match is None:
        raise ParseError("sockperf has no line 'IP = ... # TCP' or '# UDP' that shows what it is.")
    protocol, version = match[2].lower(), _VERSION.search(text)
    state = "warm" if "Warmup stage" in text else None
    trips = metric(found, found.samples, protocol, state=state) if found else None
    return [
        replace(
            _CASE,
            metrics=[trips or _mean(text, protocol, state)],
            parameters={"method": protocol},
            transport="tcp" if protocol == "tcp" else None,
            note=f"sockperf {version[1]}" if version and version[1] else "",
            peer=match[1],
        )
    ]


_CASE = Found("latency", (), machines=True, nodes=PAIR)
TOOL = Tool("sockperf", recognises, read, failed=_CASE)


def metric(
    found: Exchanges,
    kept: Sequence[float],
    protocol: str = "tcp",
    conditions: Mapping[str, object] | None = None,
    state: str | None = None,
) -> Metric:
    """Round trips as a distribution.

    kept: those that become samples, us. protocol: "tcp" or "udp". conditions: what tells them from
    others, such as bytes of a message. state: "warm", "cold", or None where nothing shows it.
    """
    name, seen = f"{protocol}_round_trip", {"round_trips": len(found.samples)}
    known = conditions or {}
    return Metric(name, "us", tuple(kept), state, known, distribution=True, observed=seen)


def _mean(text: str, protocol: str, state: str | None) -> Metric:
    """Return the mean of a summary; what sockperf calls latency is half a round trip."""
    kind, mean = _SUMMARY.findall(text)[0]
    times = 2.0 if kind == "Latency" else 1.0
    seen: dict[str, int | float] = {
        f"p{which}_us": round(float(value) * times, 3) for which, value in _PERCENTILE.findall(text)
    }
    if count := _COUNT.search(text):
        seen["round_trips"] = int(count[1])
    if duration := _DURATION.search(text):
        seen["seconds"] = float(duration[1])
    value, spread = round(float(mean) * times, 3), _DEVIATION.search(text)
    stddev = round(float(spread[1]) * times, 3) if spread else None
    name = f"{protocol}_round_trip"
    return Metric(name, "us", state=state, value=value, stddev=stddev, observed=seen)
