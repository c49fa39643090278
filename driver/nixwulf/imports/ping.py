"""ping: round trips of the kernels, as the benchmark latency has them."""

from __future__ import annotations

import re

from nixwulf.imports import PAIR, Found, Tool, metric
from nixwulf.parsers import ParseError
from nixwulf.parsers import ping as parser

_REPLY = re.compile(r"^(\d{1,6}) bytes from ", re.MULTILINE)


def _read(text: str) -> list[Found]:
    replies = parser.parse(text)
    if not replies.samples:
        raise ParseError(f"ping printed no reply: {replies.lost} packets are lost.")
    sizes = {int(size) for size in _REPLY.findall(text)}
    one = metric(
        "ping_round_trip",
        "us",
        samples=replies.samples,
        spread=True,
        conditions={"bytes": sizes.pop() if len(sizes) == 1 else None},
        observed={"lost": replies.lost},
    )
    return [Found("latency", [one], machines=True, nodes=PAIR, parameters={"method": "ping"})]


TOOL = Tool("ping", parser, _read)
