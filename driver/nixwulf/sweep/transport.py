"""What carried a run: judged by counters of each node, before and after the measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.inventory.fabrics import Attachment
from nixwulf.nodes.counters import SOFT_ROCE, Counters, RdmaCounters

# The driver's own ssh crosses the management network: output of programs, and of `serve` the
# stream. Below this it is never called the bulk of a run (see docs/results.md for measured values).
CHATTER_BYTES = 1_000_000
NOT_STARTED = (
    "the driver did not start the server, so that nothing shows which nodes compute for it and by "
    "what they talk"
)
"""Why counters prove nothing of a server that somebody else has started."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that crossed a node while measuring; none is what could not be read.

    interface_bytes and rdma: sums over the node's interfaces and devices on the fabric.
    management_bytes: without those of the driver's own connection. elsewhere: the interface that
    carried most of those that are neither, and its bytes. busiest: where the node's system has no
    counters of RDMA devices, as macOS, that of all interfaces; None where it has.
    """

    interfaces: tuple[str, ...]
    interface_bytes: int
    management: str | None
    management_bytes: int | None
    devices: tuple[str, ...] = ()
    rdma: RdmaCounters | None = None
    elsewhere: tuple[str, int] = ("", 0)
    busiest: tuple[str, int] | None = None

    @property
    def shared(self) -> bool:
        """Whether an interface of the fabric is also the one by which ssh reaches the node."""
        return self.management in self.interfaces

    @property
    def interface(self) -> str:
        """The names of its interfaces on the fabric."""
        return ", ".join(self.interfaces)

    @property
    def device(self) -> str:
        """The names of its RDMA devices on the fabric; empty without one."""
        return ", ".join(self.devices)

    def carried(self, transport: str) -> int:
        """Bytes by a transport; of an RDMA device that counts packets only, at most so many."""
        if transport == "tcp":
            return self.interface_bytes
        return self.rdma.carried if self.rdma else 0

    def document(self) -> dict[str, Any]:
        """As in a record."""
        document: dict[str, Any] = {
            "fabric": {"interface": self.interface, "bytes": self.interface_bytes}
        }
        if self.management is not None and self.management_bytes is not None:
            document["management"] = {"interface": self.management, "bytes": self.management_bytes}
        if self.devices and self.rdma is not None:
            counted = {"bytes": self.rdma.bytes, "packets": self.rdma.packets}
            document["rdma"] = {
                "device": self.device,
                "driver": self.rdma.driver,
                **{key: value for key, value in counted.items() if value is not None},
            }
        return document


def traffic(ends: Sequence[Attachment], before: Counters, after: Counters) -> Traffic:
    """What crossed a node between two readings; a counter that was reset has moved by nothing."""
    interfaces, management = tuple(end.interface for end in ends), after.management or ""
    devices = tuple(name for end in ends for name in end.rdma_devices)
    both = sorted(before.interfaces.keys() & after.interfaces.keys())
    grown = {name: max(0, after.interfaces[name] - before.interfaces[name]) for name in both}
    if management in grown:
        grown[management] = max(0, grown[management] - max(0, after.own - before.own))
    others = {name: count for name, count in grown.items() if name not in (*interfaces, management)}
    return Traffic(
        interfaces,
        sum(grown.get(name, 0) for name in interfaces),
        after.management,
        grown.get(management),
        devices,
        _sum([_rdma(before.rdma.get(name), after.rdma.get(name)) for name in devices]),
        _busiest(others),
        None if after.counts_rdma else _busiest(grown),
    )


def _busiest(grown: Mapping[str, int]) -> tuple[str, int]:
    far = (pair for pair in grown.items() if not pair[0].startswith("lo"))
    return max(far, key=lambda pair: pair[1], default=("", 0))


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _rdma(before: RdmaCounters | None, after: RdmaCounters | None) -> RdmaCounters | None:
    if before is None or after is None:
        return None
    return RdmaCounters(
        after.driver, _grown(before.bytes, after.bytes), _grown(before.packets, after.packets)
    )


def _sum(devices: Sequence[RdmaCounters | None]) -> RdmaCounters | None:
    """Of devices that carried together; a counter that any has is the sum of those that have it."""
    known = [device for device in devices if device is not None]
    if not known:
        return None
    sizes = [device.bytes for device in known if device.bytes is not None]
    packets = [device.packets for device in known if device.packets is not None]
    return RdmaCounters(
        known[0].driver, sum(sizes) if sizes else None, sum(packets) if packets else None
    )


def problem(
    fabric: str,
    transport: str,
    nodes: Mapping[str, Traffic],
    least: int,
    known_by: str | None = None,
) -> str | None:
    """One sentence on why the traffic did not cross what was asked for; None when it did.

    least: bytes that each node's part of the run takes at the least. known_by: how rdma is known
    where nothing counts it, None where it is not.
    """
    judge = _tcp_problem if transport == "tcp" else _rdma_problem
    for name, moved in nodes.items():
        if transport == "rdma" and moved.busiest:
            found = _uncounted_problem(name, *moved.busiest, known_by)
        else:
            found = judge(fabric, name, moved, least)
        found = found or _management_problem(transport, name, moved)
        found = found or _elsewhere_problem(fabric, transport, name, moved)
        if found:
            return found
    return None


def _tcp_problem(fabric: str, name: str, moved: Traffic, least: int) -> str | None:
    if moved.interface_bytes >= least:
        return None
    return (
        f"The fabric {fabric!r} carried only {moved.interface_bytes} bytes of node {name!r} while "
        f"measuring: the traffic crossed another network, or none{_elsewhere(moved)}."
    )


def _rdma_problem(fabric: str, name: str, moved: Traffic, least: int) -> str | None:
    if not moved.devices:
        return (
            f"Node {name!r} has no rdma_device on the fabric {fabric!r} in the cluster file, so no "
            "counter can prove rdma."
        )
    if moved.rdma is None or (moved.rdma.bytes is None and moved.rdma.packets is None):
        return (
            f"The RDMA device {moved.device!r} of node {name!r} has no counter that can be read, "
            "so nothing proves rdma; see "
            f"'ls /sys/class/infiniband/{moved.devices[0]}/ports/1/' there."
        )
    if moved.carried("rdma") < least:
        return (
            f"The RDMA device {moved.device!r} of node {name!r} carried at most "
            f"{moved.carried('rdma')} bytes while measuring, and the interface "
            f"{moved.interface!r} {moved.interface_bytes}: the traffic did not cross rdma"
            f"{_elsewhere(moved)}."
        )
    # A soft device's packets pass its interface. A real one's do not, but InfiniBand's counters
    # have IP over InfiniBand in them, so bulk on the interface is not rdma though both moved.
    soft = moved.rdma.driver == SOFT_ROCE
    if not soft and moved.interface_bytes > max(least, moved.carried("rdma") // 2):
        return (
            f"The interface {moved.interface!r} of node {name!r} carried {moved.interface_bytes} "
            f"bytes while measuring, and its RDMA device {moved.device!r} "
            f"{moved.carried('rdma')}: the bulk crossed tcp."
        )
    return None


def _uncounted_problem(name: str, interface: str, carried: int, known_by: str | None) -> str | None:
    """What speaks against rdma on a node that counts none.

    RDMA over Thunderbolt is a service of the cable beside that of the Internet Protocol, which the
    interfaces are (system_profiler in https://github.com/exo-explore/exo/issues/1390).
    """
    if known_by is None:
        return (
            f"Node {name!r} runs macOS, which has no counters of RDMA devices, and the engine does "
            "not tell what it used, so nothing proves rdma; take transport: [tcp]."
        )
    if carried <= CHATTER_BYTES:
        return None
    return (
        f"The interface {interface!r} of node {name!r} carried {carried} bytes while measuring, "
        "and RDMA passes none: the bulk crossed tcp."
    )


def uncounted(transport: str, nodes: Mapping[str, Traffic], known_by: str | None) -> str | None:
    """A clause on rdma that no counter shows, and how it is known; None where one shows it."""
    names = [name for name, moved in nodes.items() if moved.busiest]
    if transport != "rdma" or not names:
        return None
    return (
        f"macOS has no counters of RDMA devices, so none shows rdma on {', '.join(names)}: that it "
        f"was used is known only because {known_by}, and because no interface carried "
        f"more than {CHATTER_BYTES // 1_000_000} MB"
    )


def _management_problem(transport: str, name: str, moved: Traffic) -> str | None:
    if moved.shared or moved.management_bytes is None:
        return None
    if moved.management_bytes <= max(CHATTER_BYTES, moved.carried(transport)):
        return None
    return (
        f"The management interface {moved.management!r} of node {name!r} carried "
        f"{moved.management_bytes} bytes while measuring, and the fabric "
        f"{moved.carried(transport)}: the bulk crossed the wrong network."
    )


def _elsewhere_problem(fabric: str, transport: str, name: str, moved: Traffic) -> str | None:
    """Bulk on a network that was not asked for; a VLAN or a bond is counted by its device again."""
    interface, count = moved.elsewhere
    carried = moved.carried(transport)
    if count <= carried + max(CHATTER_BYTES, carried):
        return None
    return (
        f"The interface {interface!r} of node {name!r}, which is not on the fabric {fabric!r}, "
        f"carried {count} bytes while measuring, and the fabric {carried}: the bulk crossed "
        "another network."
    )


def _elsewhere(moved: Traffic) -> str:
    if moved.shared or (moved.management_bytes or 0) <= CHATTER_BYTES:
        return ""
    return f" (the management interface {moved.management!r} carried {moved.management_bytes})"


def document(
    transport: str, nodes: Mapping[str, Traffic], found: str | None, unproved: str | None = None
) -> dict[str, Any]:
    """The transport of a record: the verdict, the bytes, and every counter by its kind."""
    shared = [name for name, moved in nodes.items() if moved.shared]
    unknown = [name for name, moved in nodes.items() if moved.management_bytes is None]
    notes = []
    if shared:
        notes.append(
            f"data and management share one interface on {', '.join(shared)}: the counters cannot "
            "tell them apart"
        )
    if unknown:
        notes.append(f"the management interface of {', '.join(unknown)} could not be read")
    if unproved:
        notes.append(unproved)
    return {
        "proved": found is None and unproved is None,
        "bytes": {
            name: moved.carried(transport)
            for name, moved in nodes.items()
            if transport == "tcp" or not moved.busiest
        },
        "counters": {name: moved.document() for name, moved in nodes.items()},
        **({"note": "; ".join(notes)} if notes else {}),
    }
