"""iperf3: what a fabric carries over TCP between the head and each worker, interval by interval."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.nodes import link
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.outputs import iperf3
from nixwulf.outputs.iperf3 import Flow, IntervalRow, whole
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.run import Run, RunFailure

_INTERVALS = 10
_LONGEST_INTERVAL_S = 1.0
# iperf3 refuses shorter ones.
_SHORTEST_INTERVAL_S = 0.1
# An interval with less of the fastest one's rate is a stall: the link was up and carried nothing.
_STALLED = 0.01
_FLAGS = {"forward": [], "reverse": ["-R"], "bidir": ["--bidir"]}
_FLOWS = {"forward": ["forward"], "reverse": ["reverse"], "bidir": ["forward", "reverse"]}


class Iperf3(Benchmark):
    """iperf3 from the head to one worker after another; the worker's server serves one test.

    `bandwidth` (Gbit/s), one a worker and direction; samples are intervals of a tenth of `seconds`
    as they arrived. With `warm_up` the first second, TCP's slow start, is left out. An interval
    with less than 1 % of the fastest is a stall, in `observed`; a test that ends in one is a
    `hang`. iperf3 older than 3.16 has one thread for all streams: above 40 Gbit/s it measures the
    core.
    """

    name = "iperf3"
    parameters: ClassVar = parameters_of("iperf3", direction=_FLAGS)
    engines = ()
    programs = ("iperf3",)
    required: ClassVar = {"iperf3": "install it"}
    measures_fabric = True
    transports = ("tcp",)
    over_cables: ClassVar = {"tcp": OverCables(pairs=False)}
    proof_bytes = 1_000_000

    def measure(self, run: Run) -> list[Metric]:
        """A metric for each link and direction; its samples are intervals as received."""
        return [metric for joined in run.links for metric in _to_worker(run, *joined)]


BENCHMARK = Iperf3()


def client_arguments(run: Run, address: str) -> list[str]:
    """The client's command line; a warm run leaves the first second out, TCP's slow start."""
    values = run.case.parameters
    argv = ["iperf3", "-c", address, "-p", str(link.PORT), "-J", "--connect-timeout", "3000"]
    argv += ["-t", str(values["seconds"]), "-i", f"{_interval_s(run):g}"]
    argv += ["-P", str(values["streams"]), *_FLAGS[values["direction"]]]
    return argv + (["-O", "1"] if run.case.warm_up else [])


def _interval_s(run: Run) -> float:
    seconds: int = run.case.parameters["seconds"]
    return max(_SHORTEST_INTERVAL_S, min(_LONGEST_INTERVAL_S, round(seconds / _INTERVALS, 1)))


def _to_worker(run: Run, source: Connection, worker: Connection) -> list[Metric]:
    name, address = worker.node.name, run.data_address(worker, source)
    listen = [*link.iperf3_server(address), "-f", "k", "-i", f"{_interval_s(run):g}"]
    server = run.start(worker, "iperf3-server", listen, {}, background=True)
    link.wait_for_line(server, "listening")
    try:
        client = run.execute(source, f"iperf3-{name}", client_arguments(run, address), {})
    except RunFailure as failure:
        stdout = (run.raw / f"iperf3-{name}-{source.node.name}.stdout").read_text("utf-8")
        unfinished = iperf3.parse_unfinished(stdout).values()
        stalled = next(filter(None, (stalls(flow.rows) for flow in unfinished)), "")
        words = f" It carried nothing in {stalled}." if stalled else ""
        pinged = _ping(run, source, worker)
        raise RunFailure(f"{failure.reason}{words} {pinged}", failure.outcome) from None
    sent = iperf3.parse(client.output or client.last_line())
    received = {**sent, **_received_by(server)}
    flows = {way: received[way] for way in _FLOWS[run.case.parameters["direction"]]}
    for direction, flow in flows.items():
        _check(run, source, worker, direction, whole(flow.rows, _interval_s(run)))
    return [
        _metric(run, run.link_conditions(source, worker), direction, flow, sent[direction])
        for direction, flow in flows.items()
    ]


def _received_by(server: OwnedProcess) -> dict[str, Flow]:
    """What arrived at the server: in the rows of its client, the rest is still in buffers."""
    until = time.monotonic() + 5
    while server.running and time.monotonic() < until:
        time.sleep(0.02)
    server.stop()
    flows = iperf3.parse(server.output)
    return {direction: flow for direction, flow in flows.items() if direction == "forward"}


def _check(
    run: Run, source: Connection, worker: Connection, direction: str, rows: Sequence[IntervalRow]
) -> None:
    """A test that ends in a stall has lost its link, whatever its sum is."""
    fastest = max((row.gbps for row in rows), default=0.0)
    if fastest and rows[-1].gbps >= fastest * _STALLED:
        return
    pair = f"{source.node.name!r} and {worker.node.name!r}"
    reason = (
        f"iperf3 {direction} between {pair} carried nothing in {stalls(rows) or 'any interval'}, "
        f"to its end. {_ping(run, source, worker)}"
    )
    raise RunFailure(reason, "hang")


def stalls(rows: Sequence[IntervalRow]) -> str:
    """The intervals without traffic, neighbours joined, as '2.0-4.0 s, 7.0-8.0 s'."""
    fastest = max((row.gbps for row in rows), default=0.0)
    spans: list[list[float]] = []
    for row in rows:
        if row.gbps > fastest * _STALLED:
            continue
        if spans and row.start_s <= spans[-1][1] + 0.05:
            spans[-1][1] = row.end_s
        else:
            spans.append([row.start_s, row.end_s])
    return ", ".join(f"{start:.1f}-{end:.1f} s" for start, end in spans)


def _ping(run: Run, source: Connection, worker: Connection) -> str:
    address, system = run.data_address(worker, source), run.facts[source.node.name].system
    trips = link.round_trips(source, address, count=10, system=system)
    name = worker.node.name
    if trips is None:
        return f"No ping to {name!r} came back after it: the link is down."
    return f"{len(trips.samples)} of 10 pings to {name!r} came back after it."


def _metric(run: Run, joined: Mapping[str, str], direction: str, flow: Flow, sent: Flow) -> Metric:
    rows = whole(flow.rows, _interval_s(run))
    stalled = stalls(rows)
    return Metric(
        name="bandwidth",
        unit="Gbit/s",
        samples=tuple(row.gbps for row in rows),
        state="warm" if run.case.warm_up else "cold",
        conditions={**joined, "direction": direction, "interval_s": _interval_s(run)},
        observed={
            **({} if sent.retransmits is None else {"retransmits": sent.retransmits}),
            **({"stalled": stalled} if stalled else {}),
        },
    )
