"""How to serve a measured strategy, as the command lines of the user's machine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from nixwulf.core.files import cache_dir
from nixwulf.inventory.cluster import Cluster
from nixwulf.nodes.lab.ssh_files import HOME
from nixwulf.nodes.lab.state import state_of
from nixwulf.plugins import engines
from nixwulf.plugins.engines.serving import Serving, Started, Written, measured_run
from nixwulf.results.record import Record

_LAB = "serve"


@dataclass(frozen=True)
class ServeCommands:
    """Lines in the order of typing; first and last end by themselves, servers run until Ctrl-C."""

    first: tuple[str, ...]
    servers: tuple[str, ...]
    then: tuple[str, ...]
    last: tuple[str, ...]


def serving(record: Record, cluster: Cluster, slots: int) -> Serving:
    """How to serve a measured strategy.

    Args:
        record: its run.
        cluster: where it ran.
        slots: requests that are served at once.
    """
    engine = engines.find(record["case"]["engine"])
    return engine.serve_commands(measured_run(engine, record, cluster, slots))


def serve_commands(served: Serving, cluster: Cluster, named: str) -> ServeCommands:
    """The lines to type, over the user's ssh; the head's port comes with the server that answers.

    A lab is brought up first, for that of the measurements has ended, and its nodes' homes with it.

    Args:
        served: how to serve a strategy.
        cluster: where.
        named: the cluster as a command line names it.
    """
    targets = {node.name: node.ssh for node in cluster.nodes}
    # Connections that the lab's ssh shares outlive the line, and the port that comes here with it.
    config = ("-F", str(state_of(_LAB).ssh_config), "-S", "none") if cluster.is_lab else ()

    def ssh(node: str, line: str, *more: str) -> str:
        return shlex.join(["ssh", *config, *more, targets[node], line])

    def put(one: Written) -> str:
        return f"echo {shlex.quote(one.text)} | {ssh(one.node, f'cat > {one.path}')}"

    def start(one: Started) -> str:
        line = one.line
        if cluster.is_lab:
            line = line.replace(f"{HOME}/.cache/nixwulf/", f"{cache_dir()}/")
        return ssh(one.node, line, "-t", *(here if one is answers else ()))

    here = ("-L", f"{served.port}:127.0.0.1:{served.port}")
    answers = [one for one in served.servers if one.node == served.head][-1]
    up = shlex.join(["nixwulf", "lab", "up", "--name", _LAB, "--cluster", named])
    return ServeCommands(
        first=(
            *((up,) if cluster.is_lab else ()),
            *map(put, served.before),
        ),
        servers=tuple(map(start, served.servers)),
        then=served.then,
        last=(f"nixwulf lab down --name {_LAB}",) if cluster.is_lab else (),
    )
