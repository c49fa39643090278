"""nginx in front of replicas: one URL that leads to the server with the fewest requests.

A request with the header X-Session-Id goes to the same server as the last one of that session, so
that it finds its prompt in the cache there. One that a server does not take goes to the next.
"""

from __future__ import annotations

import shlex

from nixwulf.core.errors import GateError, NixwulfError
from nixwulf.nodes.ssh import Connection
from nixwulf.sweep.serve import units
from nixwulf.sweep.serve.service import PROXY, Service

FILE = "nginx.conf"
SESSION = "X-Session-Id"
# A request is kept in memory until a server has it, so that another one can still be asked.
_MOST_BYTES = "16m"
# An answer may take as long as its prompt, and a server that starts again is soon tried again.
_ANSWER_S, _RETRY_S = 3600, 2
_FIND = 'PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin; command -v nginx; echo "$HOME"'


def config(service: Service, folder: str) -> str:
    """The configuration for a service whose files on the head are in a folder."""
    fails = f"max_fails=1 fail_timeout={_RETRY_S}s"
    servers = "\n".join(f"    server {one.host}:{one.port} {fails};" for one in service.groups)
    temporary = "\n".join(
        f"  {kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""\
# Of the service {service.name}, written by nixwulf.
daemon off;
pid {folder}/nginx-master;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  server_tokens off;
{temporary}
  client_max_body_size {_MOST_BYTES};
  client_body_buffer_size {_MOST_BYTES};
  upstream least {{
    least_conn;
{servers}
  }}
  upstream sticky {{
    hash $http_{SESSION.lower().replace("-", "_")} consistent;
{servers}
  }}
  map $http_{SESSION.lower().replace("-", "_")} $servers {{ "" least; default sticky; }}
  server {{
    listen 127.0.0.1:{service.port};
    location / {{
      proxy_pass http://$servers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_connect_timeout 2s;
      proxy_read_timeout {_ANSWER_S}s;
      proxy_next_upstream error http_502 http_503 non_idempotent;
    }}
  }}
}}
"""


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
