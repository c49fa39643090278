"""Systems that CI or another machine has built: what deploying takes in place of a flake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nixwulf.core.errors import InputError
from nixwulf.core.files import read_json
from nixwulf.core.schema import check
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.ops.deploy.flake import Layout, layout_of


@dataclass(frozen=True)
class PrebuiltNode:
    """A node's system, what formats its disk, and its installer for kexec where it has one."""

    system: str
    disko: str
    kexec: str | None
    layout: Layout


@dataclass(frozen=True)
class Prebuilt:
    """What 'nix build .#deployments.CLUSTER' made: store paths, all of them on this machine."""

    source: str
    nodes: Mapping[str, PrebuiltNode]


def load_prebuilt(path: Path, cluster: Cluster, nodes: Sequence[Node]) -> Prebuilt:
    """Read such a file for chosen nodes; raises InputError when they are not all in it."""
    document = read_json(path)
    check(document, "deployment", str(path))
    if document["cluster"] != cluster.name:
        raise InputError(
            f"{path}: it is of the cluster {document['cluster']!r} and {cluster.source} describes "
            f"{cluster.name!r}; build that by 'nix build .#deployments.{cluster.name}'."
        )
    found = {
        name: PrebuiltNode(
            system=values["system"],
            disko=values["disko"],
            kexec=values["kexec"],
            layout=layout_of(values["layout"]),
        )
        for name, values in document["nodes"].items()
    }
    for node in nodes:
        if node.name not in found:
            raise InputError(
                f"{path}: it has no node {node.name!r}; it has: {', '.join(found)}. Leave that "
                "node out with --node, or build it again."
            )
        own = found[node.name]
        for place in filter(None, (own.system, own.disko, own.kexec)):
            if not Path(place).exists():
                raise InputError(
                    f"{path}: {place!r} of node {node.name!r} is not on this machine; copy the "
                    f"file with all that it names by 'nix copy --from ... {path.resolve()}'."
                )
    return Prebuilt(str(path), found)
