"""The state of a node: whether it answers, which boot it is in, what the driver owns there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.nodes.ssh import Connection, each

_SCRIPT = Path(str(resources.files("nixwulf"))) / "ops" / "recover" / "node.sh"
_ANSWER_S = 20
_DAY_S, _HOUR_S = 86400, 3600


@dataclass(frozen=True)
class NodeState:
    """What a node answered: boot identifies its boot, uptime_s counts since then.

    error is None where it answered; owned are names of processes that the driver started there.
    """

    name: str
    boot: str = ""
    uptime_s: int | None = None
    owned: tuple[str, ...] = ()
    error: str | None = None

    def sentence(self) -> str:
        """One line for people."""
        if self.error is not None:
            return f"{self.name}: does not answer: {self.error}"
        since = "" if self.uptime_s is None else f" for {_duration(self.uptime_s)}"
        owned = f", runs {', '.join(self.owned)}" if self.owned else ""
        return f"{self.name}: up{since}{owned}"


def run_script(node: Connection, *arguments: str) -> str:
    """The output of node.sh over a connection of its own; raises NixwulfError."""
    return node.fresh().script(_SCRIPT.read_text("utf-8"), *arguments, timeout_s=_ANSWER_S)


def states(nodes: Iterable[Connection]) -> list[NodeState]:
    """The states of nodes, asked at the same time; every one ends within twenty seconds."""
    return each(state, nodes)


def state(node: Connection) -> NodeState:
    """The state of one node."""
    try:
        return parse(node.node.name, run_script(node, "state"))
    except NixwulfError as error:
        return NodeState(node.node.name, error=error.message)


def parse(name: str, output: str) -> NodeState:
    """A node's state from the lines of node.sh; those that are not known are left out."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    uptime = found.get("uptime", [""])[-1]
    return NodeState(
        name,
        boot=found.get("boot", [""])[-1],
        uptime_s=int(uptime) if uptime.isdecimal() else None,
        owned=tuple(found.get("owned", ())),
    )


def _duration(seconds: int) -> str:
    if seconds >= _DAY_S:
        return f"{seconds // _DAY_S} d {seconds % _DAY_S // _HOUR_S} h"
    if seconds >= _HOUR_S:
        return f"{seconds // _HOUR_S} h {seconds % _HOUR_S // 60} min"
    return f"{seconds} s"
