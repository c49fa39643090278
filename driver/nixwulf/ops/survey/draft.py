"""A cluster file from what machines say: first that, then who reaches whom, then its content.

What is uncertain in it is said, and where an existing file differs from what its machines report.
It is written as TOML with comments: `tomllib` reads back the document that it was made of.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from nixwulf.core.query import grouped
from nixwulf.core.text import as_typed, clean, plural, some
from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.inventory.fabrics import Attachment
from nixwulf.inventory.platforms import (
    flake_platforms,
    is_generic,
    platform_of,
    platforms_of,
    product_of,
)
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.deploy.refusals import shown
from nixwulf.ops.survey.fabrics import fabric_drafts
from nixwulf.ops.survey.machines import Surveyed
from nixwulf.ops.survey.wires import (
    LeftOut,
    Pair,
    Reach,
    Wire,
    candidates,
    groups,
    pairs_between,
    pairs_to_try,
    try_pairs,
    wires,
)

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class ClusterDraft:
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
) -> ClusterDraft:
    """Draft a cluster file: machines, and the wires between them, the fastest first, ssh's last."""
    drafts = fabric_drafts(wires, {machine.reached_at for machine in machines})
    notes: dict[Place, tuple[str, ...]] = {}
    for key, fabric in drafts.items():
        notes["fabrics", key] = fabric.headline
        notes |= {("fabrics", key, part): texts for part, texts in fabric.notes.items()}
    nodes = []
    for index, machine in enumerate(machines):
        platform, why = platform_of(machine.signs)
        node = {"name": machine.name, "platform": platform, "ssh": machine.node.ssh}
        places = {key: one.places.get(machine.name) for key, one in drafts.items()}
        on = {key: place for key, place in places.items() if place}
        nodes.append({**node, **({"fabrics": on} if on else {})})
        notes["nodes", index, "platform"] = why
        notes["nodes", index, "disk"] = tuple(_disks(machine))
    fabrics = {key: fabric.table for key, fabric in drafts.items()}
    document = {"name": name, "fabrics": fabrics, "nodes": nodes}
    return ClusterDraft(
        document, {k: v for k, v in notes.items() if v}, tuple(_sentences(left, machines))
    )


def _disks(machine: Surveyed) -> Iterable[str]:
    """List the disks that deploy could wipe, as comments: a line in the file is a decision."""
    for disk in machine.machine.disks:
        if disk.ids:
            used = f", mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
            yield f'disk = "{shown(disk)}"  # {disk.words}{used}'


def _sentences(left: Iterable[LeftOut], machines: Sequence[Surveyed]) -> Iterable[str]:
    """A line for each reason and interface: what is the same on many machines has one line."""
    alike = grouped(((one.interface, one.reason), one) for one in left)
    for (interface, reason), ones in alike.items():
        nodes = list(dict.fromkeys(one.node for one in ones))
        what = list(dict.fromkeys(one.what for one in ones))
        whose = "every node" if len(nodes) == len(machines) > 1 else some(nodes)
        yield f"{interface} of {whose} ({some(what)}): {reason}."


@dataclass(frozen=True)
class _Wire:
    """A network of a file, or one port (from 1; 0: the only one) of a mesh's cable: its ends."""

    fabric: Fabric
    ends: Mapping[str, Attachment]
    port: int = 0

    @property
    def name(self) -> str:
        port = f", port {self.port}" if self.port else ""
        cable = f" (the cable of {' and '.join(self.ends)}{port})"
        return f"fabrics.{self.fabric.name}{cable if self.fabric.link_prefix else ''}"

    @property
    def places(self) -> set[tuple[str, str, str]]:
        return {(node, end.interface, end.address) for node, end in self.ends.items()}


def _wires(cluster: Cluster) -> list[_Wire]:
    found = []
    for name, fabric in cluster.fabrics.items():
        nodes = cluster.nodes_on(name)
        if not fabric.link_prefix:
            found.append(_Wire(fabric, {node.name: node.fabrics[name] for node in nodes}))
            continue
        for one, other in combinations(nodes, 2):
            ours, theirs = one.ends(name, [other.name]), other.ends(name, [one.name])
            for number, (end, peer) in enumerate(zip(ours, theirs, strict=True), start=1):
                port = number if len(ours) > 1 else 0
                found.append(_Wire(fabric, {one.name: end, other.name: peer}, port))
    return found


def differences(cluster: Cluster, machines: Sequence[Surveyed], real: Cluster) -> list[str]:
    """A sentence for each value of a file that the machines contradict; empty when all agree.

    Interfaces, addresses and MTUs of the interfaces are the gates', which say how to mend them.
    """
    sentences = list(_of_machines(cluster, machines, real))
    there = _wires(real)
    for wire in _wires(cluster):
        best = max(there, key=lambda one: len(one.places & wire.places), default=None)
        apart = wire.places - best.places if best else wire.places
        if len(wire.ends) > 1 and apart:
            who = ", ".join(sorted({node for node, _, _ in apart}))
            sentences.append(
                f"{wire.name}: {who} and the other nodes do not reach each other on it; "
                "'nixwulf cluster new' with these nodes writes why."
            )
        elif len(wire.ends) > 1 and best:
            sentences += _of_wire(wire, best)
    return sentences


def additions(cluster: Cluster, real: Cluster) -> list[str]:
    """A sentence for each wire that a file does not have; it need not."""
    known = {(node.name, end.interface) for node in cluster.nodes for end in node.all_ends}
    sentences = []
    for wire in _wires(real):
        ends = [(node, end.interface) for node, end in wire.ends.items()]
        if not known & set(ends):
            nodes = ", ".join(f"{node} ({interface})" for node, interface in ends)
            sentences.append(f"Not in the file, and need not be: a wire of {nodes}.")
    return sentences


def _of_machines(cluster: Cluster, machines: Sequence[Surveyed], real: Cluster) -> Iterable[str]:
    for node, machine, found in zip(cluster.nodes, machines, real.nodes, strict=True):
        # By its chip alone a machine is what the file says, if that is more than nothing.
        sure = bool(platforms_of(product_of(machine.signs))) or is_generic(node.platform)
        managed = "deploy" in cluster.document and found.platform not in flake_platforms()
        other = found.platform != node.platform and not is_generic(found.platform)
        if other and sure and not managed:
            yield (
                f"Node {node.name!r} is a {machine.signs.called!r}, of the platform "
                f"{found.platform!r}, and the file has {node.platform!r}."
            )
        if node.disk is not None and machine.machine.disks and not machine.machine.disk(node.disk):
            yield (
                f"Node {node.name!r} has no disk {node.disk!r}; see "
                f"{as_typed('preflight', '--only', 'facts', '--cluster', cluster.source)}."
            )


def _of_wire(wire: _Wire, real: _Wire) -> Iterable[str]:
    fabric, found = wire.fabric, real.fabric
    if fabric.kind != found.kind:
        yield f"{wire.name}: its kind is {fabric.kind!r} in the file, and {found.kind!r} by itself."
    if found.speed_gbps < fabric.speed_gbps:
        yield (
            f"{wire.name}: its speed is {fabric.speed_gbps:g} Gbit/s in the file, and "
            f"{found.speed_gbps:g} by what the machines report; see the cable and the ports."
        )
    if found.mtu < fabric.mtu:
        yield f"{wire.name}: its mtu is {fabric.mtu}, and at most {found.mtu} bytes pass."
    for node, end in wire.ends.items():
        for key in ("rdma_device", "gid_index"):
            ours, theirs = getattr(end, key), getattr(real.ends[node], key)
            if None not in {ours, theirs} and ours != theirs:
                yield f"{wire.name}: {key} of {node} is {ours!r} in the file, and {theirs!r} there."


def inquire(
    name: str,
    machines: Sequence[Surveyed],
    connections: Mapping[str, Connection],
    on_step: Callable[[str], None],
) -> ClusterDraft:
    """Find the wires between machines that have answered, and draft their cluster file."""

    def tried(pairs: Sequence[Pair]) -> Reach:
        if not pairs:
            return Reach()
        on_step(f"Trying {plural(len(pairs), 'pair')} of interfaces, in both directions.")
        return try_pairs(pairs, connections)

    endpoints, left = candidates(machines)
    reach = tried(pairs_to_try(endpoints))
    reach = reach.joined(tried(pairs_between(groups(endpoints, reach), reach)))
    found, apart = wires(machines, endpoints, reach)
    return draft(name, machines, found, [*left, *apart])


def renamed(machines: Sequence[Surveyed], names: Sequence[str]) -> list[Surveyed]:
    """The same machines under other names."""
    return [
        replace(machine, node=replace(machine.node, name=name))
        for machine, name in zip(machines, names, strict=True)
    ]


_WIDTH = 118
_HEAD = (
    "What the machines reported to 'nixwulf cluster new'. Prices, meters and [deploy] are yours to "
    "add: docs/reference/cluster-file.md."
)


def render(draft: ClusterDraft) -> str:
    """The text of a cluster file, with a comment above what it is of."""
    document = draft.document
    lines = [*_comment([_HEAD]), f"name = {_value(document['name'])}", ""]
    if not document["fabrics"]:
        lines += _comment(["No two of these nodes reach each other on a wire: below is why."])
        lines += ["[fabrics]", ""]
    for name, fabric in document["fabrics"].items():
        lines += _comment(draft.notes.get(("fabrics", name), ()))
        lines += [f"[fabrics.{_key(name)}]", *_keys(fabric, ("fabrics", name), draft.notes), ""]
    for index, node in enumerate(document["nodes"]):
        place: Place = ("nodes", index)
        own = {key: value for key, value in node.items() if key != "fabrics"}
        lines += ["[[nodes]]", *_keys(own, place, draft.notes)]
        lines += _comment(draft.notes.get((*place, "disk"), ()), whole=True)
        for key, end in node.get("fabrics", {}).items():
            lines += _ends(f"fabrics.{_key(key)}", end)
        lines.append("")
    if draft.left_out:
        lines += [*_comment(["Left out, and why:"]), *_comment(draft.left_out)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _keys(
    table: Mapping[str, object], place: Place, notes: Mapping[Place, tuple[str, ...]]
) -> Iterable[str]:
    for key, value in table.items():
        yield from _comment(notes.get((*place, key), ()))
        yield f"{_key(key)} = {_value(value)}"


def _comment(texts: Iterable[str], *, whole: bool = False) -> list[str]:
    """Comments of texts, each on lines of its own; whole: a line is not broken, however long."""
    lines = []
    for text in texts:
        plain = " ".join(clean(text).split()) if not whole else clean(text).replace("\n", " ")
        parts = [plain] if whole else textwrap.wrap(plain, _WIDTH, break_on_hyphens=False)
        lines += [f"# {part}" for part in parts]
    return lines


def _ends(path: str, place: Mapping[str, object]) -> list[str]:
    """A node's place on a network, or its end of each cable: a port, or a list of them."""
    if not isinstance(links := place.get("links"), dict):
        return [f"{path} = {_inline(place)}"]
    lines = []
    for node, end in links.items():
        to = f"{path}.links.{_key(node)}"
        if isinstance(end, list):
            lines += [f"{to} = [", *(f"  {_inline(port)}," for port in end), "]"]
        else:
            lines.append(f"{to} = {_inline(end)}")
    return lines


def _inline(table: Mapping[str, object]) -> str:
    return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in table.items())} }}"


def _key(name: str) -> str:
    bare = name and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    return name if bare else _value(name)


def _value(value: object) -> str:
    """A text, a number or a list of them: JSON's forms are TOML's but for one character."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
