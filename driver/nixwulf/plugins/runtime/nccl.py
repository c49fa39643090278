"""NCCL, RCCL and Gloo on one fabric: their environment, and what their logs say they crossed.

lib/nccl.nix makes the environment of NixOS's services of the same data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from nixwulf.core.files import shipped_table
from nixwulf.inventory.cluster import joins_all
from nixwulf.nodes.ssh import Connection, Unreachable, run_all
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.run import Run

OVER_CABLES = {"rdma": OverCables(pairs=False, control=True)}
"""Its sockets know no subnets: of each peer they take any address."""
# What makes it log while it is measured.
LOGGING = ("NCCL_DEBUG", "NCCL_DEBUG_FILE")
_CHANNEL = re.compile(r"\bvia NET/(?P<network>\w+)")
# $1 is the beginning of the names of the files.
_MOVE = 'cat "$1".* 2>/dev/null; rm -f "$1".*'
_WARNING = re.compile(r"\bNCCL WARN (?P<text>.+)")


def environment(run: Run, node: Connection) -> dict[str, str]:
    """What every process on a node has to have: a variable that one lacks is a silent fallback.

    Empty on one node. With rdma the node's ends name RDMA devices.
    """
    if run.fabric is None:
        return {}
    ends, parts = run.ends(node), shipped_table("nccl")
    variables = parts["always"] | parts[run.case.transport or ""]
    # In one order, whichever node is at the other end: Ray gives the head's to all.
    devices = sorted({name for end in ends for name in end.rdma_devices})
    indexes = {end.gid_index for end in ends}
    if run.case.transport == "rdma":
        nodes = [one.node for one in run.nodes]
        chosen = {
            "gid": len(indexes) == 1 and None not in indexes,
            run.fabric.kind: True,
            "several": len(devices) > 1,
            "cables": run.fabric.link_prefix is not None,
            "ring": run.on_cables and not joins_all(run.fabric.name, nodes),
        }
        for part in (name for name, holds in chosen.items() if holds):
            variables |= parts.get(part, {})
    places = {
        "interface": run.meeting_end(node).interface,
        "rdma_device": ",".join(devices),
        "gid_index": next(iter(indexes)),
        "link_prefix": run.fabric.link_prefix,
    }
    return {name: value.format_map(places) for name, value in variables.items()}


def log_environment(run: Run) -> dict[str, str]:
    """What makes NCCL log to a file of each process on its node, to be collected.

    In a program's stdout its lines cut the program's own in two, and the last 4096 bytes stay in
    the process: there NCCL 2.28 flushes nothing, and a file is written line by line.
    """
    return {"NCCL_DEBUG_FILE": f"{_log_file(run)}.%p"}


def collect_logs(run: Run, label: str) -> None:
    """Move what NCCL logged on each node into the run's raw folder, below nccl/ and its name."""
    answers = run_all(run.nodes, ["sh", "-c", _MOVE, "sh", _log_file(run)])
    for node, answer in zip(run.nodes, answers, strict=True):
        # The log of a node that is lost is lost with it; the run reports that by itself.
        text = "" if isinstance(answer, Unreachable) else answer.stdout
        folder = run.raw / "nccl" / node.node.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{label}.log").write_text(text, encoding="utf-8")


def logs(run: Run) -> dict[str, str]:
    """All that was collected, by node."""
    folders = {node.node.name: run.raw / "nccl" / node.node.name for node in run.nodes}
    return {
        name: "".join(path.read_text("utf-8", "replace") for path in sorted(folder.glob("*.log")))
        for name, folder in folders.items()
    }


def networks(log: str) -> set[str]:
    """The networks of the channels between nodes in a log of NCCL_DEBUG=INFO: IB, Socket, ..."""
    return {match["network"] for match in _CHANNEL.finditer(log)}


def last_warning(log: str) -> str | None:
    """The last NCCL WARN of a log; on a run that failed most often its cause."""
    found = [match["text"].strip() for match in _WARNING.finditer(log)]
    return found[-1] if found else None


def wrong_network(transport: str, log: str) -> str | None:
    """What contradicts the transport that was asked for in a node's log, or None.

    A log without channels does not contradict tcp: Gloo, which has no other, writes none.
    """
    found = networks(log)
    if transport == "rdma" and found != {"IB"}:
        return f"NCCL crossed {_words(found)}, not NET/IB"
    if transport == "tcp" and found - {"Socket"}:
        return f"NCCL crossed {_words(found)}, not NET/Socket"
    return None


def transport_problem(transport: str | None, logs: Mapping[str, str]) -> str | None:
    """What logs, by node, have against the transport that was asked for, in a sentence, or None."""
    for node, log in logs.items():
        wrong = wrong_network(transport or "", log)
        if wrong:
            return f"On node {node!r} {wrong}."
    return None


def _log_file(run: Run) -> str:
    return str(PurePosixPath(run.scratch, "nccl"))


def _words(found: set[str]) -> str:
    return " and ".join(f"NET/{name}" for name in sorted(found)) or "no network that it names"
