"""sockperf ping-pong: round trips over sockets, as the benchmark latency has them."""

from __future__ import annotations

import re

from nixwulf.outputs import ParseError
from nixwulf.outputs import sockperf as parser
from nixwulf.outputs.importers import PAIR, Found, Tool, metric

_PROTOCOL = re.compile(r"PORT = +\d+ # (TCP|UDP)")


def _read(text: str) -> list[Found]:
    found = parser.parse(text)
    protocol = _PROTOCOL.search(text)
    if protocol is None:
        raise ParseError("sockperf has no line 'IP = ... # TCP' or '# UDP' that tells what it is.")
    one = metric(
        f"{protocol[1].lower()}_round_trip",
        "us",
        samples=found.samples,
        spread=True,
        state="warm" if "Warmup stage" in text else None,
        conditions={},
        observed={"observations": len(found.samples)},
    )
    return [
        Found(
            "latency",
            [one],
            machines=True,
            nodes=PAIR,
            parameters={"method": protocol[1].lower()},
            transport="tcp" if protocol[1] == "TCP" else None,
        )
    ]


TOOL = Tool("sockperf", parser, _read)
