"""The `power` of a record, put together from samples; every number can be had again from raw/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.nodes.power import energy
from nixwulf.nodes.power.energy import Window
from nixwulf.nodes.power.samples import Point, Samples
from nixwulf.sweep.power.efficiency import efficiency
from nixwulf.sweep.power.reported import MeterPoints, NodeSamples
from nixwulf.sweep.power.throttling import throttling

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
    """A record's `power`; the window is the whole measurement, in the driver's clock."""
    if window is None:
        return {"absent": "The run ended before anything was measured."}
    found = {name: _node(name, node, window, idle) for name, node in nodes.items()}
    walls = [_meter(meter, window, idle) for meter in meters]
    power: dict[str, Any] = {
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
        power["efficiency"] = efficiency(nodes, meters, metrics)
    else:
        reasons: dict[str, list[str]] = {}
        for name, entry in found.items():
            reasons.setdefault(entry["absent"]["watts"], []).append(name)
        reported = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        power["absent"] = f"No source of watts. {reported}."
    return power


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
    mean = energy.average(joules, [window])
    if mean is None:
        return {}
    peak = energy.peak(joules, window)
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
    reported = _watts(energy.integral(meter.points), window, idle.get((meter.key, "wall")))
    if not reported:
        return {**fed, "absent": f"It {meter.error or 'reported too few samples'}."}
    return {**fed, "watts": reported}
