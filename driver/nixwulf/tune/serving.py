"""How to serve a measured strategy, as the command lines of the user's machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nixwulf.core.files import cache_dir
from nixwulf.inventory.cluster import Cluster
from nixwulf.nodes.lab.ssh_files import HOME
from nixwulf.nodes.lab.state import state_of
from nixwulf.plugins import engines
from nixwulf.plugins.engines.serving import Serving, Started, Written, measured_run
from nixwulf.plugins.runtime.replicas import servers_of
from nixwulf.results.record import Record

_LAB = "serve"
_BEHIND = (
    "The last line, nginx, puts them behind one URL; it was not measured: the measured requests "
    "went to the nodes over ssh, each to that with the fewest in flight."
)
_PROXY = "nixwulf-nginx.conf"
_PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class ServeCommands:
    """Lines in the order of typing; first and last end by themselves, servers run until Ctrl-C."""

    first: tuple[str, ...]
    servers: tuple[str, ...]
    then: tuple[str, ...]
    last: tuple[str, ...]


def serving(record: Record, cluster: Cluster, slots: int) -> Serving:
    """How to serve a measured strategy."""
    engine = engines.find(record["case"]["engine"])
    run = measured_run(engine, record, cluster, slots)
    if servers_of(run.case) == 1:
        return engine.serve_commands(run)
    first, *others = map(engine.serve_commands, run.alone())
    return replace(first, replicas=tuple(others), notes=(*first.notes, _BEHIND))


def serve_commands(served: Serving, cluster: Cluster, named: str) -> ServeCommands:
    """The lines to type, over the user's ssh; the head's port comes with the server that answers.

    A lab is brought up first, for that of the measurements has ended, and its nodes' homes with it.
    """
    targets = {node.name: node.ssh for node in cluster.nodes}
    # Connections that the lab's ssh shares outlive the line, and the port that comes here with it.
    config = ("-F", str(state_of(_LAB).ssh_config), "-S", "none") if cluster.is_lab else ()

    def ssh(node: str, line: str, *more: str) -> str:
        return shlex.join(["ssh", *config, *more, targets[node], line])

    def put(one: Written) -> str:
        return f"echo {shlex.quote(one.text)} | {ssh(one.node, f'cat > {one.path}')}"

    def start(one: Started, here: tuple[str, ...]) -> str:
        line = one.line
        if cluster.is_lab:
            line = line.replace(f"{HOME}/.cache/nixwulf/", f"{cache_dir()}/")
        return ssh(one.node, line, "-t", *here)

    def started(one: Serving, port: int) -> tuple[str, ...]:
        """The servers of a model, whose answers come to a port of this machine."""
        answers = [server for server in one.servers if server.node == one.head][-1]
        here = ("-L", f"{port}:127.0.0.1:{one.port}")
        return tuple(start(server, here if server is answers else ()) for server in one.servers)

    several = [served, *served.replicas]
    ports = range(served.port, served.port + len(several))
    then, write, proxy = served.then, "", ""
    if served.replicas:
        write, proxy = behind_one_url(ports, ports.stop)
        *each, ask = then  # such as the placing of a model by exo, and a request
        asked = [(line, port) for port in ports for line in each] + [(ask, ports.stop)]
        own = f"127.0.0.1:{served.port}/"
        then = tuple(line.replace(own, f"127.0.0.1:{port}/") for line, port in asked)
    up = shlex.join(["nixwulf", "lab", "up", "--name", _LAB, "--cluster", named])
    return ServeCommands(
        first=(
            *((up,) if cluster.is_lab else ()),
            *(put(file) for one in several for file in one.before),
            *([write] if write else []),
        ),
        servers=(
            *(
                line
                for one, port in zip(several, ports, strict=True)
                for line in started(one, port)
            ),
            *([proxy] if proxy else []),
        ),
        then=then,
        last=(f"nixwulf lab down --name {_LAB}",) if cluster.is_lab else (),
    )


def behind_one_url(ports: Sequence[int], front: int) -> tuple[str, str]:
    """What puts servers behind one port of this machine: its file, and nginx, not as a daemon.

    least_conn (https://nginx.org/en/docs/http/ngx_http_upstream_module.html) is what was measured;
    without proxy_buffering a token comes when it is made.

    Args:
        ports: of the servers, on this machine's loopback.
    """
    servers = " ".join(f"server 127.0.0.1:{port};" for port in ports)
    folders = " ".join(f"{name}_temp_path tmp;" for name in _PATHS)
    text = (
        f"daemon off; pid nginx.pid; events {{}} http {{ access_log off; {folders} "
        f"upstream replicas {{ least_conn; {servers} }} server {{ listen 127.0.0.1:{front}; "
        "location / { proxy_pass http://replicas; proxy_buffering off; proxy_read_timeout 1h; } } }"
    )
    return (
        f"echo {shlex.quote(text)} > {_PROXY}",
        f'nginx -p "$PWD" -e stderr -c "$PWD/{_PROXY}"',
    )
