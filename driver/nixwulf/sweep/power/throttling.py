"""What held a node's clocks down while it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nixwulf.nodes.power.energy import Window
from nixwulf.nodes.power.samples import Point, Samples

# nvml.h, nvmlClocksEventReason...; idle (0x1), clocks that were asked for (0x2, 0x100) and sync
# boost (0x10) are no throttling.
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
NVIDIA = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
# The same 16 bits higher: it has happened since the boot.
# https://www.raspberrypi.com/documentation/computers/os.html#get_throttled
VCGENCMD = {
    0x1: "under-voltage",
    0x2: "frequency capped",
    0x4: "throttled",
    0x8: "soft temperature limit",
}
_SINCE_BOOT = 16
# https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu, thermal_throttle
_COUNTERS = {"core_throttle": "core_throttle_count", "package_throttle": "package_throttle_count"}


def throttling(samples: Samples, window: Window) -> list[dict[str, Any]]:
    """Each counter that rose in a window, by how much, and each flag, in what share of samples."""
    found = []
    for key, points in sorted(samples.series.items()):
        kind, _, name = key.partition(":")
        if kind == "count":
            events = _rise(points, window)
            if events > 0:
                found.append({"counter": _COUNTERS.get(name, name), "events": events})
        elif kind == "bits":
            found += _flags(name, points, window)
        elif kind == "pressure":
            found += _flag("macOS thermal pressure", points, window, 1)
    return found


def _rise(points: Sequence[Point], window: Window) -> int:
    """From the last point before a window to the last one in it."""
    begin, end = window
    until = [value for time, value in points if time <= end]
    before = [value for time, value in points if time <= begin] or until
    return int(until[-1] - before[-1 if before is not until else 0]) if until else 0


def _flags(name: str, points: Sequence[Point], window: Window) -> list[dict[str, Any]]:
    if name.startswith("nvidia:"):
        gpu = name.partition(":")[2]
        return [
            found
            for bit, meaning in NVIDIA.items()
            for found in _flag(f"nvidia GPU {gpu}: {meaning}", points, window, bit)
        ]
    return [
        found
        for bit, meaning in VCGENCMD.items()
        for found in _flag(f"vcgencmd: {meaning}", points, window, bit)
        or _began(f"vcgencmd: {meaning}", points, window, bit << _SINCE_BOOT)
    ]


def _flag(name: str, points: Sequence[Point], window: Window, bit: int) -> list[dict[str, Any]]:
    seen = [bool(int(value) & bit) for time, value in points if window[0] <= time <= window[1]]
    return [{"counter": name, "share": sum(seen) / len(seen)}] if any(seen) else []


def _began(name: str, points: Sequence[Point], window: Window, bit: int) -> list[dict[str, Any]]:
    """A flag that stays until the next boot, and was raised between two samples of a window."""
    flags = [(time, float(bool(int(value) & bit))) for time, value in points]
    return [{"counter": name, "events": 1}] if _rise(flags, window) > 0 else []
