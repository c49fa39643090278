"""nginx in front of servers: one URL that leads to the one with the fewest requests, or asks a key.

A request with the header X-Session-Id goes to the same server as the last one of that session, so
that it finds its prompt in the cache there. One that a server does not take goes to the next.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template

from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.files import read_text, shipped_text
from nixwulf.nodes.ssh import Connection
from nixwulf.sweep.serve import units
from nixwulf.sweep.serve.service import PROXY, Service

FILE, KEYS = "nginx.conf", "keys.conf"
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]{16,128}")
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
        address=service.address,
        port=service.port,
        folder=folder,
        servers=servers,
        most_bytes=_MOST_BYTES,
        answer_s=_ANSWER_S,
    )


def read_key(path: Path) -> str:
    """The key of a file; raises InputError, which never quotes it, for what is none."""
    key = read_text(path).strip()
    if not _KEY.fullmatch(key):
        raise InputError(
            f"{path} holds no key of 16 to 128 letters, digits and ._~+/=- on one line; make one "
            f"by 'openssl rand -hex 24 > {path}'."
        )
    return key


def known(key: str) -> str:
    """What nginx's map says of headers: who is let in, without a key everybody."""
    return f'default 0;\n"Bearer {key}" 1;\n' if key else "default 1;\n"


def write(head: Connection, service: Service, key: str) -> None:
    """Write configuration and unit on the head, once nginx itself finds nothing wrong with them.

    key: empty where everybody who reaches the URL may use it. It is in a file of its own, which
    only its user may read.

    Raises:
        GateError: The head lacks nginx.
        NixwulfError: nginx refuses the configuration.
    """
    *found, home = head.script(_FIND).splitlines() or [""]
    if not found:
        raise GateError(
            f"Node {head.node.name!r} lacks 'nginx', which gives several servers one URL, or asks "
            "for the key; install it there ('apt-get install nginx-light')."
        )
    folder = f"{home}/.local/state/nixwulf/serve/{service.name}"
    file = f"{folder}/{FILE}"
    units.save(head, service.name, KEYS, known(key))
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
