"""The `power` of a record, put together from samples; every number can be had again from raw/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.nodes import power
from nixwulf.nodes.power import Point, Samples, Window

# Of what a counter of a source's kind stands for; the others are watts.
_CUMULATIVE = "rapl"
SOURCES = ("rapl", "amdgpu", "nvidia", "pmic", "powermetrics")


@dataclass(frozen=True)
class NodeSamples:
    """What one node's sampler reported; offset leads from its clock to the driver's, seconds.

    reason: why there are no samples at all; twin: another node is the same machine.
    """

    samples: Samples = field(default_factory=lambda: Samples((), {}, ()))
    offset: float = 0.0
    reason: str = ""
    twin: bool = False

    def joules(self) -> dict[str, list[Point]]:
        """Joules since the first sample by source, in the driver's clock."""
        channels: dict[str, list[list[Point]]] = {}
        for key, points in sorted(self.samples.series.items()):
            source = key.partition(":")[0]
            if source in SOURCES:
                here = [(time + self.offset, value) for time, value in points]
                joules = here if source == _CUMULATIVE else power.integral(here)
                channels.setdefault(source, []).append(joules)
        return {source: power.total(found) for source, found in channels.items()}


@dataclass(frozen=True)
class MeterPoints:
    """What a wall meter reported, in the driver's clock and watts, and which nodes hang on it."""

    nodes: tuple[str, ...]
    others: tuple[str, ...]
    points: Sequence[Point]
    error: str = ""
    key: str = ""


def efficiency(
    nodes: Mapping[str, NodeSamples], meters: Sequence[MeterPoints], metrics: Sequence[Metric]
) -> list[dict[str, Any]]:
    """Each metric that is a speed, over the watts of each source that all machines have.

    Args:
        nodes: samples by the node's name.
        meters: of the sockets that the nodes are plugged into.

    Returns:
        An entry for each metric and source, with the metric's index.
    """
    per_node = [node.joules() for node in nodes.values() if not node.twin]
    sources = {
        source: [joules[source] for joules in per_node]
        for source in SOURCES
        if per_node and all(source in joules for joules in per_node)
    }
    metered = {
        name for meter in meters if meter.points and not meter.others for name in meter.nodes
    }
    if metered == set(nodes):
        sources["wall"] = [power.integral(meter.points) for meter in meters]
    return [
        {"metric": index, "name": metric.name, **entry}
        for index, metric in enumerate(metrics)
        if metric.unit in {"tok/s", "Gflop/s"}
        for entry in _per_watt(metric, sources)
    ]


def _per_watt(
    metric: Metric, sources: Mapping[str, Sequence[Sequence[Point]]]
) -> list[dict[str, Any]]:
    if not metric.windows:
        return [{"absent": "The benchmark does not report when it measured this."}]
    if not sources:
        return [{"absent": "No source has the watts of all nodes, and of them alone."}]
    entries: list[dict[str, Any]] = []
    for source, joules in sources.items():
        gap = max(_spacing(points) for points in joules)
        windows = power.merged(metric.windows, gap)
        means = [power.average(points, windows) for points in joules]
        fine = all(power.resolved(points, windows) for points in joules)
        if not fine or any(mean is None for mean in means):
            reason = f"It was measured in less than {power.LEAST_POINTS} samples at a time."
            entries.append({"source": source, "absent": reason})
            continue
        watts = sum(mean for mean in means if mean is not None)
        # Their own time: watts are those of the gaps that merging took in, the work is not.
        seconds = sum(end - begin for begin, end in metric.windows)
        work, joules_told = _work(metric), watts * seconds
        if joules_told <= 0:
            entries.append({"source": source, "absent": "It reported 0 W."})
            continue
        entries.append(
            {
                "source": source,
                "seconds": round(seconds, 3),
                "watts": round(watts, 3),
                "joules": round(joules_told, 3),
                "unit": f"{metric.unit}/W",
                "value": round(work / joules_told, 6),
                **(
                    {"joules_per_token": round(joules_told / work, 6)}
                    if metric.unit == "tok/s"
                    else {}
                ),
            }
        )
    return entries


def _work(metric: Metric) -> float:
    """Tokens, or Gflop, done in all windows: speeds are rates of windows that took unlike times."""
    lengths = [end - begin for begin, end in metric.windows]
    if len(lengths) == len(metric.samples):
        return sum(speed * took for speed, took in zip(metric.samples, lengths, strict=True))
    return sum(metric.samples) / len(metric.samples) * sum(lengths)


def _spacing(points: Sequence[Point]) -> float:
    return (points[-1][0] - points[0][0]) / (len(points) - 1) if len(points) > 1 else 0.0


COVERS = "the whole benchmark: its start, the loading of the model and its warm-up as well"
RAPL_FIX = (
    "only root may read RAPL's energy counters; put 'power-meter.enable = true' below [options] of "
    "the cluster file and deploy, or run "
    "'sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj' there"
)
POWERMETRICS_FIX = (
    "powermetrics reported no watts; let the user run it without a password: put 'USER ALL=(root) "
    "NOPASSWD: /usr/bin/powermetrics' into a file of /etc/sudoers.d there"
)

# Five samples: a node that is busy may be late by less.
_SILENT_S = 1.0


def document(
    nodes: Mapping[str, NodeSamples],
    meters: Sequence[MeterPoints],
    window: Window | None,
    idle: Mapping[tuple[str, str], float],
    metrics: Sequence[Metric],
) -> dict[str, Any]:
    """The `power` of a record.

    Args:
        nodes: samples by the node's name.
        meters: of the sockets that the nodes are plugged into.
        window: begin and end of the measurement, monotonic seconds; None when there was none.
        idle: watts by node (or meter) and source, of nodes that do nothing.
    """
    if window is None:
        return {"absent": "The run ended before anything was measured."}
    found = {name: _node(name, node, window, idle) for name, node in nodes.items()}
    walls = [_meter(meter, window, idle) for meter in meters]
    whole: dict[str, Any] = {
        "seconds": round(window[1] - window[0], 3),
        "covers": COVERS,
        "nodes": found,
        **({"meters": walls} if walls else {}),
        "throttled": [
            {"node": name, **held}
            for name, node in nodes.items()
            for held in throttling(node.samples, _in_clock_of(node, window))
        ],
    }
    if any("watts" in node for node in found.values()) or any("watts" in wall for wall in walls):
        whole["efficiency"] = efficiency(nodes, meters, metrics)
    else:
        reasons: dict[str, list[str]] = {}
        for name, entry in found.items():
            reasons.setdefault(entry["absent"]["watts"], []).append(name)
        reported = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        whole["absent"] = f"No source of watts. {reported}."
    return whole


def _in_clock_of(node: NodeSamples, window: Window) -> Window:
    return window[0] - node.offset, window[1] - node.offset


def _node(
    name: str, node: NodeSamples, window: Window, idle: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    begin, end = _in_clock_of(node, window)
    inside = {
        key: [value for time, value in points if begin <= time <= end]
        for key, points in node.samples.series.items()
    }
    watts, absent = {}, {}
    for source, joules in node.joules().items():
        reported = _watts(joules, window, idle.get((name, source)))
        if reported:
            watts[source] = reported
        else:
            absent[source] = "too few samples while it was measured"
    if any(key.startswith("rapl:") for key in node.samples.reported("unreadable")):
        absent["rapl"] = RAPL_FIX
    absent |= {
        program: f"it printed {words!r}"
        for program, _, words in (fact.partition(" ") for fact in node.samples.reported("refused"))
    }
    silent = end - node.samples.stamps[-1][1] if node.samples.stamps else 0.0
    if silent > _SILENT_S:
        absent["sampler"] = f"it printed nothing for the last {silent:.1f} s"
    names = dict(fact.partition(" ")[::2] for fact in node.samples.reported("sensor"))
    celsius = {
        f"{names[sensor]} ({sensor})" if sensor in names else sensor: round(max(values), 1)
        for key, values in sorted(inside.items())
        for kind, _, sensor in [key.partition(":")]
        if kind == "temp" and values
    }
    mhz = {
        unit: _clock(values, inside.get(f"mhz_limit:{unit}", []))
        for key, values in sorted(inside.items())
        for kind, _, unit in [key.partition(":")]
        if kind == "mhz" and values
    }
    quantities: dict[str, Any] = {"watts": watts, "celsius": celsius, "mhz": mhz}
    seen = any(key.startswith(("count:", "bits:", "pressure")) for key in inside)
    for quantity, present in {**quantities, "throttling": seen}.items():
        if not present:
            absent[quantity] = node.reason or _why_absent(quantity, node.samples, absent)
    return {
        **({"window": [round(begin, 3), round(end, 3)]} if node.samples.series else {}),
        **{key: value for key, value in quantities.items() if value},
        **({"absent": absent} if absent else {}),
    }


def _watts(joules: Sequence[Point], window: Window, idle: float | None) -> dict[str, Any]:
    mean = power.average(joules, [window])
    if mean is None:
        return {}
    peak = power.peak(joules, window)
    return {
        "average": round(mean, 3),
        **({"peak": round(peak, 3)} if peak is not None else {}),
        **({"idle": round(idle, 3)} if idle is not None else {}),
        "joules": round(mean * (window[1] - window[0]), 3),
        "samples": sum(window[0] <= time <= window[1] for time, _ in joules),
    }


def _clock(values: Sequence[float], limits: Sequence[float]) -> dict[str, float]:
    return {
        "average": round(sum(values) / len(values), 1),
        "lowest": round(min(values), 1),
        **({"limit": round(max(limits), 1)} if limits else {}),
    }


def _why_absent(quantity: str, samples: Samples, absent: Mapping[str, str]) -> str:
    if quantity == "watts":
        if ("have", "powermetrics") in samples.facts:
            return POWERMETRICS_FIX
        return "; ".join(absent.values()) or (
            "no RAPL counter, no amdgpu sensor, no nvidia-smi and no vcgencmd"
        )
    return {
        "celsius": "no thermal zone and no sensor of the processor",
        "mhz": "no cpufreq",
        "throttling": "no counter or flag of it",
    }[quantity]


def _meter(
    meter: MeterPoints, window: Window, idle: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    fed = {
        "nodes": list(meter.nodes),
        **({"also_feeds": list(meter.others)} if meter.others else {}),
    }
    reported = _watts(power.integral(meter.points), window, idle.get((meter.key, "wall")))
    if not reported:
        return {**fed, "absent": f"It {meter.error or 'reported too few samples'}."}
    return {**fed, "watts": reported}


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
