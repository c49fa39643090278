"""Facts in a record that would make a case slower than it should be, a sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.cluster import RDMA_KINDS
from nixwulf.errors import InputError
from nixwulf.model.links import fabric_facts
from nixwulf.platforms import load_platform, platform_names
from nixwulf.record import Record
from nixwulf.table import record_bandwidth_gbps, record_rtt_us

_HALF = 0.5
_SLOW = 3.0
_SPEED = re.compile(r"(\d+(?:\.\d+)?) Gb/s")
_GPU_BACKENDS = ("CUDA", "ROCm", "HIP", "Vulkan", "Metal", "MTL", "SYCL", "RPC")


def clues(record: Record) -> list[str]:
    """All of them, the likeliest first."""
    return [
        *_trained(record),
        *_throttled(record),
        *_cpu(record),
        *_link(record),
        *_tcp(record),
        *_gates(record),
    ]


def _trained(record: Record) -> Iterator[str]:
    """Cables that run below the speed of the platform's ports."""
    for node in record.get("nodes", ()):
        expected = _port_gbps(node["platform"])
        facts = node.get("facts", {})
        for key, value in facts.items():
            found = _SPEED.search(str(value))
            if not key.endswith(("tx_speed", "rx_speed")) or not found:
                continue
            lanes = str(facts.get(key.replace("speed", "lanes"), "1"))
            count = int(lanes) if lanes.isdecimal() else 1
            if expected and float(found[1]) * count < expected:
                yield (
                    f"A cable of node {node['name']!r} is trained at {found[1]} Gb/s x {count} "
                    f"({key}), and its ports can {expected:g} Gbit/s: unplug it at both ends, then "
                    "try another."
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
    platforms = [name for name in _platforms(record) if name in platform_names()]
    if not any("gpu" in load_platform(name) for name in platforms):
        return
    if record["case"]["parameters"].get("backend") == "cpu":
        yield "The case asks for the CPU (backend 'cpu'), and the prediction is for the GPU."
        return
    backends = record.get("engine", {}).get("backends", "")
    if "CPU" in backends and not any(name in backends for name in _GPU_BACKENDS):
        yield f"The engine computed on the CPU (backends {backends!r}), not on the GPU."


def _platforms(record: Record) -> list[str]:
    nodes = record.get("nodes", ())
    return [node["platform"] for node in nodes] or list(record["cluster"].get("platforms", ()))


def _link(record: Record) -> Iterator[str]:
    fabric, case = record.get("fabric", {}), record["case"]
    measured, speed = record_bandwidth_gbps(record), _carried(fabric)
    if measured and speed and measured < _HALF * speed:
        yield (
            f"The link carried {measured:.3g} Gbit/s, and {fabric['name']!r} should carry "
            f"{speed:.3g}: look at its cable, MTU and load."
        )
    rtt = record_rtt_us(record)
    usual = _usual(fabric, case)
    if rtt and usual and rtt > _SLOW * usual:
        yield f"A round trip took {rtt:.3g} us, and {usual:.3g} us are usual of this kind of link."


def _carried(fabric: Mapping[str, Any]) -> float:
    """What TCP gets of a link as it was made or sold."""
    asked = float(fabric.get("asked", {}).get("rate_gbps", 0.0))
    if asked or "shaped_by" in fabric:
        return asked
    try:
        return fabric_facts(fabric["kind"], "tcp", fabric.get("speed_gbps", 0.0)).bandwidth_gbps
    except (InputError, KeyError):
        return 0.0


def _usual(fabric: Mapping[str, Any], case: Mapping[str, Any]) -> float:
    """Of a link that nobody shaped: round trip of TCP, us; 0 where it is not known."""
    if "shaped_by" in fabric or case.get("transport") != "tcp":
        return 0.0
    try:
        return fabric_facts(fabric["kind"], "tcp", fabric.get("speed_gbps", 0.0)).rtt_us
    except (InputError, KeyError):
        return 0.0


def _tcp(record: Record) -> Iterator[str]:
    fabric = record.get("fabric", {})
    if record["case"].get("transport") == "tcp" and fabric.get("kind") in RDMA_KINDS:
        yield f"It crossed {fabric['name']!r} by TCP, and this fabric carries RDMA."


def _gates(record: Record) -> Iterator[str]:
    for one in record.get("gates", ()):
        for sentence in one.get("sentences", ()):
            state = "was waived" if one["state"] == "waived" else f"is {one['state']}"
            yield f"The gate {one['gate']!r} {state}: {sentence}"
