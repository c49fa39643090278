"""latency: round trips of small packets between the head and each worker, as distributions.

ping shows the network with the kernels alone, one packet every 10 ms on machines that idle in
between; sockperf adds sockets and the scheduler, back to back, which is what an engine does.
"""

from __future__ import annotations

from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes import link
from nixwulf.nodes.ssh import Connection
from nixwulf.outputs import ping, sockperf
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.run import Run, RunFailure

# A token's hidden state is some KiB; the smallest is what is left of a collective.
_SIZES = (64, 4096)
_SECONDS = 2
# sockperf leaves out the first 400 ms and the last 50 ms (its own output names both).
_LOGGED_S = _SECONDS - 0.45
# Bounds the log of fast links; up to 100 us of a round trip, the client waits busily for its turn.
_EXCHANGES_A_SECOND = 10_000
# Not iperf3's: sockperf cannot listen on a port whose last connection is less than a minute old.
_PORT = TCP["sockperf"]


class Latency(Benchmark):
    """ping and sockperf (TCP) with 64 B and 4 KiB, from the head to one worker after another.

    On cables over one after another; a metric has `from` where the head sends nothing.

    iperf3 and qperf give means only; netperf has percentiles but is not free, and a program of our
    own would need an interpreter on every node. sockperf logs each round trip and is packaged.

    `ping_round_trip` (us): ICMP, 10 ms apart, the size counts its header. `tcp_round_trip` (us):
    sockperf ping-pong, back to back for 2 s, of which `count` are kept, evenly over the time; raw/
    has all. macOS has no sockperf: `method: [ping]`.
    """

    name = "latency"
    parameters: ClassVar = parameters_of("latency")
    engines = ()
    programs = ("ping", "sockperf")
    # sockperf is asked for by `measure`: with method ping it is not needed.
    required: ClassVar = {"ping": "install it"}
    measures_fabric = True
    transports = ("tcp",)
    over_cables: ClassVar = {"tcp": OverCables(pairs=False)}
    ports = (_PORT,)

    def measure(self, run: Run) -> list[Metric]:
        """A metric for each link, method and size; its samples are round trips in us."""
        method = run.case.parameters["method"]
        metrics = []
        for joined in run.links:
            if method != "tcp":
                metrics += [_ping(run, *joined, size) for size in _SIZES]
            if method != "ping":
                metrics += _tcp(run, *joined)
        return metrics


BENCHMARK = Latency()


def _ping(run: Run, source: Connection, worker: Connection, size: int) -> Metric:
    count, system = run.case.parameters["count"], run.facts[source.node.name].system
    argv = link.ping_arguments(run.data_address(worker, source), count, size, system)
    process = run.execute(source, f"ping-{size}-{worker.node.name}", argv, {})
    replies = ping.parse(process.output or process.last_line())
    if not replies.samples:
        raise RunFailure(
            f"None of {replies.lost} pings of {size} bytes from {source.node.name!r} to "
            f"{worker.node.name!r} came back."
        )
    conditions = {**run.link_conditions(source, worker), "bytes": size}
    return ping.metric(replies, conditions, "warm")


def _tcp(run: Run, source: Connection, worker: Connection) -> list[Metric]:
    for node in (source, worker):
        if "sockperf" not in run.facts[node.node.name].programs:
            raise RunFailure(
                f"Node {node.node.name!r} lacks 'sockperf' on PATH; install it, or set the "
                "parameter method to ping.",
                "skipped",
            )
    address = run.data_address(worker, source)
    endpoint = ["--tcp", "-i", address, "-p", str(_PORT)]
    server = run.start(
        worker, "sockperf-server", ["sockperf", "server", *endpoint], {}, background=True
    )
    try:
        link.wait_for_line(server, "to block on socket")
        return [_exchange(run, source, worker, endpoint, size) for size in _SIZES]
    finally:
        server.stop()


def _exchange(
    run: Run, source: Connection, worker: Connection, endpoint: list[str], size: int
) -> Metric:
    argv = ["sockperf", "ping-pong", *endpoint, "-m", str(size), "-t", str(_SECONDS)]
    argv += ["--mps", str(_EXCHANGES_A_SECOND), "--full-rtt", "--full-log", "/dev/stdout"]
    process = run.execute(source, f"sockperf-{size}-{worker.node.name}", argv, {})
    found = sockperf.parse(process.output)
    if found.span_s < _LOGGED_S / 2:
        raise RunFailure(
            f"{worker.node.name!r} answered {len(found.samples)} messages of {size} bytes in "
            f"{found.span_s:.2f} s and then no more.",
            "hang",
        )
    # Evenly over the whole time: the first ones alone would show one mood of the machine.
    step = max(1, len(found.samples) // run.case.parameters["count"])
    kept = found.samples[::step][: run.case.parameters["count"]]
    conditions = {**run.link_conditions(source, worker), "bytes": size}
    return sockperf.metric(found, kept, conditions=conditions, state="warm")
