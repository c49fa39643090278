"""Kinds of fabrics: what the driver does otherwise for one than for another, read from data."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_TABLE = Path(__file__).parents[1] / "data" / "fabric_kinds.toml"


@dataclass(frozen=True)
class FabricKind:
    """A kind of fabric, as data/fabric_kinds.toml describes it.

    usual_gbps: Gbit/s, of a link that shows no speed. gid: which GID of an RDMA port is used, that
    of its 'address' or the 'first'; empty where no program is given one. module: the kernel's,
    which a link of this kind can do with loaded anew. paired: the hosts of a link have to go down
    together. macos: both ends are Macs.
    """

    name: str
    medium: str
    usual_gbps: float
    rdma: bool = False
    gid: Literal["", "address", "first"] = ""
    macos: bool = False
    paired: bool = False
    module: str | None = None

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that can cross it."""
        return ("tcp", "rdma") if self.rdma else ("tcp",)

    @property
    def by_cable(self) -> bool:
        """Whether a machine has the interface only while a cable is in it."""
        return self.medium == "thunderbolt"

    @property
    def shows_training(self) -> bool:
        """Whether the kernel shows at what speed its cables were trained: Linux, of USB4."""
        return self.by_cable and not self.macos


KINDS: dict[str, FabricKind] = {
    name: FabricKind(name, **facts)
    for name, facts in tomllib.loads(_TABLE.read_text("utf-8")).items()
}
RDMA_KINDS = frozenset(name for name, kind in KINDS.items() if kind.rdma)
TRAINED_KINDS = frozenset(name for name, kind in KINDS.items() if kind.shows_training)
# Of Macs, each cabled to each: a sum goes from all to all at once.
MAC_RDMA_KINDS = frozenset(name for name, kind in KINDS.items() if kind.rdma and kind.macos)


def kind_of(medium: str, *, rdma: bool, macos: bool) -> str:
    """The name of the kind that a wire is of.

    Args:
        rdma: whether its ends have RDMA devices.
        macos: whether they are Macs'; of a wire without RDMA it makes no difference.
    """
    crossed = (medium, rdma or medium == "infiniband")
    found = [kind for kind in KINDS.values() if (kind.medium, kind.rdma) == crossed]
    return max(found, key=lambda kind: kind.macos == macos).name
