"""Models too large for a CPU's cache, by what smaller ones that fit were measured to read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nixwulf.core.text import format_significant
from nixwulf.perf.explain.diagnostics import Diagnostic
from nixwulf.perf.explain.measured import MeasuredCase
from nixwulf.perf.explain.subject import batch, facts_of
from nixwulf.results.record import Record

_FASTER = 1.3  # a smaller ratio is the noise of runs, and overhead that is not reading
_MIB = 2**20


def out_of_cache(one: MeasuredCase, smaller: Sequence[MeasuredCase]) -> list[Diagnostic]:
    """Why decoding by the CPU of one node reads slower than a model that fits the cache, if so.

    Args:
        smaller: the same of other models, it itself among them.
    """
    record, size = one.record, cache_bytes(one.record)
    node = facts_of(record["nodes"][0]["platform"]) if record.get("nodes") else None
    if one.metric != "decode" or record["case"]["nodes"] != 1 or not size or "gpu" in (node or {}):
        return []
    own, bytes_ = _read_gbs(one), record.get("model", {}).get("bytes", 0)
    fit = [each for each in smaller if 0 < each.record.get("model", {}).get("bytes", 0) <= size]
    fastest = max(fit, key=_read_gbs, default=one)
    if bytes_ <= size or not own or _read_gbs(fastest) < _FASTER * own:
        return []
    text = (
        f"The model's {bytes_ / _MIB:.0f} MiB do not fit the CPU's cache of {size / _MIB:.0f} MiB "
        f"and were read at {format_significant(own)} GB/s; {fastest.record['case']['model']!r}, "
        f"which fits, at {format_significant(_read_gbs(fastest))} GB/s."
    )
    return [Diagnostic("cache", text, "nodes", _read_gbs(fastest) / own)]


def cache_bytes(record: Record) -> int:
    """The smallest last-level cache of a run's nodes, bytes; 0 where one is not known."""
    sizes = [str(node.get("facts", {}).get("cpu_cache", "")) for node in record.get("nodes", ())]
    found = [re.fullmatch(r"([0-9]{1,9})K", size) for size in sizes]
    return min((int(one[1]) * 1024 if one else 0 for one in found), default=0)


def _read_gbs(one: MeasuredCase) -> float:
    """All of the weights once for each step."""
    size = one.record.get("model", {}).get("bytes", 0)
    return float(size * one.value / batch(one.conditions) / 1e9)
