"""perftest: latency and bandwidth of RDMA verbs, as the benchmark of that name has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nixwulf.outputs import perftest as parser
from nixwulf.outputs.importers import PAIR, Found, Tool, metric, told_apart
from nixwulf.outputs.perftest import BandwidthRow, LatencyRow

_TITLE = re.compile(r"(?:RDMA_)?(Write|Read|Send|Atomic\w*) (?:Bidirectional )?(?:BW|Latency) Test")
_COMMAND = re.compile(r"\bib_(write|read|send)_(?:lat|bw)\b")
_QPS = re.compile(r"Number of qps\s*: (\d{1,6})")


def _read(text: str) -> list[Found]:
    rows = parser.parse(text)
    titles = _TITLE.findall(text)
    operations = {name.lower() for name in (*titles, *_COMMAND.findall(text))}
    qps = set(_QPS.findall(text))
    reported = {
        "operation": operations.pop() if len(operations) == 1 else None,
        "qps": int(qps.pop()) if len(qps) == 1 else None,
        "bidirectional": True if "Bidirectional BW Test" in text else None,
    }
    devices = {row.details.get("device") for row in rows}
    seen = {"device": devices.pop()} if len(devices) == 1 else {}
    groups: dict[tuple[Any, ...], list[LatencyRow | BandwidthRow]] = {}
    for row in rows:
        key = (type(row), row.bytes, *sorted(row.details.items()))
        groups.setdefault(key, []).append(row)
    several = (
        f"{len(titles)} tests stand in this output, and its rows do not tell of which they are.",
    )
    return [
        Found(
            "perftest",
            told_apart(one for own in groups.values() for one in _metrics(own, reported, seen)),
            machines=True,
            nodes=PAIR,
            transport="rdma",
            warnings=several if len(titles) > 1 else (),
        )
    ]


TOOL = Tool("perftest", parser, _read)


def _metrics(
    rows: Sequence[LatencyRow | BandwidthRow], reported: Mapping[str, Any], seen: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Rows of one size are samples; of latencies the medians, with the worst of their tails."""
    details = {key: value for key, value in rows[0].details.items() if key not in seen}
    conditions = {**reported, **details, "bytes": rows[0].bytes}
    latencies = [row for row in rows if isinstance(row, LatencyRow)]
    if latencies:
        yield metric(
            "rdma_latency",
            "us",
            samples=[row.typical for row in latencies],
            conditions=conditions,
            observed={
                **seen,
                "average_us": sum(row.average for row in latencies) / len(latencies),
                "p99_us": max(row.p99 for row in latencies),
                "p999_us": max(row.p999 for row in latencies),
            },
        )
        return
    rates = [row for row in rows if isinstance(row, BandwidthRow)]
    yield metric(
        "rdma_bandwidth",
        "Gbit/s",
        samples=[row.average_gbps for row in rates],
        conditions=conditions,
        observed={**seen, "peak_gbps": max(row.peak_gbps or 0 for row in rates) or None},
    )
