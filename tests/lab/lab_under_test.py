"""A small lab for the tests, short ways to use it, and what a machine shows of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nixwulf.inventory.cluster import Cluster, Shape, parse_cluster, with_lab_nodes
from nixwulf.llm import gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes import lab
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines import find
from nixwulf.results.record import load, save
from nixwulf.sweep import session
from stand_in import put


def cluster_of(nodes: int, **shapes: Shape) -> Cluster:
    """A lab cluster with a fabric for each shape; the one named jumbo has the largest MTU."""
    fabrics: dict[str, Any] = {}
    for index, (name, shape) in enumerate(shapes.items()):
        fabrics[name] = {
            "kind": "ethernet",
            "speed_gbps": 10,
            "mtu": 65520 if name == "jumbo" else 1500,
            "subnet": f"10.90.{index}.0/24",
            "shape": vars(shape),
        }
    document = {"name": "test", "lab": {"nodes": nodes}, "fabrics": fabrics}
    return with_lab_nodes(parse_cluster(document, "test.toml"), nodes)


def as_machines(cluster: Cluster) -> str:
    """A cluster file of a lab's nodes as machines of one's own, on the fabric 'cable'."""
    text = (
        'name = "own"\n[fabrics.cable]\nkind = "ethernet"\nspeed_gbps = 10\nmtu = 1500\n'
        'subnet = "10.90.0.0/24"\n'
    )
    for node in cluster.nodes:
        end = node.fabrics["cable"]
        text += (
            f'[[nodes]]\nname = "{node.name}"\nplatform = "generic-x86_64"\nssh = "{node.name}"\n'
            f'fabrics.cable = {{ interface = "{end.interface}", address = "{end.address}" }}\n'
        )
    return text


def desk(running: Running, folder: Path) -> dict[str, str]:
    """The environment of a desk whose ssh, in a folder, reaches a lab's nodes as machines."""
    ssh = f'exec {shutil.which("ssh")} -F {running.lab.ssh_config} "$@"'
    wrapper = put(folder / "bin", "ssh", ssh)
    return {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}


@dataclass(frozen=True)
class Running:
    """A lab and short ways to use it."""

    lab: lab.Lab

    def ssh(self, node: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a node."""
        argv = ["ssh", "-F", str(self.lab.ssh_config), *options, node, command]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    def out(self, node: str, command: str) -> str:
        """Standard output of a command that must succeed."""
        done = self.ssh(node, command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def address(self, node: str, fabric: str) -> str:
        """A node's address on a fabric."""
        return {n.name: n for n in self.lab.cluster.nodes}[node].fabrics[fabric].address

    def rtt_us(self, fabric: str) -> float:
        """Least round trip from n1 to n2, which a busy machine lengthens least."""
        ping = f"ping -n -c 15 -i 0.02 {self.address('n2', fabric)}"
        lines = self.out("n1", ping).splitlines()
        return 1000 * min(
            float(line.split("time=")[1].split()[0]) for line in lines if "time=" in line
        )

    def gbps(self, fabric: str, megabytes: int) -> float:
        """What one TCP stream carries from n1 to n2."""
        address = self.address("n2", fabric)
        self.out("n2", f"iperf3 -s -1 -D -B {address}")
        deadline = time.monotonic() + 10
        while True:
            done = self.ssh("n1", f"iperf3 -J -c {address} -n {megabytes}M")
            document = json.loads(done.stdout)
            if "error" not in document:
                return float(document["end"]["sum_received"]["bits_per_second"]) / 1e9
            assert time.monotonic() < deadline, document["error"]


def processes() -> dict[int, str]:
    """Processes that run (a zombie holds nothing), with what tells a reused number apart."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(folder.name)] = fields[19]
    return found


def processes_of(running: lab.Lab) -> dict[int, str]:
    """The lab's processes: the supervisor's descendants, and all that name the state folder."""
    alive = processes()
    parents = {}
    members = {int(running.files.process_id.read_text())}
    for pid in alive:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            if str(running.state) in Path(f"/proc/{pid}/cmdline").read_text():
                members.add(pid)
        except OSError:
            continue
        parents[pid] = int(stat.rpartition(")")[2].split()[1])
    while True:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        if not more:
            return {pid: alive[pid] for pid in members if pid in alive}
        members |= more


def namespaces_of(pids: dict[int, str]) -> set[str]:
    """The namespaces that processes are in and this one is not."""
    kinds = ("mnt", "net", "pid", "uts", "ipc", "user")
    found = set()
    for pid in pids:
        for kind in kinds:
            try:
                found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
            except OSError:
                continue
    return found - {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}


@dataclass(frozen=True)
class Traces:
    """What a machine shows of a lab while it is up."""

    members: dict[int, str]
    namespaces: set[str]
    state: Path

    def left(self) -> list[str]:
        """What of it is still there."""
        alive = processes()
        names = [f"process {p}" for p, start in self.members.items() if alive.get(p) == start]
        names += sorted(namespaces_of(alive) & self.namespaces)
        if str(self.state) in Path("/proc/self/mountinfo").read_text():
            names.append("a mount")
        if self.state.exists():
            names.append(str(self.state))
        return names

    def left_after(self, seconds: float) -> list[str]:
        """What is still there when that long has been given to it."""
        deadline = time.monotonic() + seconds
        while (names := self.left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return names


def recorded(nodes, folder, left, plan, on_phase=lambda phase: None):
    """The record of a plan's first case, saved and valid; the script `left` may print nothing."""
    record = session.run_one(nodes, plan, folder, plan.cases[0], 0, on_phase)
    path = folder / "records" / f"{record['id']}.json"
    save(record, path)
    assert load(path) == record
    assert "".join(node.script(left) for node in nodes.nodes.values()) == ""
    return record


def recorded_each(nodes, folder, left, plan):
    """Every case of a plan with its record, each recorded as the only one."""
    return [
        (case, recorded(nodes, folder, left, replace(plan, cases=(case,)))) for case in plan.cases
    ]


class Silent:
    """An observer of a sweep that says nothing."""

    def step(self, words):
        pass

    def building(self, step, share):
        pass

    def sweep_starts(self, runs):
        pass

    def run_starts(self, case, repetition):
        pass

    def phase_starts(self, phase):
        pass

    def run_ends(self, record, seconds):
        pass


def model_of_server() -> str:
    """The path of random weights."""
    return str(gguf.ensure(RandomModel(layers=4)))


@contextmanager
def llama_server(node: Connection, folder: Path, port: int, *more: str) -> Iterator[OwnedProcess]:
    """One on a node's loopback, as its user starts it: of model_of_server, with more arguments."""
    program = str(find("llama.cpp").find_local().programs["llama-server"])
    argv = [
        program,
        "-m",
        model_of_server(),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-t",
        "1",
        *more,
    ]
    started = OwnedProcess.start(node, f"user-{port}", [*argv, "--no-webui"], {}, folder)
    try:
        deadline = time.monotonic() + 60
        ready = f"(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo ready"
        while "ready" not in node.run(["bash", "-c", ready]).stdout:
            assert started.running, started.errors
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield started
    finally:
        started.stop()
