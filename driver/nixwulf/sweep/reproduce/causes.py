"""What may have slowed a repeat: its facts beside those of the record that it repeats.

A fact that both have alike is no cause. Each cause has the command that looks closer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nixwulf.core.text import GIB, format_significant
from nixwulf.llm import Model
from nixwulf.perf.explain.diagnostics import LINK_KEYS, diagnostics
from nixwulf.results.fabrics import record_bandwidth_gbps, record_rtt_us
from nixwulf.results.record import Record

_BUSY, _BUSY_SHARE = 0.5, 0.05
"""CPUs of a node, and share of them: less is the noise of ticks, of the login and of timers."""
_RATE = 0.5
_TRIPS, _TRIP_US = 1.5, 100.0
_SIZE = 0.02
_CLOCK = 0.9
_SCARCE, _FAR = 0.55, 0.25
_OTHER = 0.9
"""What a difference of unknown effect is taken to cost, to sort by."""
_COMPARED = {"quota", "affinity", "load", "threads", *LINK_KEYS}
"""Diagnostics whose facts are held against the record's here."""


@dataclass(frozen=True)
class Cause:
    """A sentence without its full stop, the command to look closer, and what it may leave.

    left: the share of its speed that a case which depends on this alone keeps, to sort by.
    """

    what: str
    command: str
    left: float


def causes(
    record: Record,
    reference: Record,
    model: Model | None = None,
    source: str = "FILE",
    costless: Collection[str] = (),
) -> list[Cause]:
    """The facts that may have slowed a run, the likeliest first.

    Args:
        model: as the sweep names it, with its sha256 where that is known.
        source: the cluster's file, for the commands.
        costless: what the speed of the case does not depend on: sentences of diagnostics, and of
            the link 'rate' and 'trips'.
    """
    known = {one.text for one in diagnostics(reference)}
    cpus = [*_limits(record, reference), *_load(record)]
    starved = min((cause.left for cause in cpus if cause.left <= _SCARCE), default=0.0)
    found = [
        *cpus,
        *_threads(record, reference),
        *(_beside(cause, starved) for cause in _link(record, reference, source, costless)),
        *_model(record, reference, model),
        *_engine(record, reference, source),
        *_clocks(record, reference),
        *(Cause(one.text.rstrip("."), f"nixwulf preflight --cluster {source}", _OTHER)
          for one in diagnostics(record)
          if one.key not in _COMPARED and one.text not in {*known, *costless}),
    ]  # fmt: skip
    return sorted(found, key=lambda cause: cause.left)


def _beside(link: Cause, starved: float) -> Cause:
    """A link's cause after a lack of CPUs, which delays its packets too, unless it is far worse."""
    far_worse = link.left < _FAR * starved
    return link if far_worse else replace(link, left=max(link.left, starved))


def _facts(record: Record) -> dict[str, Mapping[str, Any]]:
    return {node["name"]: node.get("facts", {}) for node in record.get("nodes", ())}


def _limits(record: Record, reference: Record) -> Iterator[Cause]:
    """Fewer CPUs than there are, or than before."""
    before = list(_facts(reference).values())
    for key, words, command in (
        ("cpu_quota", "a quota gives it the time of", "grep . /sys/fs/cgroup/cpu.max"),
        ("cpus_allowed", "its processes may run on", "taskset -pc $$"),
    ):
        was = min((float(facts[key]) for facts in before if key in facts), default=None)
        for name, facts in _facts(record).items():
            if key in facts and (was is None or facts[key] < was):
                all_of_them = was or float(facts["cpus"])
                text = f"{words} {facts[key]:g} of {facts['cpus']} CPUs on node {name!r}"
                yield Cause(text, f"ssh {name} '{command}'", facts[key] / all_of_them)
                break  # one node is enough: the others wait for it


def _load(record: Record) -> Iterator[Cause]:
    """CPUs that others used."""
    loads = ((facts.get("busy_cpus", 0), name) for name, facts in _facts(record).items())
    busy, name = max(loads, default=(0, ""))
    count = _facts(record).get(name, {}).get("cpus", 0)
    if busy >= max(_BUSY, _BUSY_SHARE * count):
        text = f"other load: {busy:g} of {count} CPUs of node {name!r} were busy before the run"
        yield Cause(text, f"ssh {name} 'top -bn1 | head -15'", count / (count + busy))


def _threads(record: Record, reference: Record) -> Iterator[Cause]:
    for now, before in zip(record["metrics"], reference["metrics"], strict=False):
        threads, were = (one["conditions"].get("n_threads", 0) for one in (now, before))
        if 0 < threads < were:
            text = f"it computed with {threads} threads, the record with {were}"
            yield Cause(text, "nixwulf explain RECORD", threads / were)
            return


def _link(
    record: Record, reference: Record, source: str, costless: Collection[str]
) -> Iterator[Cause]:
    now, before = record.get("fabric", {}), reference.get("fabric", {})
    name = now.get("name", "")
    test = f"nixwulf bench links --cluster {source}"
    for rate, was in [(record_bandwidth_gbps(record), record_bandwidth_gbps(reference))]:
        if rate and was and rate < _RATE * was and "rate" not in costless:
            text = f"{name!r} carried {_number(rate)} Gbit/s, for the record {_number(was)}"
            yield Cause(text, test, rate / was)
    for trip, was in [(record_rtt_us(record), record_rtt_us(reference))]:
        if trip and was and trip > max(_TRIPS * was, was + _TRIP_US) and "trips" not in costless:
            text = (
                f"a round trip on {name!r} took {_number(trip)} us, for the record {_number(was)}"
            )
            yield Cause(text, test, was / trip)
    if record_bandwidth_gbps(reference) is None:
        for one in diagnostics(record):
            if one.key in LINK_KEYS and one.text not in costless:
                yield Cause(one.text.rstrip("."), test, _RATE)
    for key, unit in (("kind", ""), ("speed_gbps", " Gbit/s"), ("mtu", " bytes of MTU")):
        if key in now and key in before and now[key] != before[key]:
            less = isinstance(now[key], int | float) and now[key] < before[key]
            if less or key == "kind":
                text = f"{name!r} has {now[key]}{unit}, the record's fabric {before[key]}{unit}"
                left = now[key] / before[key] if key == "speed_gbps" else _OTHER
                yield Cause(text, f"nixwulf preflight --cluster {source}", left)


def _number(value: float) -> str:
    return format_significant(value)


def _model(record: Record, reference: Record, model: Model | None) -> Iterator[Cause]:
    now, before = record.get("model", {}), reference.get("model", {})
    path = now.get("file", now.get("name", "MODEL"))
    known = (model.sha256 if model else None) or before.get("sha256")
    size, was = now.get("bytes", 0), before.get("bytes", 0)
    if known and now.get("sha256", known) != known:
        text = "the model is another file than the record's, by its sha256"
        yield Cause(text, f"sha256sum {path}", min(_OTHER, was / size if size and was else 1))
    elif size and was and abs(size / was - 1) > _SIZE:
        text = f"the model has {size / GIB:.3g} GiB, the record's {was / GIB:.3g}"
        yield Cause(f"{text}: another quantization or model", f"ls -l {path}", was / size)
    elif now.get("weights") and before.get("weights", now["weights"]) != now["weights"]:
        text = f"its weights are {now['weights']}, the record's {before['weights']}"
        yield Cause(text, f"ls -l {path}", _OTHER)


def _engine(record: Record, reference: Record, source: str) -> Iterator[Cause]:
    now, before = record.get("engine", {}), reference.get("engine", {})
    name, look = now.get("name", "the engine"), f"nixwulf preflight facts --cluster {source}"
    lacking = {*before.get("backends", "").split(",")} - {*now.get("backends", "").split(",")}
    if now.get("backends") and lacking - {""}:
        text = f"its back ends are {now['backends']}, the record's {before['backends']}"
        yield Cause(text, look, _OTHER)
    key = next((key for key in ("build_commit", "version") if {key} <= now.keys() & before), "")
    if key and not (now[key].startswith(before[key]) or before[key].startswith(now[key])):
        text = f"{name} is {_build(now)}, for the record {_build(before)}"
        yield Cause(text, look, _OTHER)


def _build(engine: Mapping[str, str]) -> str:
    return engine.get("version") or engine["build_commit"]


def _clocks(record: Record, reference: Record) -> Iterator[Cause]:
    """The lowest mean clock of each unit: the processor and each GPU."""
    before = _mhz(reference)
    for unit, (mhz, name) in _mhz(record).items():
        was, _ = before.get(unit, (0.0, ""))
        if mhz < _CLOCK * was:
            text = (
                f"the clock of {unit} on node {name!r} was {mhz:.0f} MHz, for the record {was:.0f}"
            )
            yield Cause(text, f"ssh {name} 'grep MHz /proc/cpuinfo'", mhz / was)


def _mhz(record: Record) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    for name, node in record.get("power", {}).get("nodes", {}).items():
        for unit, clock in node.get("mhz", {}).items():
            found[unit] = min(found.get(unit, (clock["average"], name)), (clock["average"], name))
    return found
