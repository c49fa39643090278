"""PyTorch's smoke tests of all_to_all_single: time and rate by size."""

from __future__ import annotations

from nixwulf.outputs import torch_all_to_all as parser
from nixwulf.outputs.importers import Found, Tool, metric, told_apart


def _read(text: str) -> list[Found]:
    metrics = []
    for one in parser.parse(text):
        conditions = {"bytes": one.size}
        metrics.append(metric("all_to_all_time", "us", one.time_us, conditions=conditions))
        # Logical and of one rank: not the bus bandwidth of nccl-tests.
        metrics.append(metric("all_to_all_rank_rate", "Gbit/s", one.gbps, conditions=conditions))
    return [Found("torch-all-to-all", told_apart(metrics), machines=True)]


TOOL = Tool("torch-all-to-all", parser, _read)
