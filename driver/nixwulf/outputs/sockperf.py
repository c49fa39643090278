"""sockperf ping-pong: every round trip of its full log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.outputs import PAIR, Found, ParseError, Tool

_HEADER = "packet, txTime(sec), rxTime(sec), rtt(usec)"
_ROW = re.compile(r"^\d+, (?P<sent>\d+\.\d+), \d+\.\d+, (?P<rtt>\d+\.\d+)$")
_ERROR = re.compile(r"^sockperf: ERROR: (?P<words>.+)$", re.MULTILINE)
_PROTOCOL = re.compile(r"PORT = +\d+ # (TCP|UDP)")


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
        raise ParseError(f"sockperf failed: {failed['words'].rstrip('.')}.")
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
    """The head of its log, or its own name for its errors."""
    return _HEADER in text or _ERROR.search(text) is not None


def read(text: str) -> list[Found]:
    """One case: round trips over sockets."""
    found = parse(text)
    match = _PROTOCOL.search(text)
    if match is None:
        raise ParseError("sockperf has no line 'IP = ... # TCP' or '# UDP' that shows what it is.")
    protocol = match[1].lower()
    one = metric(found, found.samples, protocol, state="warm" if "Warmup stage" in text else None)
    return [
        Found(
            "latency",
            [one],
            machines=True,
            nodes=PAIR,
            parameters={"method": protocol},
            transport="tcp" if protocol == "tcp" else None,
        )
    ]


TOOL = Tool("sockperf", recognises, read)


def metric(
    found: Exchanges,
    kept: Sequence[float],
    protocol: str = "tcp",
    conditions: Mapping[str, Any] | None = None,
    state: str | None = None,
) -> Metric:
    """Round trips as a distribution.

    Args:
        found: All round trips of the log.
        kept: Those that become samples, us.
        protocol: "tcp" or "udp".
        conditions: What distinguishes them from others, such as bytes of a message.
        state: "warm", "cold", or None where the output does not show it.
    """
    return Metric(
        f"{protocol}_round_trip",
        "us",
        tuple(kept),
        state,
        conditions or {},
        distribution=True,
        observed={"round_trips": len(found.samples)},
    )
