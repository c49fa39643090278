"""Ray under vLLM: a daemon on every node, which vLLM's server asks for its workers."""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Mapping

from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.runtime import nccl
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure, failure_of

PORT = TCP["ray"]
_POLL_S = 1.0
_TOKEN = ("ray", "token")
SECRET = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
WHOLE_LOGS = "RAY_DEDUP_LOGS"
_ENVIRONMENT = {
    # Where GPU and CPU share memory, Ray takes a loaded model for a leak and kills workers
    # (https://github.com/amd/playbooks/issues/771).
    "RAY_memory_monitor_refresh_ms": "0"
}
_NODE = re.compile(r"^ *1 node_[0-9a-f]+", re.MULTILINE)
_FROM = re.compile(r"\([^()]*\bip=([\d.]+)\)")
# Prints the process numbers of Ray's daemons.
_RAYLETS = """
for file in /proc/[0-9]*/comm; do
  read -r name 2>/dev/null <"$file" || continue
  [ "$name" != raylet ] || echo "$file"
done
"""


def start(run: Run, environments: Mapping[str, Mapping[str, str]]) -> None:
    """Start a daemon on every node, by its environment, and wait for all; raises RunFailure."""
    _require_one_environment(run)
    for node in run.nodes:
        _require_no_ray(run, node)
    head = _daemon(run, run.head, environments, [f"--port={PORT}", "--include-dashboard=false"])
    _wait_for_nodes(run, head, 1)
    for node in run.workers:
        _daemon(run, node, environments, [f"--address={_address(run)}"])
    _wait_for_nodes(run, head, run.case.nodes)


def environment(run: Run) -> dict[str, str]:
    """What Ray's daemons and all that talk to them need.

    Ray listens on every address of a node and runs the code of whoever reaches it, so that each run
    has a token of its own; versions that know none ignore it.
    """
    (secret,) = run.engine_found.setdefault(_TOKEN, (secrets.token_hex(32),))
    return {**_ENVIRONMENT, "RAY_AUTH_MODE": "token", SECRET: secret}


def client_environment(run: Run) -> dict[str, str]:
    """What vLLM's server needs beside what all have; no line of a worker's log may be folded."""
    return {"RAY_ADDRESS": _address(run), WHOLE_LOGS: "0"}


def lines_of(log: str, address: str | None) -> str:
    """The lines that Ray brought from an address; of none: those of the node itself."""
    found = ((line, _FROM.search(line)) for line in log.splitlines())
    return "\n".join(line for line, origin in found if (origin and origin[1]) == address)


def _address(run: Run) -> str:
    return f"{run.meeting_address(run.head)}:{PORT}"


def _daemon(
    run: Run, node: Connection, environments: Mapping[str, Mapping[str, str]], role: list[str]
) -> OwnedProcess:
    ray = run.program("ray", node)
    argv = [ray, "start", *(["--head"] if node is run.head else []), *role]
    argv += [f"--node-ip-address={run.meeting_address(node)}", "--num-gpus=1"]
    argv += ["--disable-usage-stats", "--block"]
    after = [ray, "stop", "--force"]
    return run.start(node, "ray", argv, environments[node.node.name], background=True, after=after)


def _require_no_ray(run: Run, node: Connection) -> None:
    """Teardown stops every Ray of a node, so none of somebody else's may be there."""
    name = node.node.name
    if "ray" not in run.facts[name].programs:
        raise RunFailure(
            f"Node {name!r} lacks 'ray' on PATH; install it, or use executor: [mp].", "skipped"
        )
    if node.script(_RAYLETS):
        raise RunFailure(
            f"Ray already runs on node {name!r}; run 'ray stop --force' there.", "skipped"
        )


def _require_one_environment(run: Run) -> None:
    """RayExecutorV2 gives all workers the head's environment, NCCL_* included, but for seven names.

    It is the default of vLLM 0.32 and all that 0.33 has (vllm/v1/executor/ray_utils.py there); with
    0.16 a worker has the environment of its node's daemon.
    """
    if len({tuple(nccl.environment(run, node).items()) for node in run.nodes}) > 1:
        raise RunFailure(
            f"vLLM gives the head's NCCL variables to all of Ray's workers, and the nodes' places "
            f"on {run.case.fabric!r} differ; name interface, rdma_device and gid_index alike, or "
            "use executor: [mp].",
            "unsupported",
        )


def _wait_for_nodes(run: Run, head: OwnedProcess, count: int) -> None:
    """Until Ray knows so many nodes; raises RunFailure when a daemon ends or a clock runs out."""
    clocks = Clocks(run, head)
    # Over standard input: all users of both machines can read a command line.
    variables = "".join(
        f"export {key}={shlex.quote(value)}\n" for key, value in environment(run).items()
    )
    script = f'{variables}exec "$@" </dev/null\n'
    status = [run.program("ray"), "status", f"--address={_address(run)}"]
    while True:
        answer = run.head.run(["sh", "-s", "--", *status], stdin=script)
        if len(_NODE.findall(answer.stdout)) >= count:
            return
        for daemon in run.owned:
            if daemon.background and not daemon.running:
                raise failure_of(daemon, f"Ray on {daemon.node!r}")
        clocks.check()
        time.sleep(_POLL_S)
