"""What a session has learned of the power of its nodes, so that no run has to ask again."""

from __future__ import annotations

from dataclasses import dataclass, field

from nixwulf.nodes.power.samples import Samples


@dataclass
class PowerSession:
    """Shared by the runs of a session.

    idle: watts by node (or by meter) and source, before anything was launched; machines: what
    distinguishes two machines, by node; silent: output of nodes that have nothing to sample.
    """

    idle: dict[tuple[str, str], float] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    silent: dict[str, Samples] = field(default_factory=dict)
