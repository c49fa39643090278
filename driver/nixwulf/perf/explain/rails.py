"""Links judged: of a record that measured one and no model, whether it carries what it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import amount
from nixwulf.perf.inputs import fabric_facts
from nixwulf.results.record import Record

_TRIPS = ("ping_round_trip", "tcp_round_trip", "udp_round_trip")
_TIMES = frozenset({"rdma_latency", *_TRIPS})
_OF_KINDS = {"bandwidth": "tcp", "rdma_bandwidth": "rdma", "rdma_latency": "rdma"}
_OF_KINDS |= dict.fromkeys(_TRIPS, "tcp")
# As diagnostics.py has it of a run's own link: half of the usual rate, three times its time.
LEAST_SHARE, MOST_TIMES = 0.5, 3.0
_LEAST_BYTES = 65536  # smaller messages are bound by their number


@cache
def _rails() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_toml(DATA / "rails.toml")["rails"]
    return rows


def judged(record: Record) -> str:
    """What its best value of each metric of a link is beside the usual one, and what mends it.

    The best, since small messages and first tries are slow of themselves. Empty where it measured
    no link, or nothing is known of such a one.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for metric in record.get("metrics", ()):
        name, time = metric["name"], metric["name"] in _TIMES
        if time or metric["conditions"].get("bytes", _LEAST_BYTES) >= _LEAST_BYTES:
            both = [metric, *([best[name]] if name in best else [])]
            best[name] = (min if time else max)(both, key=lambda one: one["value"])
    return " ".join(sentence for metric in best.values() for sentence in _sentences(record, metric))


def _sentences(record: Record, metric: Mapping[str, Any]) -> Iterator[str]:
    platforms = set(record.get("cluster", {}).get("platforms", ()))
    name, value, unit = metric["name"], metric["value"], metric["unit"]
    row = next(
        (one for one in _rails() if {one["platform"]} == platforms and one["metric"] == name), None
    )
    usual, source = (row["usual"], row["source"]) if row else _of_kind(record, name)
    if not usual:
        return
    read = f"{name}: {amount(value, unit)}, where {amount(usual, unit)} is usual ({source})"
    slow = value > MOST_TIMES * usual if name in _TIMES else value < LEAST_SHARE * usual
    causes = row["causes"] if row else ()
    cause = next((one for one in causes if _is(one, value)), None)
    if cause:
        yield f"{read}. Known from {cause['source']}: {cause['text']}."
    elif slow:
        see = "route, bridges and power saving" if name in _TIMES else "cable, MTU and PCIe"
        yield f"{read}. See {see} of both ends: 'nixwulf doctor' judges them."
    else:
        yield f"{read}: as it should be."


def _is(cause: Mapping[str, Any], value: float) -> bool:
    return bool(value < cause["below"] if "below" in cause else value > cause["above"])


def _of_kind(record: Record, name: str) -> tuple[float, str]:
    """The usual value of the record's fabric, in Gbit/s or us, and its source; 0 of no fabric."""
    fabric = record.get("fabric", {})
    if "kind" not in fabric or "shaped_by" in fabric or name not in _OF_KINDS:
        return 0.0, ""
    try:
        facts = fabric_facts(fabric["kind"], _OF_KINDS[name], fabric.get("speed_gbps", 0.0))
    except InputError:
        return 0.0, ""
    return (facts.rtt_us if name in _TIMES else facts.bandwidth_gbps), "docs/reference/links.md"
