"""ping of Linux (iputils) and macOS: every round trip, and how many packets were lost."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nixwulf.outputs import ParseError

_REPLY = re.compile(r"time[=<](\d+(?:\.\d+)?) ms")
_COUNTS = re.compile(r"(\d{1,15}) packets transmitted, (\d{1,15}) (?:packets )?received")


@dataclass(frozen=True)
class Replies:
    """Round trips in microseconds in the order of their arrival, and packets lost."""

    samples: tuple[float, ...]
    lost: int


def parse(text: str) -> Replies:
    """The replies of a ping that printed each (not -q); raises ParseError without statistics."""
    counts = _COUNTS.search(text)
    if counts is None:
        last = len(text.splitlines())
        raise ParseError(f"ping printed no 'packets transmitted' by line {last}.")
    samples = tuple(round(float(value) * 1000, 1) for value in _REPLY.findall(text))
    return Replies(samples, int(counts[1]) - int(counts[2]))


def recognises(text: str) -> bool:
    """Its statistics."""
    return _COUNTS.search(text) is not None
