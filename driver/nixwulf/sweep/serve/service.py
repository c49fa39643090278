"""What is served: its processes by node, its URL, and the limits that its own record gives.

A service is one JSON file in the home of its head, of which every command and the watch read all
that they know: no state is on the machine from which it was started.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from nixwulf.core.errors import InputError
from nixwulf.core.files import parse_json
from nixwulf.inventory.cluster import Node
from nixwulf.results.record import Record
from nixwulf.sweep.serve.watch import State, WatchLimits

SCHEMA_VERSION = "1.0"
FILE, EVENTS, STATUS = "service.json", "events.jsonl", "status.json"
WATCH, PROXY = "watch", "nginx"
LOOPBACK = "127.0.0.1"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
# Of what the trial showed: a machine that is busy with other things is slower than that.
_TIMES = 3.0
_LEAST_STILL_S, _LEAST_START_S = 30.0, 60.0
# Watts of a node that works are this much above its idle ones, else they tell nothing of the case.
_TELLING, _SHARE = 1.3, 0.3
_ACCELERATORS = ("amdgpu", "nvidia")


def check_name(name: str) -> str:
    """A service's name, which is part of paths and units; raises InputError for another text."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"The name {name!r} is not 1 to 32 letters a-z, digits and inner hyphens; give one by "
            "--name, such as --name chat."
        )
    return name


def check_address(address: str, *, closed: bool) -> str:
    """Where a URL listens, the loopback without a wish; raises InputError.

    closed: whether it asks for a key, without which no other address is opened.
    """
    try:
        found = ipaddress.IPv4Address(address or LOOPBACK)
    except ValueError:
        raise InputError(
            f"--address {address!r} is no IPv4 address; give one that the first node has."
        ) from None
    if not found.is_loopback and not closed:
        raise InputError(
            f"On {address!r} others could use the model; give a key by --api-key-file FILE, made "
            "by 'openssl rand -hex 24 > FILE', or leave --address out."
        )
    return str(found)


@dataclass(frozen=True)
class Host:
    """A node as the watch reaches it.

    address: where the head reaches it over the case's fabric, empty of the head itself and where
    there is none; interfaces and devices: its ends there.
    """

    name: str
    ssh: str
    host_key: str | None = None
    address: str = ""
    interfaces: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def node(self) -> Node:
        """What a connection needs of it."""
        return Node(self.name, "", self.ssh, host_key=self.host_key)


@dataclass(frozen=True)
class UnitOfServer:
    """A process of a server, by its unit's name, and its node."""

    unit: str
    node: str


@dataclass(frozen=True)
class ServedGroup:
    """One server of the model: its processes in the order of starting, the one that answers last.

    host and port: where that listens; worker_ports: one of them is open on a node before it starts.
    needs: a path on the head's node without which no start succeeds.
    """

    name: str
    host: str
    port: int
    units: tuple[UnitOfServer, ...]
    worker_ports: tuple[int, ...] = ()
    needs: str = ""

    @property
    def head(self) -> str:
        """The node that answers."""
        return self.units[-1].node

    @property
    def base_url(self) -> str:
        """What stands before the paths."""
        return f"http://{self.host}:{self.port}"

    def of(self, node: str) -> tuple[str, ...]:
        """The units of a node."""
        return tuple(one.unit for one in self.units if one.node == node)


@dataclass(frozen=True)
class Service:
    """What is kept running.

    model: its path on the nodes; called: by what name requests ask for it. record: the id of the
    run that its limits are from. port: of the URL on the first group's node; proxied: whether nginx
    is there. canary: path and body of the request that tries it out. text: what it answered when it
    was started, empty where nothing was compared. metrics_port: of Prometheus' text on the loopback
    of the head, 0 for none. address: where the URL listens; closed: whether nginx lets in only who
    has the key.
    """

    name: str
    cluster: str
    created: str
    engine: str
    model: str
    called: str
    case: Mapping[str, object]
    record: str
    port: int
    proxied: bool
    hosts: tuple[Host, ...]
    groups: tuple[ServedGroup, ...]
    limits: WatchLimits
    canary: tuple[str, Mapping[str, object]]
    text: str = ""
    metrics_port: int = 0
    address: str = LOOPBACK
    closed: bool = False

    @property
    def head(self) -> str:
        """The node of the URL, of the service's files and of the watch."""
        return self.groups[0].head

    @property
    def local(self) -> bool:
        """Whether only programs of the head reach the URL."""
        return ipaddress.IPv4Address(self.address).is_loopback

    @property
    def url(self) -> str:
        """What clients of OpenAI's API are given, on the head."""
        return f"http://{self.address}:{self.port}/v1"

    def host(self, name: str) -> Host:
        """A node by its name."""
        return next(one for one in self.hosts if one.name == name)

    def of(self, node: str) -> tuple[str, ...]:
        """The units of a node, of all servers."""
        return tuple(unit for group in self.groups for unit in group.of(node))

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {"schema_version": SCHEMA_VERSION, "kind": "service", **asdict(self)}


def read_service(text: str, source: str) -> Service:
    """The service of a JSON text; raises InputError for what is none of this version."""
    document = parse_json(text, source)
    try:
        if document.pop("schema_version") != SCHEMA_VERSION or document.pop("kind") != "service":
            raise ValueError
        hosts = (Host(**{**one, **_tuples(one)}) for one in document["hosts"])
        groups = (
            ServedGroup(
                **{
                    **one,
                    **_tuples(one),
                    "units": (*(UnitOfServer(**each) for each in one["units"]),),
                }
            )
            for one in document["groups"]
        )
        own = {"hosts": (*hosts,), "groups": (*groups,), "canary": (*document["canary"],)}
        limits = WatchLimits(**document["limits"])
        return Service(**{**document, **own, "limits": limits})
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{source} is no service of version {SCHEMA_VERSION}; the nixwulf that wrote it reads "
            "it, or start the service again."
        ) from None


def _tuples(document: Mapping[str, object]) -> dict[str, object]:
    return {key: tuple(value) for key, value in document.items() if isinstance(value, list)}


def limits_of(record: Record) -> WatchLimits:
    """The limits of a case by its record: loading, the longest prompt at full load, and watts."""
    metrics = [one for one in record["metrics"] if one["name"] in ("ttft", "itl")]
    waits = [wait for one in metrics for wait in (*one.get("samples", ()), one["value"])]
    phases = record.get("phases", {})
    loading = phases.get("launch", 0.0) + phases.get("sanity", 0.0)
    return WatchLimits(
        start_s=max(_LEAST_START_S, round(_TIMES * loading, 1)),
        still_s=max(_LEAST_STILL_S, round(_TIMES * max(waits, default=0.0) / 1000, 1)),
        busy_watts=_busy_watts(record),
    )


def _busy_watts(record: Record) -> float | None:
    """What the accelerators of all nodes draw at least while they work; None where that is unknown.

    It is nearer to idle than to load: a long prompt of one request draws less than a full load.
    """
    found = [
        watts
        for node in record.get("power", {}).get("nodes", {}).values()
        for source, watts in node.get("watts", {}).items()
        if source in _ACCELERATORS
    ]
    if not found or not all("idle" in watts for watts in found):
        return None
    idle, load = (sum(watts[key] for watts in found) for key in ("idle", "average"))
    return round(idle + _SHARE * (load - idle), 1) if load > _TELLING * idle else None


@dataclass(frozen=True)
class ServiceEvent:
    """Something that happened to a server of a service, as it is kept and shown.

    action: one of those of the schema. evidence: a folder beside the events. seconds: what is known
    of how long it took; restarts: of the last hour.
    """

    service: str
    server: str
    at: str
    state: State
    why: str
    action: str
    evidence: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 0

    def document(self) -> dict[str, object]:
        """By the schema of events; what has no value is absent."""
        values = {key: value for key, value in asdict(self).items() if value not in ("", {})}
        return {"schema_version": SCHEMA_VERSION, "kind": "event", **values}


def moment() -> str:
    """The time of day, as in records."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def seconds_of(at: str) -> float:
    """The same as seconds since 1970."""
    return datetime.fromisoformat(at).timestamp()
