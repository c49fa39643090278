"""A short load of machines and of their links, each beside what its kind usually does."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.core.interrupts import Pool, wait
from nixwulf.core.text import amount, plural
from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.inventory.platforms import memory_bandwidth_gbs
from nixwulf.llm import Model, place
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes import link, power
from nixwulf.nodes.facts import NodeReading, gather_readings
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection, each
from nixwulf.ops.doctor.findings import Finding, State, Subject, faults, judge
from nixwulf.ops.doctor.machine import CHECKS
from nixwulf.outputs import ParseError, llama_bench
from nixwulf.perf.explain.diagnostics import LEAST_SHARE, MOST_TIMES
from nixwulf.perf.explain.subject import facts_of_random
from nixwulf.perf.inputs import Strategy, fabric_facts, platform_facts
from nixwulf.perf.predict import predict
from nixwulf.plugins import engines
from nixwulf.plugins.gates import on_lab

_SOURCE, _MODEL_PAGE = "docs/reference/links.md", "docs/model.md"
_MEND = (
    "see cable, MTU and PCIe of both ends; where a Spark's port carries 13 Gbit/s, unplug its power"
)


def load_links(
    connections: Mapping[str, Connection], cluster: Cluster, step: Callable[[str], None]
) -> Iterator[Finding]:
    """Measure round trips and a TCP stream from node to node on each fabric, one by one."""
    for fabric in cluster.fabrics.values():
        nodes = [node for node in cluster.nodes_on(fabric.name) if node.name in connections]
        for node, other in pairwise(nodes):
            end = other.end_to(fabric.name, node.name)
            if end is None:
                continue
            step(f"Loading {fabric.name!r} from {node.name!r} to {other.name!r}.")
            yield from _judged(connections[node.name], connections[other.name], fabric, end.address)


def _judged(
    ours: Connection, theirs: Connection, fabric: Fabric, address: str
) -> Iterator[Finding]:
    way = f"{fabric.name!r} to {theirs.node.name!r}"

    def finding(check: str, state: State, read: str, expected: str) -> Finding:
        mend = "" if state == "ok" else _MEND
        return Finding(ours.node.name, check, state, read, expected, mend, _SOURCE)

    try:
        usual_us, usual_gbps = _usual(fabric)
        trips = link.round_trips(ours, address)
        with tempfile.TemporaryDirectory(prefix="nixwulf-") as folder:
            gbps = link.bandwidth(ours, theirs, fabric, Path(folder)).gbps
    except NixwulfError as error:
        # Of a link far too slow the stream does not end; of some kinds nothing usual is known.
        state: State = "unknown" if isinstance(error, InputError) else "wrong"
        yield finding("link-rate", state, error.message, "a stream that ends")
        return
    slow = gbps < LEAST_SHARE * usual_gbps
    read = f"{way} carries {amount(gbps, 'Gbit/s')} in one TCP stream"
    yield finding("link-rate", "wrong" if slow else "ok", read, amount(usual_gbps, "Gbit/s"))
    if trips:
        late = trips.median > MOST_TIMES * usual_us
        read = f"a round trip over {way} takes {amount(trips.median, 'us')}"
        yield finding("link-latency", "warning" if late else "ok", read, amount(usual_us, "us"))


# What a lab's kernel adds to a round trip, and what its streams reach: on two busy cores 1.6 to 4.6
# Gbit/s were measured, so that nothing is said of one that should have 25.
_LAB_US, _LAB_GBPS = 100.0, 2.0


def _usual(fabric: Fabric) -> tuple[float, float]:
    """A round trip, us, and the rate of a stream, Gbit/s: as shaped, else as its kind has it."""
    if fabric.shape is None:
        facts = fabric_facts(fabric.kind, "tcp", fabric.speed_gbps)
        return facts.rtt_us, facts.bandwidth_gbps
    rate = fabric.shape.rate_gbps or _LAB_GBPS
    return 2 * fabric.shape.delay_us + _LAB_US, min(rate, _LAB_GBPS)


# Half a gigabyte of weights, which no cache holds; Raspberry Pis read it at 18 tokens a second.
_MODEL = Model("random", random=RandomModel("llama", 10, 2048, 16, 16, 5632, weights="q8_0"))
_LENGTHS = (128, 32)  # tokens of the prompt and of the answer
_LOAD_S, _LOOK_S, _LIMIT_S = 10, 6, 180
_BENCH = f"""
end=$(($(date +%s) + {_LOAD_S}))
while :; do
  "$2" -m "$1" -p {_LENGTHS[0]} -n {_LENGTHS[1]} -r 2 -o jsonl </dev/null || exit
  [ "$(date +%s)" -lt $end ] || break
done
"""
_ON_CPUS = {"CPU", "BLAS", "RPC"}
_UNDER_LOAD = ("gpu-clock", "load-watts", "temperature")
_SLOW = "see the lines on clocks, heat and memory; 'nixwulf explain' of a 'bench smoke' tells more"
_INSTALL = "run 'nixwulf engines install' with these nodes, or put llama.cpp on their PATH"


def load_machines(
    connections: Mapping[str, Connection], subjects: Sequence[Subject], step: Callable[[str], None]
) -> Iterator[Finding]:
    """Run llama-bench for 10 s on all machines at once, one for a lab; read clocks and heat."""
    real = [one for one in subjects if not on_lab(one.node)] or list(subjects[:1])
    step(f"Loading {plural(len(real), 'machine')} for {_LOAD_S} s by llama-bench.")
    for found in each(lambda one: list(_loaded(connections[one.node.name], one)), real):
        yield from found


def _watts(node: Connection) -> dict[str, float]:
    """Mean watts of each source of a machine over _LOOK_S; none where it tells none."""
    script = shipped_text("nodes/power/sampler.sh")
    with tempfile.TemporaryDirectory(prefix="nixwulf-") as folder:
        argv = ["sh", "-c", script, "sh", "", "0.5"]
        sampler = OwnedProcess.start(node, "power", argv, {}, Path(folder), background=True)
        try:
            wait(_LOOK_S)
        finally:
            sampler.stop()
        series = power.parse(sampler.output).series
    of_power = {
        name: list(points) if name.startswith("rapl:") else power.integral(points)
        for name, points in series.items()
        if name.startswith(("rapl:", "amdgpu:", "nvidia:", "pmic", "powermetrics"))
    }
    means = {
        name: power.average(joules, [(joules[0][0], joules[-1][0])])
        for name, joules in of_power.items()
        if len(joules) >= power.LEAST_POINTS
    }
    return {name: mean for name, mean in means.items() if mean is not None}


def _loaded(node: Connection, subject: Subject) -> Iterator[Finding]:
    def finding(state: State, read: str, expected: str, mend: str = "") -> Finding:
        return Finding(subject.node.name, "load-decode", state, read, expected, mend, _MODEL_PAGE)

    program = subject.facts.programs.get("llama-bench")
    if program is None:
        yield finding("unknown", "no llama-bench on PATH", "one to load the machine with", _INSTALL)
        return
    try:
        placed = place(_MODEL, [node], engines.find(llama_bench.ENGINE).random_model)
        command = ["sh", "-c", _BENCH, "sh", placed.path, program]
        with Pool(1) as pool:
            bench = pool.submit(node.run, command, timeout_s=_LIMIT_S)
            watts = _watts(node)
            (reading,) = gather_readings([node], (), faults()).values()
            done = bench.result()
            rows = llama_bench.parse(done.stdout if done.returncode == 0 else done.stderr)
    except (NixwulfError, ParseError) as error:
        yield finding("unknown", f"llama-bench did not run: {error}", "a result", _INSTALL)
        return
    if isinstance(reading, NodeReading):
        lines = {**reading.lines, "@watts": [f"{name} {mean:.1f}" for name, mean in watts.items()]}
        hot = replace(subject, reading=replace(reading, lines=lines))
        yield from (one for one in judge(hot, [hot], CHECKS) if one.check in _UNDER_LOAD)
    size, backend = placed.bytes or 0, rows[0].backend
    speed = statistics.median(row.mean for row in rows if row.metric == "decode")
    read = (
        f"decodes {amount(size / 2**30, 'GiB')} of random weights at {amount(speed, 'tok/s')} by "
        f"{backend}, which reads {amount(speed * size / 1e9, 'GB/s')}"
    )
    if {*backend.split(",")} <= _ON_CPUS and "gpu" in subject.platform:
        yield finding("warning", read, "its GPU computes", _INSTALL)
        return
    if not memory_bandwidth_gbs(subject.platform):
        yield finding("ok", read, "no speed is known of its platform")
        return
    asked = Strategy(llama_bench.ENGINE, "single", n_prompt=_LENGTHS[0], n_gen=_LENGTHS[1])
    model = facts_of_random(_MODEL.name, placed.model.random or RandomModel(), size)
    usual = predict([platform_facts(subject.platform)], model, asked)
    slow = speed < usual.low
    expected = f"{amount(usual.low, 'tok/s')} to {amount(usual.high, 'tok/s')}, as predicted"
    yield finding("warning" if slow else "ok", read, expected, _SLOW if slow else "")
