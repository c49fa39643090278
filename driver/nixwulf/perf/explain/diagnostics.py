"""Facts in a record that would make a case slower than it should be, a sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from nixwulf.core.text import format_significant
from nixwulf.inventory.fabric_kinds import RDMA_KINDS, TRAINED_KINDS
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.perf.explain.subject import facts_of
from nixwulf.perf.inputs import FabricFacts, fabric_facts
from nixwulf.results.fabrics import record_bandwidth_gbps, record_rtt_us
from nixwulf.results.record import Record

_HALF = 0.5
_SLOW = 3.0
_SPEED = re.compile(r"(\d+(?:\.\d+)?) Gb/s")
_GPU_BACKENDS = ("CUDA", "ROCm", "HIP", "Vulkan", "Metal", "MTL", "SYCL", "RPC")


def diagnostics(record: Record) -> list[str]:
    """All of them, the likeliest first."""
    return [
        *_trained(record),
        *_throttled(record),
        *_cpu(record),
        *_gates(record),
    ]


def _trained(record: Record) -> Iterator[str]:
    """Cables that run below the speed of the platform's ports, where the fabric is of such."""
    if record.get("fabric", {}).get("kind") not in TRAINED_KINDS:
        return
    for node in record.get("nodes", ()):
        expected = _port_gbps(node["platform"])
        facts = node.get("facts", {})
        slow: dict[str, list[str]] = {}
        for key, value in facts.items():
            found = _SPEED.search(str(value))
            if not key.endswith(("tx_speed", "rx_speed")) or not found:
                continue
            lanes = str(facts.get(key.replace("speed", "lanes"), "1"))
            count = int(lanes) if lanes.isdecimal() else 1
            if expected and float(found[1]) * count < expected:
                slow.setdefault(f"{found[1]} Gb/s x {count}", []).append(key)
        for speed, keys in slow.items():
            yield (
                f"A cable of node {node['name']!r} is trained at {speed} ({', '.join(keys)}), and "
                f"its ports can {expected:g} Gbit/s: unplug it at both ends, then try another."
            )


def _port_gbps(platform: str) -> float:
    if platform not in platform_names():
        return 0.0
    ports = load_platform(platform).get("ports", ())
    usb4 = [one for one in ports if re.match(r"usb4|thunderbolt", one["kind"], re.IGNORECASE)]
    return float(max((one.get("speed_gbps", 0.0) for one in usb4), default=0.0))


def _throttled(record: Record) -> Iterator[str]:
    for one in record.get("power", {}).get("throttled", ()):
        share = f", in {100 * one['share']:.0f} % of the samples" if "share" in one else ""
        yield f"Node {one['node']!r} throttled while it was measured: {one['counter']}{share}."


def _cpu(record: Record) -> Iterator[str]:
    """A CPU where the platform has a GPU."""
    if not any("gpu" in (facts_of(name) or {}) for name in _platforms(record)):
        return
    parameters = record["case"]["parameters"]
    for key in ("backend", "device"):
        if str(parameters.get(key)).lower() == "cpu":
            yield f"It is of the CPU ({key} {parameters[key]!r}), and the prediction of the GPU."
            return
    backends = record.get("engine", {}).get("backends", "")
    if "CPU" in backends and not any(name in backends for name in _GPU_BACKENDS):
        yield f"The engine computed on the CPU (backends {backends!r}), not on the GPU."


def _platforms(record: Record) -> list[str]:
    nodes = record.get("nodes", ())
    return [node["platform"] for node in nodes] or list(record["cluster"].get("platforms", ()))


def slow_links(record: Record) -> list[tuple[str, FabricFacts]]:
    """What is wrong with the link, each with the link as it should be.

    Predictions are made with the link as it was measured, so it makes a case slow and not slower
    than predicted. The lab's links are as it makes them.
    """
    fabric, case = record.get("fabric", {}), record["case"]
    if case.get("transport") != "tcp" or "kind" not in fabric or "shaped_by" in fabric:
        return []
    kind, speed = fabric["kind"], fabric.get("speed_gbps", 0.0)
    rtt, measured = record_rtt_us(record), record_bandwidth_gbps(record)
    usual = fabric_facts(kind, "tcp", speed)
    found = []
    if measured and measured < _HALF * usual.bandwidth_gbps:
        text = (
            f"the link carried {format_significant(measured)} Gbit/s, and {fabric['name']!r} "
            f"should carry {format_significant(usual.bandwidth_gbps)}; look at its cable, MTU and "
            "load"
        )
        found.append((text, replace(usual, rtt_us=rtt or usual.rtt_us)))
    if rtt and rtt > _SLOW * usual.rtt_us:
        text = (
            f"a round trip took {format_significant(rtt)} us, and "
            f"{format_significant(usual.rtt_us)} us are usual of it"
        )
        found.append((text, replace(usual, bandwidth_gbps=measured or usual.bandwidth_gbps)))
    if kind in RDMA_KINDS:
        text = f"it crossed {fabric['name']!r} by TCP, and this fabric carries RDMA"
        found.append((text, fabric_facts(kind, "rdma", speed)))
    return found


def _gates(record: Record) -> Iterator[str]:
    for one in record.get("gates", ()):
        for sentence in one.get("sentences", ()):
            state = "was waived" if one["state"] == "waived" else f"is {one['state']}"
            yield f"The gate {one['gate']!r} {state}: {sentence}"
