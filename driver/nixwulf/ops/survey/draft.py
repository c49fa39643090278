"""A cluster file's content, from what machines reported, and what is uncertain about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core.text import some
from nixwulf.inventory.platforms import platforms_like, platforms_of
from nixwulf.nodes import macos
from nixwulf.nodes.interfaces import AMD
from nixwulf.ops.deploy.refusals import shown
from nixwulf.ops.survey.fabrics import fabric_drafts
from nixwulf.ops.survey.machines import Surveyed
from nixwulf.ops.survey.wires import LeftOut, Wire

UNKNOWN_PLATFORM = "generic-x86_64"
_VENDORS = {AMD: "amd", "0x10de": "nvidia"}

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Draft:
    """A cluster file to be: its document, comments by the place that they stand above, the rest.

    notes: above a key, such as ('fabrics', 'lan', 'mtu'), or above the table that it names.
    left_out: what the machines have and the file has not, with the reason, a line each.
    """

    document: dict[str, Any]
    notes: Mapping[Place, tuple[str, ...]]
    left_out: tuple[str, ...] = ()

    @property
    def uncertain(self) -> list[str]:
        """The comments above keys: each gives the reason why a value may be wrong."""
        return [text for place, texts in self.notes.items() if len(place) > 2 for text in texts]  # noqa: PLR2004


def draft(
    name: str, machines: Sequence[Surveyed], wires: Sequence[Wire], left: Iterable[LeftOut]
) -> Draft:
    """The cluster file of machines and of the wires between them, the fastest first.

    The network that ssh takes comes last among equals.
    """
    drafts = fabric_drafts(wires, {machine.reached_at for machine in machines})
    notes: dict[Place, tuple[str, ...]] = {}
    for key, fabric in drafts.items():
        notes["fabrics", key] = fabric.headline
        notes |= {("fabrics", key, part): texts for part, texts in fabric.notes.items()}
    nodes = []
    for index, machine in enumerate(machines):
        platform, why = platform_of(machine)
        node = {"name": machine.name, "platform": platform, "ssh": machine.node.ssh}
        places = {key: one.places.get(machine.name) for key, one in drafts.items()}
        on = {key: place for key, place in places.items() if place}
        nodes.append({**node, **({"fabrics": on} if on else {})})
        notes["nodes", index, "platform"] = why
        notes["nodes", index, "disk"] = tuple(_disks(machine))
    fabrics = {key: fabric.table for key, fabric in drafts.items()}
    document = {"name": name, "fabrics": fabrics, "nodes": nodes}
    return Draft(document, {k: v for k, v in notes.items() if v}, tuple(_sentences(left, machines)))


def platform_of(machine: Surveyed) -> tuple[str, tuple[str, ...]]:
    """The platform of a machine, and why it may be another one."""
    product = machine.machine.product
    known = platforms_of(product)
    if len(known) == 1:
        return known[0], ()
    system, hardware = machine.machine.system, machine.hardware
    vendors = [_VENDORS[gpu.vendor] for gpu in hardware.gpus if gpu.vendor in _VENDORS]
    vendor = next(iter(vendors), "apple" if machine.machine.kernel == macos.SYSTEM else "")
    like = platforms_like(system, vendor, next(iter(sorted(hardware.targets)), None))
    why = f"No platform has the product {product!r}" if product else "The firmware names no product"
    if len(like) == 1:
        return like[0], (f"{why}; the GPU is that of this platform.",)
    if like:
        return UNKNOWN_PLATFORM, (f"{why}; the GPU is that of {' and of '.join(like)}.",)
    return UNKNOWN_PLATFORM, (f"{why}: it is measured, and not predicted (docs/new-platform.md).",)


def _disks(machine: Surveyed) -> Iterable[str]:
    """What deploy could wipe, as comments: a line that is in the file is a decision."""
    for disk in machine.machine.disks:
        if disk.ids:
            used = f", mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
            yield f'disk = "{shown(disk)}"  # {disk.words}{used}'


def _sentences(left: Iterable[LeftOut], machines: Sequence[Surveyed]) -> Iterable[str]:
    """A line for each reason and interface: what is the same on many machines has one line."""
    grouped: dict[tuple[str, str], list[LeftOut]] = defaultdict(list)
    for one in left:
        grouped[one.interface, one.reason].append(one)
    for (interface, reason), ones in grouped.items():
        nodes = list(dict.fromkeys(one.node for one in ones))
        what = list(dict.fromkeys(one.what for one in ones))
        whose = "every node" if len(nodes) == len(machines) > 1 else some(nodes)
        yield f"{interface} of {whose} ({some(what)}): {reason}."
