"""nccl-tests and rccl-tests: time and bus bandwidth of a collective by size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.outputs import nccl as parser
from nixwulf.outputs.importers import ANY, Found, Tool, exactly, metric, told_apart

_STARTING = re.compile(
    r"^# Collective test (?:starting|concluded): (\w+?)(?:_perf)?$", re.MULTILINE
)
_RANK = re.compile(r"^#\s+Rank\s+\d+ .*?\bon\s+(\S+) device", re.MULTILINE)
_WARM_UP = re.compile(r"warmup iters: (\d{1,9})")
_SUMMARY = re.compile(r"^[ \t]*collective[ \t]+mode\b", re.MULTILINE)
# As the benchmark of this driver names them.
_NAMES = {"alltoall": "all_to_all", "sendrecv": "send_receive", "allreduce": "all_reduce"}
_BITS = 8


def _read(text: str) -> list[Found]:
    if _SUMMARY.search(text):
        return [Found("collectives", told_apart(_of_summary(text)), machines=True)]
    table = parser.parse(text)
    collective = _STARTING.search(text)
    hosts = len(set(_RANK.findall(text)))
    nodes = exactly(hosts, f"ranks on {hosts} hosts") if hosts else ANY
    warm_up = _WARM_UP.search(text)
    state = ("warm" if int(warm_up[1]) else "cold") if warm_up else None
    metrics = told_apart(_of_table(table, _name(collective[1] if collective else ""), state))
    return [
        Found("collectives", metrics, machines=True, nodes=nodes, transport=_transport(text, hosts))
    ]


TOOL = Tool("nccl-tests", parser, _read)


def _name(collective: str) -> str:
    """Of the end of an output alone, nobody knows what it measured."""
    name = re.sub(r"[^a-z0-9]+", "_", collective.lower()).strip("_")
    return _NAMES.get(name, name) or "collective"


def _of_table(table: parser.NcclTable, name: str, state: str | None) -> Iterator[Mapping[str, Any]]:
    for row in table.rows:
        for placement, us, gbs in (
            ("out-of-place", row.out_of_place_us, row.out_of_place_gbs),
            ("in-place", row.in_place_us, row.in_place_gbs),
        ):
            conditions = {"bytes": row.bytes, "placement": placement}
            rate = gbs * _BITS
            yield metric(f"{name}_time", "us", us, state=state, conditions=conditions)
            yield metric(f"{name}_bandwidth", "Gbit/s", rate, state=state, conditions=conditions)
    average = table.average_gbs * _BITS
    yield metric(f"{name}_average_bandwidth", "Gbit/s", average, state=state, conditions={})


def _of_summary(text: str) -> Iterator[Mapping[str, Any]]:
    for line in parser.parse_summary(text):
        name = f"{_name(line.collective)}_time"
        placements = zip(
            ("out-of-place", "in-place"), zip(*line.repetitions, strict=True), strict=True
        )
        for placement, times in placements:
            conditions = {"mode": line.mode, "placement": placement}
            yield metric(name, "us", samples=times, conditions=conditions)


def _transport(text: str, hosts: int) -> str | None:
    """NCCL's own words, where they are of one only."""
    transports = {how for mark, how in (("NET/IB", "rdma"), ("NET/Socket", "tcp")) if mark in text}
    return transports.pop() if len(transports) == 1 and hosts != 1 else None
