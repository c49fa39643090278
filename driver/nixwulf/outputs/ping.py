"""ping of Linux (iputils) and macOS: every round trip, and how many packets were lost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nixwulf.core.metric import Metric
from nixwulf.outputs import PAIR, Found, ParseError, Tool, ToolFailed

_TIME = re.compile(r"time[=<](\d+(?:\.\d+)?) ms")
_SIZE = re.compile(r"^[ \t]*(\d{1,6}) bytes from ", re.MULTILINE)
_DATA = re.compile(
    r"^[ \t]*PING .*[ :] *(\d{1,6})(?:\(\d+\) bytes of data| data bytes)", re.MULTILINE
)
_HEADER = 8  # of ICMP, which a reply's size has in it
_FROM = re.compile(r"^[ \t]*\d{1,6} bytes from (\S+?):? ", re.MULTILINE)
_PEER = re.compile(r"^[ \t]*--- (\S+) ping statistics ---", re.MULTILINE)
_COUNTS = re.compile(r"(\d{1,15}) packets transmitted, (\d{1,15}) (?:packets )?received")

_SUMMARY = re.compile(
    r"min/avg/max/(?:m|std)dev = (?P<min>[\d.]+)/(?P<avg>[\d.]+)/(?P<max>[\d.]+)/(?P<mdev>[\d.]+)"
)
_NOBODY = re.compile(r", 0 (?:packets )?received")


# Words of iputils in the languages that set numbers as English does, by the English ones, which
# they take the place of; what holds another is first. https://github.com/iputils/iputils/tree/master/po
_ENGLISH = {
    "bytes of data": "Bytes an Daten|octets de données|bytes de datos|byte di dati|bytes de dados",
    "bytes from": "Bytes von|octets de|bytes desde|byte dari|byte da|bytes de|bajtů z|octeți de la",
    "time=": "(?:Zeit|temps|tiempo|tempo|waktu|čas|timp)=",
    "packets transmitted": "Pakete übertragen|paquets transmis|paquetes transmitidos|"
    "pacchetti trasmessi|pacotes transmitidos|paket dikirim|paketů odesláno|pachete transmise",
    "received": "empfangen|reçus|recibidos|ricevuti|recebidos|diterima|přijato|primite",
    "ping statistics": "ping-Statistiken|estadísticas ping|estatísticas de ping",
}
_OTHERS = re.compile("|".join(f"({theirs})" for theirs in _ENGLISH.values()))


def _in_english(text: str) -> str:
    """The output as an English system prints it; text without replies is left as it is."""
    if "icmp_seq=" not in text and "min/avg/max" not in text:
        return text
    return _OTHERS.sub(lambda found: [*_ENGLISH][(found.lastindex or 1) - 1], text)


@dataclass(frozen=True)
class Replies:
    """Round trips in microseconds in the order of their arrival; packets lost, and received."""

    samples: tuple[float, ...]
    lost: int
    received: int


def parse(text: str) -> Replies:
    """The replies of a ping that printed each (not -q); raises ParseError without statistics."""
    text = _in_english(text)
    counts = _COUNTS.search(text)
    if counts is None:
        last = len(text.splitlines())
        raise ParseError(f"ping printed no 'packets transmitted' by line {last}.")
    samples = tuple(round(float(value) * 1000, 1) for value in _TIME.findall(text))
    sent, received = int(counts[1]), int(counts[2])
    return Replies(samples, max(0, sent - received), received)


def recognises(text: str) -> bool:
    """Tell whether the text has ping's statistics."""
    return "packets transmitted" in (ours := _in_english(text)) and bool(_COUNTS.search(ours))


def read(text: str) -> list[Found]:
    """One case: round trips of the kernels, or their mean where only a summary is there."""
    text = _in_english(text)
    replies = parse(text)
    summary = None if replies.samples else _SUMMARY.search(text)
    if not replies.samples and summary is None:
        error = ToolFailed if _NOBODY.search(text) else ParseError
        raise error(f"ping printed no reply: {replies.lost} packets are lost.")
    machines = set(_FROM.findall(text))
    if len(machines) > 1:
        raise ParseError(
            f"ping's output has replies of {len(machines)} machines, mixed; give each a file."
        )
    sizes = {int(size) for size in _SIZE.findall(text)}
    sizes = sizes or {int(size) + _HEADER for size in _DATA.findall(text)}
    one = metric(replies, {"bytes": sizes.pop() if len(sizes) == 1 else None})
    if summary:
        times = {name: round(float(text) * 1000, 1) for name, text in summary.groupdict().items()}
        seen = {f"{name}_us": times[name] for name in ("min", "max")}
        one = replace(one, distribution=False, value=times["avg"], stddev=times["mdev"])
        one = replace(one, observed={**one.observed, **seen})
    one = replace(one, observed={**one.observed, "round_trips": replies.received})
    peer = _PEER.search(text)
    return [replace(_CASE, metrics=[one], peer=peer[1] if peer else "")]


_CASE = Found("latency", (), machines=True, nodes=PAIR, parameters={"method": "ping"})
TOOL = Tool("ping", recognises, read, failed=_CASE)


def metric(replies: Replies, conditions: Mapping[str, object], state: str | None = None) -> Metric:
    """Round trips as a distribution.

    conditions: bytes of a packet with its ICMP header, and who answered. state: warm, cold, or None
    where it is not known.
    """
    lost = {"lost": replies.lost}
    name, trips = "ping_round_trip", replies.samples
    return Metric(name, "us", trips, state, conditions, distribution=True, observed=lost)
