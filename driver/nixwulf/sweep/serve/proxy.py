"""nginx in front of replicas: one URL that leads to the server with the fewest requests.

A request with the header X-Session-Id goes to the same server as the last one of that session, so
that it finds its prompt in the cache there. One that a server does not take goes to the next.
"""

from __future__ import annotations

import shlex
from string import Template

from nixwulf.core.errors import GateError, NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.nodes.ssh import Connection
from nixwulf.sweep.serve import units
from nixwulf.sweep.serve.service import PROXY, Service

FILE = "nginx.conf"
# A request is kept in memory until a server has it, so that another one can still be asked.
_MOST_BYTES = "16m"
# An answer may take as long as its prompt, and a server that starts again is soon tried again.
_ANSWER_S, _RETRY_S = 3600, 2
_FIND = 'PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin; command -v nginx; echo "$HOME"'


class _Configuration(Template):
    """A text of nginx, which has variables of its own with '$'."""

    delimiter = "@"


def config(service: Service, folder: str) -> str:
    """The configuration for a service whose files on the head are in a folder."""
    fails = f"max_fails=1 fail_timeout={_RETRY_S}s"
    servers = "\n".join(f"    server {one.host}:{one.port} {fails};" for one in service.groups)
    return _Configuration(shipped_text("sweep/serve/nginx.conf")).substitute(
        name=service.name,
        port=service.port,
        folder=folder,
        servers=servers,
        most_bytes=_MOST_BYTES,
        answer_s=_ANSWER_S,
    )


def write(head: Connection, service: Service) -> None:
    """Write configuration and unit on the head, once nginx itself finds nothing wrong with them.

    Raises:
        GateError: The head lacks nginx.
        NixwulfError: nginx refuses the configuration.
    """
    *found, home = head.script(_FIND).splitlines() or [""]
    if not found:
        raise GateError(
            f"Node {head.node.name!r} lacks 'nginx', which gives several servers one URL; install "
            "it there ('apt-get install nginx-light')."
        )
    folder = f"{home}/.local/state/nixwulf/serve/{service.name}"
    file = f"{folder}/{FILE}"
    units.save(head, service.name, FILE, config(service, folder))
    argv = [found[0], "-p", folder, "-c", file, "-e", "stderr"]
    tested = head.run([*argv, "-t"])
    if tested.returncode != 0:
        words = " ".join(tested.stderr.split())
        raise NixwulfError(
            f"nginx on node {head.node.name!r} refuses its configuration: {words}; see "
            f"{shlex.quote(file)} there."
        )
    units.write(head, service.name, PROXY, argv, {})
