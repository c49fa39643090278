"""ping: round trips of the kernels, as the benchmark latency has them."""

from __future__ import annotations

import re

from nixwulf.outputs import ParseError
from nixwulf.outputs import ping as parser
from nixwulf.outputs.importers import PAIR, Found, Tool, metric

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
