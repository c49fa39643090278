"""Open MPI programs over a fabric: mpirun on the head, its daemons started by the driver.

mpirun reaches other nodes by a remote shell. Here that shell is `echo`: it prints the node and the
command of the daemon, and the driver starts the daemon there as it starts everything else. So no
node needs a key to another, every process is owned, and ssh's network stays the driver's alone:
MPI, and its daemons among themselves, use the case's fabric.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nixwulf.core.secrets import cut
from nixwulf.inventory.cluster import LAB_PLATFORM
from nixwulf.inventory.fabrics import FREE
from nixwulf.nodes.process import OwnedProcess, cpu_times
from nixwulf.nodes.ssh import Connection, Unreachable, run_all
from nixwulf.plugins.runtime.run import PROGRESS_CPU_S, Run, RunFailure, Sign

INSTALL = "install Open MPI, the same on all nodes"
_VERSION = re.compile(r"\(Open MPI\) (\d+)(\.\S+)")
# What mpirun has a remote shell run (plm_rsh_module.c, plm_ssh_module.c): a user's profile,
# variables of its installation, its daemon. No word is one that a shell acts upon.
_PROFILE = r"\( test ! -r \./\.profile \|\| \. \./\.profile;"
_VARIABLE = r""" *(?:[A-Z_]+=[^\s"'\\;|&<>()`]*|export [A-Z_]+) *;"""
_WORD = r"""(?:[^\s"'\\;|&<>()$`]|"[^"\\$`]*"|'[^']*')+"""
_PROGRAM = r"(?:/[\w/.+-]+/)?(?:orted|prted)"
_DAEMON = re.compile(rf" *(?:{_PROFILE})?(?:{_VARIABLE})* *{_PROGRAM}(?: +{_WORD})* *\)? *")
# The first with PRRTE, whose options have other names.
_PRRTE_MAJOR = 5
# comm has at most 15 characters (proc(5)).
_COMM = 15
_POLL_S = 0.02
# Root is who the lab's nodes and freshly imaged machines know; each version asks by its own name.
_AS_ROOT = {
    f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for prefix in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}


@dataclass(frozen=True)
class Job:
    """What runs: ranks_per_node copies of argv on each node, in a folder that every node has.

    environment: by node, for its ranks. yields: whether ranks share cores, so that one that waits
    has to let the others go on (a round trip took 158 us with it and 4009 us without).
    """

    name: str
    argv: tuple[str, ...]
    ranks_per_node: int
    folder: str
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    yields: bool = False


def execute(run: Run, job: Job) -> OwnedProcess:
    """Run a job to its end under both clocks; raises RunFailure."""
    argv = arguments(run, job, version(run))
    process = run.start(run.head, job.name, argv, {**_AS_ROOT, **_environment(run.head, job)})
    daemons = _start_daemons(run, job, process)
    run.watch(process, signs_of_life(run, job, [process, *daemons]))
    return process


def arguments(run: Run, job: Job, major: int) -> list[str]:
    """The command line of mpirun.

    run: its fabric is the only network that MPI uses. major: of Open MPI; from 5 options differ.
    """
    prrte = major >= _PRRTE_MAJOR
    hosts = ",".join(f"{run.meeting_address(node)}:{job.ranks_per_node}" for node in run.nodes)
    argv = ["mpirun", "-np", str(job.ranks_per_node * len(run.nodes)), "--host", hosts]
    # Open MPI binds each of one or two ranks to a single core, and with it all of BLAS' threads.
    # Open MPI 5 counts the slots of the lab's nodes, which are one machine, as those of one node.
    argv += ["--map-by", "slot:oversubscribe" if prrte else "slot", "--bind-to", "none"]
    argv += ["--wdir", job.folder, "--mca", "pml", "ob1"]
    if run.meeting_subnet is not None:
        subnet = str(run.meeting_subnet)
        argv += ["--mca", "btl", "self,sm,tcp" if prrte else "self,vader,tcp"]
        argv += ["--mca", "btl_tcp_if_include", subnet]
        # From 1024 on by default, where the flake's firewall is closed and ranks wait for ever.
        first, last = FREE
        argv += ["--mca", "btl_tcp_port_min_v4", str(first)]
        argv += ["--mca", "btl_tcp_port_range_v4", str(last - first + 1)]
        if prrte:
            argv += ["--prtemca", "prte_if_include", subnet, "--prtemca", "plm_ssh_agent", "echo"]
            argv += ["--prtemca", "plm_ssh_no_tree_spawn", "1", "--leave-session-attached"]
        else:
            argv += ["--mca", "oob_tcp_if_include", subnet, "--mca", "plm_rsh_agent", "echo"]
            argv += ["--mca", "plm_rsh_no_tree_spawn", "1", "--leave-session-attached"]
    if job.yields:
        argv += ["--mca", "mpi_yield_when_idle", "1"]
    return [*argv, *job.argv]


def version(run: Run) -> int:
    """The major version of Open MPI, the same on all nodes; raises RunFailure skipped."""
    found: dict[str, str] = {}
    for node, answer in zip(run.nodes, run_all(run.nodes, ["mpirun", "--version"]), strict=True):
        if isinstance(answer, Unreachable):
            raise answer
        match = _VERSION.search(answer.stdout)
        if match is None:
            first = (answer.stdout or answer.stderr).strip().partition("\n")[0]
            raise RunFailure(
                f"'mpirun' on node {node.node.name!r} is not Open MPI's ({first!r}); put Open MPI "
                "first on PATH there.",
                "skipped",
            )
        found[node.node.name] = match[1] + match[2]
    name, one = next(iter(found.items()))
    for other, another in found.items():
        if another != one:
            raise RunFailure(
                f"Node {name!r} has Open MPI {one} and {other!r} has {another}; install the same "
                "on all nodes.",
                "skipped",
            )
    return int(one.partition(".")[0])


def shares_cores(run: Run, ranks_per_node: int) -> bool:
    """Whether more ranks than cores run on a machine: the lab's nodes are all one machine."""
    heads = run.facts[run.head.node.name]
    together = len(run.nodes) if run.head.node.platform == LAB_PLATFORM else 1
    return ranks_per_node * together > heads.cpus


def signs_of_life(
    run: Run, job: Job, launchers: Sequence[OwnedProcess]
) -> Callable[[], tuple[Sign, ...]]:
    """Traffic, and the CPU time of the rank that used least: one that stopped shows there.

    User time less kernel time counts: a rank that waits polls its sockets for ever.

    launchers: mpirun and its daemons, which have the ranks.

    Returns:
        What observes both.
    """
    program = job.argv[0].rpartition("/")[2][:_COMM]
    nodes = {node.node.name: node for node in run.nodes}

    def observe() -> tuple[Sign, ...]:
        ranks = [
            time_.user - time_.kernel
            for launcher in launchers
            for time_ in cpu_times(nodes[launcher.node], launcher)
            if time_.program == program
        ]
        all_there = len(ranks) == job.ranks_per_node * len(run.nodes)
        computed = min(ranks) if all_there else 0.0
        traffic = run.signs_of_life(launchers[0]) if run.fabric is not None else ()
        words = "the rank that used least got {:.2f} s more of user time than of kernel time"
        return Sign(computed, PROGRESS_CPU_S, words), *traffic

    return observe


def daemon_of(command: str, head: str) -> list[str]:
    """The command line that starts a daemon on a worker; raises RunFailure for any other command.

    command: what mpirun on the node `head` printed.
    """
    if not _DAEMON.fullmatch(command):
        raise RunFailure(
            f"mpirun on node {head!r} asks for {cut(command, 200)!r} on a worker, which is no "
            "daemon of Open MPI; see what 'mpirun' is there."
        )
    return ["sh", "-c", command]


def _environment(node: Connection, job: Job) -> Mapping[str, str]:
    return job.environment.get(node.node.name, {})


def _start_daemons(run: Run, job: Job, process: OwnedProcess) -> list[OwnedProcess]:
    """Start the daemon of each worker as soon as mpirun has printed its command."""
    waiting = {run.meeting_address(worker): worker for worker in run.workers}
    daemons: list[OwnedProcess] = []
    while waiting and process.running and time.monotonic() < run.deadline:
        for line in process.output.splitlines():
            address, _, command = line.partition(" ")
            if command and address in waiting:
                worker = waiting.pop(address)
                argv = daemon_of(command, run.head.node.name)
                daemons.append(
                    run.start(
                        worker,
                        f"{job.name}-daemon",
                        argv,
                        _environment(worker, job),
                        background=True,
                    )
                )
        time.sleep(_POLL_S)
    return daemons
