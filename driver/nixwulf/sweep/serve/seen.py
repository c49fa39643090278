"""What the watch of a service sees: a document for status and top, and metrics for Prometheus.

Names and units of metrics follow https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Required, TypedDict, get_args

from nixwulf.sweep.serve.service import LOOPBACK, Host, Service
from nixwulf.sweep.serve.units import NodeLook
from nixwulf.sweep.serve.watch import ServerSample, State

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SeenState = Literal[State, "down", "restarting", "stopped"]
"""Of a server: beside what the watch finds, what it or a person has done about it."""


class SeenServer(TypedDict, total=False):
    """A server as the watch last saw it; None is what it does not tell.

    requests: that it holds; queued: of them. prompted, generated: tokens since its start, and
    prompt_per_s, decode_per_s since the look before. first_token_s: summed over first_tokens
    requests. canary_s: what the last request of the watch took. restarts: of the last hour.
    """

    state: Required[SeenState]
    why: Required[str]
    still_s: float
    restarts: int
    requests: int | None
    queued: int | None
    prompted: int | None
    generated: int | None
    prompt_per_s: float | None
    decode_per_s: float | None
    first_token_s: float | None
    first_tokens: int | None
    canary_s: float | None


class SeenUnit(TypedDict):
    """A process: CPU seconds since its start, and cores that it took since the look before."""

    running: bool
    cpu_s: float
    cores: float | None


class SeenNode(TypedDict):
    """A node of a service: W of its GPUs, sensors, bytes of memory, and its ends of the fabric.

    fabric_bytes and fabric_errors: both ways since its boot, by interface or RDMA device;
    fabric_per_s: bytes since the look before.
    """

    watts: float | None
    celsius: Mapping[str, float]
    mhz: Mapping[str, float]
    memory_bytes: int | None
    available_bytes: int | None
    fabric_bytes: Mapping[str, int]
    fabric_errors: Mapping[str, int]
    fabric_per_s: float | None
    units: Mapping[str, SeenUnit]


class SeenService(TypedDict, total=False):
    """A service as its watch last saw it, and whether that runs now; without a look no `at`.

    nodes: None of one that did not answer.
    """

    watched: Required[bool]
    servers: Required[Mapping[str, SeenServer]]
    nodes: Required[Mapping[str, SeenNode | None]]
    at: str
    held: bool


def seen_node(host: Host, look: NodeLook, before: NodeLook | None, seconds: float) -> SeenNode:
    """A node by a look; before: the one that was made some seconds earlier, if any."""
    now, then = carried(host, look), carried(host, before) if before else {}
    rates_now = (_rate(total, then.get(name), seconds) for name, total in now.items())
    known = [rate for rate in rates_now if rate is not None]
    earlier = {name: sign.cpu_s for name, sign in before.units.items()} if before else {}
    return {
        "watts": look.watts,
        "celsius": look.celsius,
        "mhz": look.mhz,
        "memory_bytes": look.memory.get("MemTotal"),
        "available_bytes": look.memory.get("MemAvailable"),
        "fabric_bytes": now,
        "fabric_errors": {k: v for k, v in look.errors.items() if k in host.interfaces},
        "fabric_per_s": sum(known) if known else None,
        "units": {
            name: {
                "running": sign.process > 0,
                "cpu_s": sign.cpu_s,
                "cores": _rate(sign.cpu_s, earlier.get(name), seconds),
            }
            for name, sign in look.units.items()
        },
    }


def carried(host: Host, look: NodeLook) -> dict[str, int]:
    """Bytes, both ways since its boot, of each end of the fabric that a node counts."""
    told = look.counters
    found = {one: told.interfaces[one] for one in host.interfaces if one in told.interfaces}
    return found | {one: told.rdma[one].carried for one in host.devices if one in told.rdma}


def rates(samples: Sequence[ServerSample]) -> tuple[float | None, float | None]:
    """Tokens a second, of prompts and of answers, between the last two samples."""
    if len(samples) < 2:  # noqa: PLR2004
        return None, None
    before, now = samples[-2:]
    seconds = now.at - before.at
    return (
        _rate(now.prompted, before.prompted, seconds),
        _rate(now.generated, before.generated, seconds),
    )


def _rate(now: float | None, before: float | None, seconds: float) -> float | None:
    """A counter that fell began anew, so that nothing is known of its rate."""
    if now is None or before is None or now < before or seconds <= 0:
        return None
    return round((now - before) / seconds, 2)


# Name, what it is, and the key of SeenServer; a name that ends with _total only grows.
_OF_SERVERS = (
    ("requests", "Requests that the server holds.", "requests"),
    ("queued_requests", "Requests that wait for a slot.", "queued"),
    ("prompt_tokens_total", "Tokens of prompts that were computed.", "prompted"),
    ("generated_tokens_total", "Tokens that were generated.", "generated"),
    ("first_token_seconds_total", "Seconds until first tokens, summed.", "first_token_s"),
    ("first_tokens_total", "Requests that got a first token.", "first_tokens"),
    ("still_seconds", "Seconds for which nothing has moved.", "still_s"),
    ("canary_seconds", "Seconds of the last request of the watch.", "canary_s"),
    ("recent_restarts", "Restarts in the last hour.", "restarts"),
)
# The same of SeenNode, and the label of what a key has by name, if it has.
_OF_NODES = (
    ("gpu_watts", "Power of the GPUs.", "watts", ""),
    ("memory_bytes", "Memory.", "memory_bytes", ""),
    ("memory_available_bytes", "Memory that a program could get.", "available_bytes", ""),
    ("temperature_celsius", "The hottest of a kind of sensor.", "celsius", "sensor"),
    ("clock_megahertz", "The mean clock of processors or GPUs.", "mhz", "unit"),
    ("fabric_bytes_total", "Carried both ways.", "fabric_bytes", "end"),
    ("fabric_errors_total", "Errors of receiving and sending.", "fabric_errors", "end"),
)
_Rows = Iterable[tuple[dict[str, str], object]]
"""Labels and a value; what is no number has no row."""


def metrics(service: Service, seen: SeenService) -> Iterator[Metric]:
    """The families of a service for Prometheus: of its servers, of its nodes, of their units."""
    servers = seen["servers"]
    nodes = {name: one for name, one in seen["nodes"].items() if one is not None}

    def family(name: str, words: str, rows: _Rows) -> Metric:
        return _family(service.name, name, words, rows)

    yield family(
        "server_state",
        "1 for the state in which the server is.",
        (
            ({"server": name, "state": state}, one["state"] == state)
            for name, one in servers.items()
            for state in get_args(SeenState)
        ),
    )
    for metric, words, key in _OF_SERVERS:
        rows = (({"server": name}, dict(one).get(key)) for name, one in servers.items())
        yield family(f"server_{metric}", words, rows)
    up = (({"node": name}, one is not None) for name, one in seen["nodes"].items())
    yield family("node_up", "Whether the node answered the last look.", up)
    for metric, words, key, label in _OF_NODES:
        yield family(f"node_{metric}", words, _rows_of_nodes(nodes, key, label))
    units = [
        ({"node": name, "unit": unit}, one)
        for name, node in nodes.items()
        for unit, one in node["units"].items()
    ]
    yield family("unit_up", "Whether it runs.", ((k, one["running"]) for k, one in units))
    yield family("unit_cpu_seconds_total", "CPU time.", ((k, one["cpu_s"]) for k, one in units))


def _rows_of_nodes(nodes: Mapping[str, SeenNode], key: str, label: str) -> _Rows:
    for name, one in nodes.items():
        value = dict(one)[key]
        if isinstance(value, Mapping):
            yield from (({"node": name, label: which}, each) for which, each in value.items())
        else:
            yield {"node": name}, value


def _family(service: str, name: str, words: str, rows: _Rows) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found = [(labels, value) for labels, value in rows if isinstance(value, (int, float))]
    made = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    one = made(f"nixwulf_{name}", words, labels=["service", *(found[0][0] if found else ())])
    for labels, value in found:
        one.add_metric([service, *labels.values()], float(value))
    return one


class _Collector:
    """Gives what the watch saw last at each request: nothing is measured for it."""

    def __init__(self, service: Service, seen: Callable[[], SeenService]) -> None:
        self.service, self.seen = service, seen

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus-client asks for them."""
        yield from metrics(self.service, self.seen())


def publish(service: Service, seen: Callable[[], SeenService]) -> None:
    """Answer /metrics on the loopback from a thread; raises OSError where the port is in use."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Collector(service, seen))
    start_http_server(service.metrics_port, LOOPBACK, registry)
