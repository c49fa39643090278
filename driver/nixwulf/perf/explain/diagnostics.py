"""Facts in a record that make a case slower than it should be, each with what it slows.

Also links judged: of a record that measured one and no model, whether it carries what it should.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from nixwulf.core.errors import InputError
from nixwulf.core.files import shipped_table
from nixwulf.core.text import amount, format_significant
from nixwulf.inventory.fabrics import RDMA_KINDS, TRAINED_KINDS
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.perf.explain.subject import facts_of
from nixwulf.perf.inputs import FabricFacts, fabric_facts
from nixwulf.results.record import Record, RecordedFabric, RecordedMetric
from nixwulf.results.table import record_bandwidth_gbps, record_lost, record_rtt_us, waiting_us

Slows = Literal["nodes", "processors", "rate", "trips", "link", ""]
"""The quantity that a fact makes worse: all that the nodes do, what their CPUs do, bits a second of
the link, its round trips, both of these; empty: none that a speed depends on."""

LINK_KEYS = frozenset({"link-loss", "link-rate", "link-latency", "tcp"})
"""Of diagnostics of the link as it was measured."""
LEAST_SHARE, MOST_TIMES = 0.5, 3.0
"""Of a link's usual bandwidth and round trip: beyond these it is slow."""
_OF_LAB = 2.0
_LAB_US, _LAB_GBPS = 100.0, 8.0
"""What namespaces take and carry without any shape: 80 to 100 us, 8.5 to 16 Gbit/s were measured on
two CPUs."""
_FEW_THREADS = 0.5  # of the CPUs: as many threads as cores are half where each core has two
_SPEED = re.compile(r"(\d+(?:\.\d+)?) Gb/s")
_GPU_BACKENDS = ("CUDA", "ROCm", "HIP", "Vulkan", "Metal", "MTL", "SYCL", "RPC")


def is_busy(busy: float, cpus: float) -> bool:
    """Tell whether so many busy CPUs are more than the noise of ticks, logins and timers."""
    return busy >= max(0.5, 0.05 * cpus)


@dataclass(frozen=True)
class Diagnostic:
    """A fact that is off.

    key: of the kind of cause. text: a sentence. slows: the quantity that it makes worse, by so many
    times, or by so many at most; None: by how many is not known. included: predictions are made
    with that quantity as it was measured. mended: the link without it, where that is not the same
    link so many times better.
    """

    key: str
    text: str
    slows: Slows
    times: float | None = None
    most: bool = False
    included: bool = False
    mended: FabricFacts | None = None


def diagnostics(record: Record) -> list[Diagnostic]:
    """List what is off with the link, the nodes and the gates."""
    finders = (_link, _trained, _throttled, _cpu, _limits, _load, _threads, _gates)
    return [one for find in finders for one in find(record)]


def _trained(record: Record) -> Iterator[Diagnostic]:
    """Cables that run below the speed of the platform's ports, where the fabric is of such."""
    if record.get("fabric", {}).get("kind") not in TRAINED_KINDS:
        return
    for node in record.get("nodes", ()):
        expected = _port_gbps(node["platform"])
        facts = node.get("facts", {})
        slow: dict[tuple[str, float], list[str]] = {}
        for key, value in facts.items():
            found = _SPEED.search(str(value))
            if not key.endswith(("tx_speed", "rx_speed")) or not found:
                continue
            lanes = str(facts.get(key.replace("speed", "lanes"), "1"))
            count = int(lanes) if lanes.isdecimal() else 1
            trained = float(found[1]) * count
            if expected and trained < expected:
                slow.setdefault((f"{found[1]} Gb/s x {count}", trained), []).append(key)
        for (speed, trained), keys in slow.items():
            yield Diagnostic(
                "cable",
                f"A cable of node {node['name']!r} is trained at {speed} ({', '.join(keys)}), and "
                f"its ports can {expected:g} Gbit/s: unplug it at both ends, then try another.",
                "rate",
                expected / trained if trained else None,
                most=True,
                included=record_bandwidth_gbps(record) is not None,
            )


@cache
def _port_gbps(platform: str) -> float:
    if platform not in platform_names():
        return 0.0
    ports = load_platform(platform).get("ports", ())
    usb4 = [one for one in ports if re.match(r"usb4|thunderbolt", one["kind"], re.IGNORECASE)]
    return float(max((one.get("speed_gbps", 0.0) for one in usb4), default=0.0))


def _throttled(record: Record) -> Iterator[Diagnostic]:
    for one in record.get("power", {}).get("throttled", ()):
        share = f", in {100 * one['share']:.0f} % of the samples" if "share" in one else ""
        yield Diagnostic(
            "throttled",
            f"Node {one['node']!r} throttled while it was measured: {one['counter']}{share}.",
            "nodes",
        )


def _cpu(record: Record) -> Iterator[Diagnostic]:
    if not any("gpu" in (facts_of(name) or {}) for name in _platforms(record)):
        return
    parameters = record["case"]["parameters"]
    for key in ("backend", "device"):
        if str(parameters.get(key)).lower() == "cpu":
            text = f"It is of the CPU ({key} {parameters[key]!r}), and the prediction of the GPU."
            yield Diagnostic("cpu", text, "nodes")
            return
    backends = record.get("engine", {}).get("backends", "")
    if "CPU" in backends and not any(name in backends for name in _GPU_BACKENDS):
        text = f"The engine computed on the CPU (backends {backends!r}), not on the GPU."
        yield Diagnostic("cpu", text, "nodes")


def _platforms(record: Record) -> list[str]:
    nodes = record.get("nodes", ())
    return [node["platform"] for node in nodes] or list(record["cluster"].get("platforms", ()))


def _counts(record: Record, name: str) -> list[tuple[float, int, str]]:
    """A fact that counts CPUs, the CPUs, and the node; of nodes that have both, the least first."""
    found = []
    for node in record.get("nodes", ()):
        facts = node.get("facts", {})
        value, cpus = facts.get(name), facts.get("cpus")
        # Facts of a record may be of any type.
        if isinstance(value, int | float) and isinstance(cpus, int) and value > 0 < cpus:
            found.append((float(value), cpus, str(node["name"])))
    return sorted(found)


def threads_of(record: Record) -> int:
    """Threads that the engine computed with on a node; 0 where that is not known."""
    metrics = record.get("metrics", ())
    counts = [one["conditions"].get("n_threads", 0) for one in metrics]
    counts.append(record["case"]["parameters"].get("threads", 0))
    return next((int(one) for one in counts if isinstance(one, int) and one > 0), 0)


def _limits(record: Record) -> Iterator[Diagnostic]:
    """Fewer CPUs than there are: of the node that is worst off, for others wait for it."""
    threads = threads_of(record)
    for key, name, words in (
        ("quota", "cpu_quota", "a CPU quota allows"),
        ("affinity", "cpus_allowed", "its processes may run on"),
    ):
        for allowed, cpus, node in _counts(record, name)[:1]:
            needed = min(threads or cpus, cpus)
            if needed > allowed:
                text = f"On node {node!r} {words} {allowed:g} of {cpus} CPUs, for {needed} threads."
                yield Diagnostic(key, text, "processors", needed / allowed, most=True)


def _load(record: Record) -> Iterator[Diagnostic]:
    """CPUs that others used; all nodes of a lab see those of one machine, so the least counts."""
    lab, loads = record["cluster"].get("lab", False), _counts(record, "busy_cpus")
    for busy, cpus, name in loads[:1] if lab else loads[-1:]:
        if is_busy(busy, cpus):
            threads = threads_of(record) or cpus
            # A fair scheduler gives each of them the same share of the CPUs.
            text = f"Other load: {busy:g} of {cpus} CPUs of node {name!r} were busy before the run."
            slower = max(1.0, (threads + busy) / cpus)
            yield Diagnostic("load", text, "processors", slower, most=True)


def _threads(record: Record) -> Iterator[Diagnostic]:
    """Judge the threads of a computing CPU; nodes of a lab get a part of one machine's."""
    threads, lab = threads_of(record), record["cluster"].get("lab", False)
    if any("gpu" in (facts_of(name) or {}) for name in _platforms(record)) or not threads or lab:
        return
    cpus = min((cpus for _, cpus, _ in _counts(record, "cpus")), default=0)
    if threads < _FEW_THREADS * cpus:
        text = f"It computed with {threads} threads, and its nodes have {cpus} CPUs each."
        yield Diagnostic("threads", text, "processors", cpus / threads, most=True)


def _link(record: Record) -> Iterator[Diagnostic]:
    """Say what is wrong with the link; a lab's is compared with the shape that was asked for.

    Predictions take the link as it was measured: it makes a case slow, not slower than predicted.
    """
    fabric, case = record.get("fabric", {}), record["case"]
    if case.get("transport") != "tcp" or "kind" not in fabric:
        return
    name = fabric["name"]
    rtt, measured = record_rtt_us(record), record_bandwidth_gbps(record)
    try:
        usual_us, usual_gbps, slow = _usual(fabric)
    except InputError:
        return  # nothing is known of such a fabric
    sent, lost = record_lost(record)
    if rtt and lost:
        effective = rtt + waiting_us(record)
        text = (
            f"{lost} of {sent} packets were lost on {name!r} while it was idle; look at its cable "
            "and ports."
        )
        yield Diagnostic("link-loss", text, "trips", effective / rtt, included=True)
    if measured and measured < LEAST_SHARE * usual_gbps and not lost:
        text = (
            f"The link carried {format_significant(measured)} Gbit/s, and {name!r} should carry "
            f"{format_significant(usual_gbps)}; look at its cable, MTU and load."
        )
        yield Diagnostic("link-rate", text, "rate", usual_gbps / measured, included=True)
    if rtt and rtt > slow * usual_us:
        text = (
            f"A round trip took {format_significant(rtt)} us, and {format_significant(usual_us)} "
            "us are usual of it."
        )
        yield Diagnostic("link-latency", text, "trips", rtt / usual_us, included=True)
    if fabric["kind"] in RDMA_KINDS:
        text = f"It crossed {name!r} by TCP, and this fabric carries RDMA."
        rdma = fabric_facts(fabric["kind"], "rdma", fabric.get("speed_gbps", 0.0))
        yield Diagnostic("tcp", text, "link", included=True, mended=rdma)


def _usual(fabric: RecordedFabric) -> tuple[float, float, float]:
    """Round trip in us and bandwidth in Gbit/s as they should be, and how many times is slow."""
    if "shaped_by" not in fabric:
        usual = fabric_facts(fabric["kind"], "tcp", fabric.get("speed_gbps", 0.0))
        return usual.rtt_us, usual.bandwidth_gbps, MOST_TIMES
    asked = fabric.get("asked", {})
    trip = 2 * asked.get("delay_us", 0.0) + _LAB_US
    return trip, min(asked.get("rate_gbps", _LAB_GBPS), _LAB_GBPS), _OF_LAB


def _gates(record: Record) -> Iterator[Diagnostic]:
    found = record.get("gates", ())
    if not found:
        return
    from nixwulf.plugins.gates import all_gates

    for one in found:
        gate = all_gates().get(one["gate"])
        slows: Slows = gate.slows if gate else ""
        for sentence in one.get("sentences", ()):
            state = "was waived" if one["state"] == "waived" else f"is {one['state']}"
            text = f"The gate {one['gate']!r} {state}: {sentence}"
            yield Diagnostic(f"gate-{one['gate']}", text, slows)


_TRIPS = ("ping_round_trip", "tcp_round_trip", "udp_round_trip")
_TIMES = frozenset({"rdma_latency", *_TRIPS})
_OF_KINDS = {"bandwidth": "tcp", "rdma_bandwidth": "rdma", "rdma_latency": "rdma"}
_OF_KINDS |= dict.fromkeys(_TRIPS, "tcp")
_LEAST_BYTES = 65536  # smaller messages are bound by their number


def judged(record: Record) -> str:
    """Compare its best value of each metric of a link with the usual one, and say what mends it.

    The best, since small messages and first tries are slow. Empty without a link or usual value.
    """
    best: dict[str, RecordedMetric] = {}
    for metric in record.get("metrics", ()):
        name, time = metric["name"], metric["name"] in _TIMES
        if time or metric["conditions"].get("bytes", _LEAST_BYTES) >= _LEAST_BYTES:
            both = [metric, *([best[name]] if name in best else [])]
            best[name] = (min if time else max)(both, key=lambda one: one["value"])
    return " ".join(sentence for metric in best.values() for sentence in _sentences(record, metric))


def _sentences(record: Record, metric: RecordedMetric) -> Iterator[str]:
    platforms = set(record.get("cluster", {}).get("platforms", ()))
    name, value, unit = metric["name"], metric["value"], metric["unit"]
    rails = shipped_table("rails")["rails"]
    rows = (one for one in rails if {one["platform"]} == platforms and one["metric"] == name)
    row = next(rows, None)
    usual, source = (row["usual"], row["source"]) if row else _of_kind(record, name)
    if not usual:
        return
    read = f"{name}: {amount(value, unit)}, where {amount(usual, unit)} is usual ({source})"
    slow = value > MOST_TIMES * usual if name in _TIMES else value < LEAST_SHARE * usual
    causes = row["causes"] if row else ()
    known = (
        one for one in causes if (value < one["below"] if "below" in one else value > one["above"])
    )
    cause = next(known, None)
    if cause:
        yield f"{read}. Known from {cause['source']}: {cause['text']}."
    elif slow:
        see = "route, bridges and power saving" if name in _TIMES else "cable, MTU and PCIe"
        yield f"{read}. See {see} of both ends: 'nixwulf doctor' judges them."
    else:
        yield f"{read}: as it should be."


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
