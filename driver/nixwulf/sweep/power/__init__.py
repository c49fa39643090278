"""Power and thermals: samples of nodes and wall meters while a benchmark runs.

Samplers on a run's nodes and readers of its wall meters run from start to end. Of what they gave
the `power` of a record is put together: watts, speeds over them, and what held clocks down; every
number can be had again from raw/.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from nixwulf.core.files import DATA, read_toml, shipped_text
from nixwulf.core.metric import Metric
from nixwulf.core.query import grouped
from nixwulf.nodes import power
from nixwulf.nodes.power import Point, Samples, Window, parse
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import each
from nixwulf.plugins.meters import INTERVAL_S as SLOWEST_S
from nixwulf.plugins.meters import MeterReader
from nixwulf.plugins.runtime.run import Run

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
    """Each metric that is a speed over the watts of each source that all machines have."""
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
        a_token = {"joules_per_token": round(joules_told / work, 6)}
        entries.append(
            {
                "source": source,
                "seconds": round(seconds, 3),
                "watts": round(watts, 3),
                "joules": round(joules_told, 3),
                "unit": f"{metric.unit}/W",
                "value": round(work / joules_told, 6),
                **(a_token if metric.unit == "tok/s" else {}),
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

    window: begin and end of the measurement, monotonic seconds; None when there was none. idle:
    watts by node (or meter) and source, of nodes that do nothing.
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
        reasons = grouped((entry["absent"]["watts"], name) for name, entry in found.items())
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
    joules = node.joules()
    watts = {key: _watts(one, window, idle.get((name, key))) for key, one in joules.items()}
    absent = {key: "too few samples while it was measured" for key, one in watts.items() if not one}
    watts = {key: one for key, one in watts.items() if one}
    absent |= _complaints(node.samples, end)
    names = dict(fact.partition(" ")[::2] for fact in node.samples.reported("sensor"))
    celsius = {
        f"{names[sensor]} ({sensor})" if sensor in names else sensor: round(max(values), 1)
        for sensor, values in _of_kind(inside, "temp")
    }
    mhz = {
        unit: _clock(values, inside.get(f"mhz_limit:{unit}", []))
        for unit, values in _of_kind(inside, "mhz")
    }
    quantities: dict[str, Any] = {"watts": watts, "celsius": celsius, "mhz": mhz}
    seen = any(key.startswith(("count:", "bits:", "pressure")) for key in inside)
    for quantity, present in {**quantities, "throttling": seen}.items():
        if not present:
            absent[quantity] = node.reason or _why_absent(quantity, node.samples, absent)
    seconds = [round(begin, 3), round(end, 3)] if node.samples.series else []
    found = {"window": seconds, **quantities, "absent": absent}
    return {key: value for key, value in found.items() if value}


def _of_kind(
    inside: Mapping[str, Sequence[float]], kind: str
) -> Iterator[tuple[str, Sequence[float]]]:
    """The series of a kind that have values, by their names, sorted."""
    for key, values in sorted(inside.items()):
        if key.startswith(f"{kind}:") and values:
            yield key.partition(":")[2], values


def _complaints(samples: Samples, end: float) -> dict[str, str]:
    """What a node's sampler could not read, by source, or that it fell silent before END, s."""
    absent = {}
    if any(key.startswith("rapl:") for key in samples.reported("unreadable")):
        absent["rapl"] = RAPL_FIX
    for program, _, words in (fact.partition(" ") for fact in samples.reported("refused")):
        absent[program] = f"it printed {words!r}"
    silent = end - samples.stamps[-1][1] if samples.stamps else 0.0
    if silent > _SILENT_S:
        absent["sampler"] = f"it printed nothing for the last {silent:.1f} s"
    return absent


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


_TABLES: dict[str, dict[str, str]] = read_toml(DATA / "throttling.toml")
_SINCE_BOOT = 16  # bits by which a flag of vcgencmd is higher that was raised since the boot


def throttling(samples: Samples, window: Window) -> list[dict[str, Any]]:
    """Each counter that rose in a window, by how much, and each flag, in what share of samples."""
    found = []
    for key, points in sorted(samples.series.items()):
        kind, _, name = key.partition(":")
        if kind == "count":
            events = _rise(points, window)
            if events > 0:
                found.append({"counter": _TABLES["counters"].get(name, name), "events": events})
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
    program, _, gpu = name.partition(":")
    table = "nvidia" if program == "nvidia" else "vcgencmd"
    words = f"nvidia GPU {gpu}" if gpu else table
    found = []
    for number, meaning in _TABLES[table].items():
        flag, bit = f"{words}: {meaning}", int(number, 16)
        seen = _flag(flag, points, window, bit)
        if not seen and table == "vcgencmd":
            seen = _began(flag, points, window, bit << _SINCE_BOOT)
        found += seen
    return found


def _flag(name: str, points: Sequence[Point], window: Window, bit: int) -> list[dict[str, Any]]:
    seen = [bool(int(value) & bit) for time, value in points if window[0] <= time <= window[1]]
    return [{"counter": name, "share": sum(seen) / len(seen)}] if any(seen) else []


def _began(name: str, points: Sequence[Point], window: Window, bit: int) -> list[dict[str, Any]]:
    """A flag that stays until the next boot, and was raised between two samples of a window."""
    flags = [(time, float(bool(int(value) & bit))) for time, value in points]
    return [{"counter": name, "events": 1}] if _rise(flags, window) > 0 else []


ROOT = ""  # the folder that has a node's /sys; tests have one where they may write
INTERVAL_S = 0.2
# Once a session: long enough for five readings of a wall meter, short beside any sweep. Each run
# would wait for it again, and find the machine warm from the run before.
IDLE_S = 5.0
_READY_S = 15.0  # nvidia-smi takes seconds where the driver is not kept loaded
_POLL_S = 0.02
# The sampler runs in any shell, and in bash at a third of the cost.
_IN_BASH = 'exec "$(command -v bash || command -v sh)" -c "$@"'


@dataclass
class _Wall:
    reader: MeterReader
    nodes: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.reader.meter.url} {self.reader.meter.channel}"


class Watch:
    """What samples the power of one run; it never makes the run fail."""

    def __init__(self, run: Run) -> None:
        """Watch a run; nothing is started yet."""
        self._run = run
        self._samplers: dict[str, OwnedProcess] = {}
        self._reasons: dict[str, str] = {}
        self._twins: set[str] = set()
        self._walls: list[_Wall] = []
        self._window: Window | None = None

    def start(self) -> None:
        """Start the samplers, where an earlier run of the session has not found nothing."""
        known = self._run.power
        for node in self._run.nodes:
            name = node.node.name
            if not self._is_twin(name) and name not in known.silent:
                argv = ["sh", "-c", _IN_BASH, "sh", _script(), "sh", ROOT, f"{INTERVAL_S:g}"]
                self._samplers[name] = OwnedProcess.start(
                    node, f"power-{name}", argv, {}, self._run.raw, background=True
                )
        for meter in dict.fromkeys(n.node.meter for n in self._run.nodes if n.node.meter):
            fed = [node.name for node in self._run.cluster.nodes if node.meter == meter]
            ours = tuple(node.node.name for node in self._run.nodes if node.node.name in fed)
            others = tuple(name for name in fed if name not in ours)
            reader = MeterReader(meter, self._run.raw / f"power-meter-{ours[0]}.stdout")
            reader.start()
            self._walls.append(_Wall(reader, ours, others))

    def settle(self) -> None:
        """Wait for the samplers, and once a session for the watts of idle nodes."""
        self._wait_until_ready()
        begin = time.monotonic()
        if not self._lacks_idle():
            return
        wait = IDLE_S + SLOWEST_S  # until the slowest source has reported the end as well
        time.sleep(wait)
        self._run.extend(wait)
        window = (begin, begin + IDLE_S)
        for name, node in self._samples().items():
            for source, joules in node.joules().items():
                self._keep_idle(name, source, power.average(joules, [window]))
        for wall in self._walls:
            joules = power.integral(wall.reader.points)
            self._keep_idle(wall.key, "wall", power.average(joules, [window]))

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """The time for which power is reported, however it ends."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._window = (begin, time.monotonic())

    def stop(self) -> None:
        """Stop what was started, when there is a sample from after the measurement."""
        if self._window:
            self._wait_while_sampling(self._window[1] + 2 * INTERVAL_S)
        stops: list[Callable[[], object]] = [process.stop for process in self._samplers.values()]
        stops += [wall.reader.stop for wall in self._walls]
        each(lambda stop: stop(), stops)

    def document(self, metrics: Sequence[Metric]) -> dict[str, Any]:
        """The `power` of the run's record; after the stop."""
        meters = [
            MeterPoints(wall.nodes, wall.others, wall.reader.points, wall.reader.error, wall.key)
            for wall in self._walls
        ]
        return document(self._samples(), meters, self._window, self._run.power.idle, metrics)

    def _is_twin(self, name: str) -> bool:
        """Whether its machine is that of a node before it, as in the lab: it gets no sampler."""
        machines, names = self._run.power.machines, [node.node.name for node in self._run.nodes]
        for other in names[: names.index(name)] if machines.get(name) else ():
            if machines[name] == machines.get(other):
                self._twins.add(name)
                self._reasons[name] = f"the same machine as {other}"
                return True
        return False

    def _wait_until_ready(self) -> None:
        known, until = self._run.power, time.monotonic() + _READY_S
        waiting = dict(self._samplers)
        while waiting and time.monotonic() < until:
            for name, process in list(waiting.items()):
                samples = _parsed(process)
                if samples.ready:
                    known.machines[name] = "".join(samples.reported("boot"))
                    del waiting[name]
                elif not process.running:
                    self._reasons[name] = f"its sampler {process.ending()}: {process.last_line()}"
                    del waiting[name]
            time.sleep(_POLL_S)
        for name in waiting:
            self._reasons[name] = f"its sampler printed nothing in {_READY_S:g} s"
        for name in list(self._samplers):
            if self._is_twin(name) or name in self._reasons:
                self._samplers.pop(name).stop()

    def _wait_while_sampling(self, until: float) -> None:
        """Until a moment of this machine's monotonic clock, unless no sampler goes on."""
        while time.monotonic() < until and any(p.running for p in self._samplers.values()):
            time.sleep(_POLL_S)

    def _lacks_idle(self) -> bool:
        """Whether some watts here were not yet seen idle; nodes that have none are remembered."""
        known = self._run.power
        # What has watts has reported some by then; a sampler that finds nothing has ended before.
        self._wait_while_sampling(time.monotonic() + INTERVAL_S)
        for wall in self._walls:
            wall.reader.answered.wait(_READY_S)
        lacking = any(
            wall.reader.points and (wall.key, "wall") not in known.idle for wall in self._walls
        )
        for name, process in self._samplers.items():
            samples = _parsed(process)
            if not samples.series and not process.running and not process.returncode:
                known.silent[name] = samples
            sources = NodeSamples(samples).joules()
            lacking = lacking or any((name, source) not in known.idle for source in sources)
        return lacking

    def _keep_idle(self, name: str, source: str, watts: float | None) -> None:
        if watts is not None:
            self._run.power.idle.setdefault((name, source), watts)

    def _samples(self) -> dict[str, NodeSamples]:
        found = {}
        for node in self._run.nodes:
            name = node.node.name
            if name in self._samplers:
                found[name] = _read(self._samplers[name])
            else:
                silent = self._run.power.silent.get(name, Samples((), {}, ()))
                found[name] = NodeSamples(
                    silent, 0.0, self._reasons.get(name, ""), name in self._twins
                )
        return found


def _read(process: OwnedProcess) -> NodeSamples:
    """A sampler's samples, its clock set by the line that came soonest after it was true."""
    samples, arrivals = _parsed(process), process.stdout_times
    lags = [arrivals[line] - reported for line, reported in samples.stamps if line < len(arrivals)]
    return NodeSamples(samples, min(lags, default=0.0))


def _parsed(process: OwnedProcess) -> Samples:
    return parse(process.output)


@cache
def _script() -> str:
    return shipped_text("nodes/power/sampler.sh")
