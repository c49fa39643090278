"""macOS's powermetrics as text: watts and thermal pressure of Apple silicon.

Sources: `man powermetrics`; the samplers cpu_power, gpu_power and thermal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SAMPLE = re.compile(r"\*\*\* Sampled system activity \(.*\) \((\d+(?:\.\d+)?)ms elapsed\) \*\*\*")
_WATTS = re.compile(r"Combined Power \(CPU \+ GPU \+ ANE\): (\d+(?:\.\d+)?) mW")
_PRESSURE = re.compile(r"Current pressure level: (\w+)")


def parse(
    lines: Sequence[str],
) -> tuple[dict[str, list[tuple[float, float]]], list[tuple[int, float]]]:
    """Series `powermetrics` (W) and `pressure`, and the line and time of each sample.

    It tells no monotonic time but how long each sample took, so that the clock starts with it.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    stamps: list[tuple[int, float]] = []
    now = 0.0
    for number, line in enumerate(lines):
        sample = _SAMPLE.search(line)
        if sample:
            now += float(sample[1]) / 1000
            stamps.append((number, now))
        watts = _WATTS.search(line)
        if watts and stamps:
            series.setdefault("powermetrics", []).append((now, float(watts[1]) / 1000))
        pressure = _PRESSURE.search(line)
        if pressure and stamps:
            series.setdefault("pressure", []).append((now, float(pressure[1] != "Nominal")))
    return series, stamps
