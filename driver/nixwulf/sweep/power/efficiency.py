"""Speeds over watts: tokens and Gflop by the joules of the time in which they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.nodes.power import energy
from nixwulf.nodes.power.samples import Point
from nixwulf.sweep.power.reported import SOURCES, MeterPoints, NodeSamples


def efficiency(
    nodes: Mapping[str, NodeSamples], meters: Sequence[MeterPoints], metrics: Sequence[Metric]
) -> list[dict[str, Any]]:
    """Each metric that is a speed, over the watts of each source that all machines tell."""
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
        sources["wall"] = [energy.integral(meter.points) for meter in meters]
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
        return [{"absent": "The benchmark does not tell when it measured this."}]
    if not sources:
        return [{"absent": "No source tells the watts of all nodes, and of them alone."}]
    entries: list[dict[str, Any]] = []
    for source, joules in sources.items():
        gap = max(_spacing(points) for points in joules)
        windows = energy.merged(metric.windows, gap)
        means = [energy.average(points, windows) for points in joules]
        fine = all(energy.resolved(points, windows) for points in joules)
        if not fine or any(mean is None for mean in means):
            reason = f"It was measured in less than {energy.LEAST_POINTS} samples at a time."
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
