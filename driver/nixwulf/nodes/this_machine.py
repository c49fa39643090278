"""The driver's own machine, as a place of owned processes: what starts there needs no ssh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.ssh import Connection


@dataclass(frozen=True)
class ThisMachine(Connection):
    """Commands run as they are."""

    def argv(self, command: Sequence[str] = ()) -> list[str]:
        """The command itself."""
        return list(command)


THIS_MACHINE = ThisMachine(Node("driver", "", ""), ())
"""In records its processes are of the node 'driver'."""
