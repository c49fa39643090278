"""Samples of power and clocks that sampler.sh printed, as series of points in common units.

Also averages, peaks and energies of such series over windows of time.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]
"""Seconds of the node's own monotonic clock, and a value."""

_MICRO = 1e-6
_MILLI = 1e-3
# 'VDD_CORE_A current(7)=2.47A' and 'VDD_CORE_V volt(15)=0.72V', a line each: the rails that have
# both, https://www.raspberrypi.com/documentation/computers/os.html#vcgencmd
_RAIL = re.compile(r"(\w+)_(A current|V volt)\(\d+\)=(\d+(?:\.\d+)?)[AV]")
_VCGENCMD = re.compile(r"throttled=(0x[0-9a-fA-F]+)|temp=(\d+(?:\.\d+)?)")
# index, W, C, MHz, MHz, reasons; what a GPU cannot tell is '[N/A]' or '[Not Supported]'
_NVIDIA = re.compile(r"(\d+), ([^,]*), ([^,]*), ([^,]*), ([^,]*), (0x[0-9a-fA-F]+)")


@dataclass(frozen=True)
class Samples:
    """The facts that a node reports first, and its series of points by key.

    Keys and units: rapl:N joules since an unknown moment, steadily rising; amdgpu:SENSOR, nvidia:N,
    pmic, powermetrics W; temp:SENSOR C; mhz:UNIT and mhz_limit:UNIT; count:NAME events;
    bits:nvidia:N and bits:vcgencmd the bits of what holds the clocks down;
    pressure 1 where macOS does not call its thermal pressure nominal.
    stamps: the number (from 0) of a line and the time in it.
    """

    facts: tuple[tuple[str, str], ...]
    series: Mapping[str, Sequence[Point]]
    stamps: Sequence[tuple[int, float]]

    @property
    def ready(self) -> bool:
        """Whether all facts are there."""
        return ("ready", "") in self.facts

    def reported(self, key: str) -> list[str]:
        """The values of a fact."""
        return _reported(self.facts, key)


def parse(text: str) -> Samples:
    """Samples of what the sampler printed so far; lines that are none are left out."""
    lines = text[: text.rfind("\n") + 1].splitlines()  # what follows may be half a number
    facts = tuple(
        (key, value.strip())
        for key, _, value in (line[2:].partition(" ") for line in lines if line.startswith("# "))
    )
    if ("have", "powermetrics") in facts:
        series, stamps = parse_powermetrics(lines)
        return Samples(facts, series, stamps)
    found: dict[str, list[Point]] = {}
    stamped: list[tuple[int, float]] = []
    rails: dict[float, list[str]] = {}
    for number, line in enumerate(lines):
        moment, _, words = line.partition(" ")
        if not re.fullmatch(r"\d{1,12}\.\d{1,9}", moment):
            continue
        time = float(moment)
        stamped.append((number, time))
        if words.startswith("pmic "):
            rails.setdefault(time, []).append(words)
        for key, value in _values(words).items():
            found.setdefault(key, []).append((time, value))
    for time, texts in rails.items():
        watts = _rail_watts("\n".join(texts))
        if watts is not None:
            found.setdefault("pmic", []).append((time, watts))
    for key, _, span in (value.partition(" ") for value in _reported(facts, "range")):
        if key in found and span.isdecimal():
            found[key] = unwrapped(found[key], int(span) * _MICRO)
    return Samples(facts, found, stamped)


def unwrapped(points: Sequence[Point], span: float) -> list[Point]:
    """A counter that starts again from 0 after SPAN, as one that does not.

    A counter that turned over twice between two points looks like one that did once: at
    300 W, RAPL's 262 kJ last a quarter of an hour.
    """
    turns, last, result = 0, float("-inf"), []
    for time, value in points:
        turns += value < last
        last = value
        result.append((time, value + turns * span))
    return result


def _reported(facts: Sequence[tuple[str, str]], key: str) -> list[str]:
    return [value for name, value in facts if name == key]


def _values(words: str) -> dict[str, float]:
    kind, _, rest = words.partition(" ")
    if kind == "nvidia":
        return _nvidia(rest)
    return _vcgencmd(rest) if kind == "vcgencmd" else _pairs(words)


def _rail_watts(text: str) -> float | None:
    """Volts times amperes, over the rails that have both."""
    rails: dict[str, dict[str, float]] = {}
    for rail, quantity, value in _RAIL.findall(text):
        rails.setdefault(rail, {})[quantity[0]] = float(value)
    watts = [rail["A"] * rail["V"] for rail in rails.values() if rail.keys() == {"A", "V"}]
    return sum(watts) if watts else None


def _pairs(words: str) -> dict[str, float]:
    units = {"rapl": _MICRO, "amdgpu": _MICRO, "temp": _MILLI, "khz": _MILLI, "khz_limit": _MILLI}
    names = {"khz": "mhz:cpu", "khz_limit": "mhz_limit:cpu"}
    parts = words.split()
    values = {}
    for key, value in zip(parts[::2], parts[1::2], strict=False):
        unit = units.get(key.partition(":")[0], 1.0)
        if re.fullmatch(r"-?\d{1,18}", value):
            values[names.get(key, key)] = int(value) * unit
    return values


def _nvidia(words: str) -> dict[str, float]:
    match = _NVIDIA.fullmatch(words.strip())
    if not match:
        return {}
    gpu, *texts, reasons = match.groups()
    names = ("nvidia:", "temp:nvidia:", "mhz:nvidia:", "mhz_limit:nvidia:")
    numbers = {
        f"{name}{gpu}": float(text)
        for name, text in zip(names, texts, strict=True)
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text)
    }
    return {**numbers, f"bits:nvidia:{gpu}": int(reasons, 16)}


def _vcgencmd(words: str) -> dict[str, float]:
    match = _VCGENCMD.match(words)
    if not match:
        return {}
    if match[1]:
        return {"bits:vcgencmd": int(match[1], 16)}
    return {"temp:vcgencmd": float(match[2])}


_SAMPLE = re.compile(r"\*\*\* Sampled system activity \(.*\) \((\d+(?:\.\d+)?)ms elapsed\) \*\*\*")
_WATTS = re.compile(r"Combined Power \(CPU \+ GPU \+ ANE\): (\d+(?:\.\d+)?) mW")
_PRESSURE = re.compile(r"Current pressure level: (\w+)")


def parse_powermetrics(
    lines: Sequence[str],
) -> tuple[dict[str, list[Point]], list[tuple[int, float]]]:
    """Series `powermetrics` (W) and `pressure` of macOS's program; line and time of each sample.

    It has no monotonic time but how long each sample took, so that the clock starts with it.
    Sources: `man powermetrics`; the samplers cpu_power, gpu_power and thermal.
    """
    series: dict[str, list[Point]] = {}
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


@dataclass
class PowerSession:
    """Shared by the runs of a session.

    idle: watts by node (or by meter) and source, before anything was launched; machines: what
    distinguishes two machines, by node; silent: output of nodes that have nothing to sample.
    """

    idle: dict[tuple[str, str], float] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    silent: dict[str, Samples] = field(default_factory=dict)


Window = tuple[float, float]
"""Begin and end, seconds of the clock of the points."""

PEAK_S = 1.0
# An average over fewer points than this depends more on the moments of sampling.
LEAST_POINTS = 5
_LEAST_SHARE = 0.9


def integral(watts: Sequence[Point]) -> list[Point]:
    """Joules since the first point, by trapezoids."""
    joules, total = [], 0.0
    for index, (time, value) in enumerate(watts):
        if index:
            before, earlier = watts[index - 1]
            total += (time - before) * (value + earlier) / 2
        joules.append((time, total))
    return joules


def average(joules: Sequence[Point], windows: Sequence[Window]) -> float | None:
    """Mean watts over windows; None where the points do not cover nine tenths of them.

    Joules between two points are as if the power had been constant there.
    """
    covered = energy = 0.0
    for begin, end in windows:
        start, stop = (
            max(begin, joules[0][0]) if joules else end,
            min(end, joules[-1][0]) if joules else begin,
        )
        if stop > start:
            covered += stop - start
            energy += _at(joules, stop) - _at(joules, start)
    asked = sum(end - begin for begin, end in windows)
    return energy / covered if covered > 0 and covered >= _LEAST_SHARE * asked else None


def peak(joules: Sequence[Point], window: Window) -> float | None:
    """The highest mean over a second inside a window; None where no second is."""
    begin, end = window
    times = [time for time, _ in joules]
    rates = []
    for index in range(bisect.bisect_left(times, begin), len(times)):
        later = bisect.bisect_left(times, times[index] + PEAK_S)
        if later == len(times) or times[later] > end:
            break
        rates.append((joules[later][1] - joules[index][1]) / (times[later] - times[index]))
    return max(rates, default=None)


def total(channels: Sequence[Sequence[Point]]) -> list[Point]:
    """The joules of several channels together, at the moments of the first."""
    first, *others = channels
    return [(t, joules + sum(_at(other, t) for other in others)) for t, joules in first]


def merged(windows: Sequence[Window], gap: float) -> list[Window]:
    """Windows in order, those with no more than a gap between them as one."""
    result: list[Window] = []
    for begin, end in sorted(windows):
        if result and begin - result[-1][1] <= gap:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def resolved(points: Sequence[Point], windows: Sequence[Window]) -> bool:
    """Whether enough points lie in each window for an average."""
    return all(
        sum(begin <= time <= end for time, _ in points) >= LEAST_POINTS for begin, end in windows
    )


def _at(joules: Sequence[Point], moment: float) -> float:
    index = max(1, bisect.bisect_left(joules, (moment, float("-inf"))))
    (before, low), (after, high) = joules[index - 1], joules[min(index, len(joules) - 1)]
    return low if after == before else low + (high - low) * (moment - before) / (after - before)
