"""A run's power is watched: samplers on its nodes and readers of its wall meters, start to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.nodes import power
from nixwulf.nodes.power import Samples, Window, parse
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import each
from nixwulf.plugins.meters import INTERVAL_S as SLOWEST_S
from nixwulf.plugins.meters import MeterReader
from nixwulf.plugins.runtime.run import Run
from nixwulf.sweep.power.document import MeterPoints, NodeSamples, document

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
            twin = self._twin(name)
            if twin:
                self._twins.add(name)
                self._reasons[name] = twin
            elif name not in known.silent:
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

    def _twin(self, name: str) -> str:
        """Why a node is not sampled whose machine another node of the run is, as in the lab."""
        machines = self._run.power.machines
        for other in (node.node.name for node in self._run.nodes):
            if other == name:
                return ""
            if machines.get(name) and machines[name] == machines.get(other):
                return f"the same machine as {other}"
        return ""

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
            twin = self._twin(name)
            if twin:
                self._twins.add(name)
                self._reasons[name] = twin
            if name in self._reasons:
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
    return (resources.files("nixwulf") / "nodes" / "power" / "sampler.sh").read_text("utf-8")
