"""A run folder in which every kind of benchmark left records, for the tests of reports."""

from collections.abc import Iterator
from pathlib import Path

from nixwulf.results.record import Record
from record_factory import case, failed, machines, metric, ok, write_run

FABRICS = {"rdma-like": (24.0, 23.5), "thunderbolt": (310.0, 9.4), "gbe2g5": (1010.0, 2.35)}
"""Round trip in microseconds and Gbit/s."""
SERVE = {"requests": 16, "n_prompt": 128, "n_gen": 64, "api": "completions"}


def write_mixed_run(folder: Path) -> Path:
    """llama-bench, serve, iperf3, latency, perftest and hpl, each over some fabrics."""
    records = [*_llama_bench(), *_serve(), *_links(), *_hpl()]
    return write_run(folder, records)


def _spread(middle: float, count: int = 40) -> list[float]:
    """Values around a middle with a few long ones, always the same."""
    return [middle * (0.95 + 0.1 * (i * 7 % count) / count + (i % 20 == 19)) for i in range(count)]


def _llama_bench() -> Iterator[Record]:
    yield ok(case(1), {"prompt": [2600.0, 2650.0], "decode": [400.0, 420.0]})
    for fabric, (rtt, gbps) in FABRICS.items():
        for parallelism, loss in (("pipeline", 40.0), ("tensor", 900.0)):
            decode = 1 / (1 / 380 + rtt * 1e-6 * loss / 30)
            yield ok(
                case(2, fabric, parallelism),
                {"prompt": [decode * 6, decode * 6.1], "decode": [decode, decode * 1.02]},
                rtt_us=rtt,
                gbps=gbps,
            )
    yield failed(case(4, "gbe2g5"), "hang", reason="'llama-bench' was silent for 20 s.")


def _serve() -> Iterator[Record]:
    for concurrency in (1, 4, 16):
        parameters = {"concurrency": concurrency, **SERVE}
        for nodes, slower in ((1, 1.0), (2, 1.7)):
            of = case(nodes, "thunderbolt", benchmark="serve", parameters=parameters)
            decode = _spread(390 / slower / concurrency**0.6)
            measured = [
                _timed("ttft", "ms", _spread(11 * slower * concurrency**0.8), parameters),
                _timed("itl", "ms", _spread(2.6 * slower * concurrency**0.6, 400), parameters),
                _timed("decode", "tok/s", decode, parameters),
                metric("throughput", [sum(decode[:concurrency])], conditions=parameters),
                metric("client_cpu", [41.0], unit="us/chunk", conditions=parameters),
                metric("client_busy", [3.1 * concurrency], unit="%", conditions=parameters),
            ]
            busy = ["The client itself was busy for 50% of the time: its own cost is in the times."]
            warnings = busy if concurrency == 16 else []
            yield ok(of, measured, rtt_us=310.0, warnings=warnings)


def _links() -> Iterator[Record]:
    for fabric, (rtt, gbps) in FABRICS.items():
        link = {"rtt_us": rtt, "gbps": gbps}
        for streams in (1, 4):
            for direction in ("forward", "bidir"):
                of = machines("iperf3", 2, {"streams": streams, "direction": direction}, fabric)
                ways = ("forward", "reverse") if direction == "bidir" else ("forward",)
                rate = gbps / len(ways) * (1 - 0.1 / streams)
                measured = [
                    metric("bandwidth", [rate, rate * 1.01], unit="Gbit/s", conditions={"way": way})
                    for way in ways
                ]
                yield ok(of, measured, **link)
        sizes = (64, 4096)
        measured = [
            _timed("round_trip", "us", _spread(rtt + size / gbps / 125), {"bytes": size})
            for size in sizes
        ]
        yield ok(machines("latency", 2, {"tool": "tcp"}, fabric), measured, **link)
    sizes = (2, 64, 1024, 8192, 65536)
    measured = [
        _timed("latency", "us", _spread(5.2 + size / 5000), {"bytes": size, "verb": verb})
        for size in sizes
        for verb in ("write", "send")
    ]
    yield ok(machines("perftest", 2, {"tool": "lat"}, "rdma-like"), measured, rtt_us=24.0)


def _hpl() -> Iterator[Record]:
    for nodes, gflops in ((1, 61.0), (2, 104.0), (4, 171.0)):
        of = machines("hpl", nodes, {"nb": 192}, "rdma-like")
        conditions = {"n": 20000 * nodes, "nb": 192, "p": 1, "q": nodes}
        yield ok(
            of,
            [
                metric("performance", [gflops], unit="Gflop/s", conditions=conditions),
                metric(
                    "performance_per_watt", [gflops / 55], unit="Gflop/s/W", conditions=conditions
                ),
            ],
            rtt_us=24.0,
        )
    reason = "hpl printed no PASSED: a residual is too large."
    yield failed(machines("hpl", 4, {"nb": 256}, "gbe2g5"), reason=reason)


def _timed(name: str, unit: str, samples: list[float], conditions: dict) -> dict:
    return metric(name, samples, unit=unit, distribution=True, conditions=conditions)
