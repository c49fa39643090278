"""Print the figures that Nixwulf holds itself to, as this machine gives them.

Usage: .venv/bin/python tools/figures.py [help] [overhead] [facts] [stream] [models] [cluster]

help      nixwulf --help against python -c 'import click': median of 15 runs each, in turn
overhead  wall time of sweeps/smoke.yaml that is not the engines' own, and where it goes
facts     facts of 16 lab nodes in parallel against sixteen plain 'ssh NODE true' in parallel
stream    chunks a second that the client of serve reads over a forwarded socket, and what it costs
models    models push to 8 lab nodes at 0.5 Gbit/s, after a kill too, and flipped bits that are
          found; MODELS_MIB=1024 is the size, which the nodes need in memory eight times
cluster   'cluster new' on 16 lab nodes with 4 fabrics, from the command to the file: median of 3
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

from nixwulf.inventory.cluster import Cluster, load_cluster, parse_cluster, with_lab_nodes
from nixwulf.nodes import lab
from nixwulf.nodes.counters import read as read_counters
from nixwulf.nodes.facts import gather
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE
from nixwulf.nodes.process import OwnedProcess, stop_owned
from nixwulf.nodes.ssh import Connection, connections, open_all
from nixwulf.ops.models.push import on_node, push
from nixwulf.ops.models.store import CHUNK
from nixwulf.plugins.benchmarks.serve import TOGETHER_MS
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.openai_stream import PATHS, ask, body
from nixwulf.plugins.runtime.run import Run

ROOT = Path(__file__).parents[1]
NIXWULF = ROOT / ".venv/bin/nixwulf"


def seconds(action: Callable[[], object]) -> float:
    """Wall time of an action."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def in_turn(
    first: Callable[[], object], second: Callable[[], object], runs: int
) -> tuple[float, float]:
    """Median seconds of two actions that are run in turn, after one of each that is not counted."""
    first(), second()
    pairs = [(seconds(first), seconds(second)) for _ in range(runs)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def figure_help() -> None:
    """Start-up of the command line."""

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    ours, click = in_turn(
        lambda: run(str(NIXWULF), "--help"),
        lambda: run(sys.executable, "-c", "import click"),
        runs=15,
    )
    print(
        f"help: nixwulf --help {ours * 1e3:.0f} ms, import click {click * 1e3:.0f} ms: "
        f"{ours / click:.2f} times (at most 2)"
    )


def figure_overhead() -> None:
    """The driver's own share of a short sweep."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [str(NIXWULF), "bench", "sweeps/smoke.yaml", "--out", str(out)]
        wall = seconds(lambda: subprocess.run(command, check=True, cwd=ROOT, capture_output=True))
        phases: Counter[str] = Counter()
        records = [json.loads(path.read_text()) for path in sorted(out.glob("records/*.json"))]
        for record in records:
            phases.update(record["phases"])
    engine = phases.pop("engine")
    rest = wall - engine
    print(
        f"overhead: smoke took {wall:.1f} s, of which the engines ran {engine:.1f} s; the rest is "
        f"{rest:.1f} s, {rest / wall:.1%} of wall (at most 15%)"
    )
    between = phases["sanity"] + phases["measure"] - engine
    parts = {
        "start, plan, lab up and down, report": wall - sum(phases.values()),
        **{name: phases[name] for name in ("facts", "gates", "link", "idle", "launch", "teardown")},
        "sanity and measure, beside the engines": between,
    }
    for name, value in parts.items():
        print(f"  {value:6.2f} s  {name}")


def figure_facts() -> None:
    """Facts of sixteen nodes."""
    cluster = with_lab_nodes(load_cluster(ROOT / "clusters/lab.toml"), 16)
    up = lab.up(cluster, name="figures", lifeline=True)
    try:
        nodes: list[Connection] = list(connections(cluster, up.ssh_config).values())
        open_all(nodes)

        def plain() -> None:
            started = [
                subprocess.Popen(node.argv(["true"]), stdin=subprocess.DEVNULL) for node in nodes
            ]
            for process in started:
                process.wait()

        ours, theirs = in_turn(
            lambda: gather(nodes, ["llama-bench", "llama-server"]), plain, runs=15
        )
    finally:
        up.down()
    print(
        f"facts: 16 nodes {ours * 1e3:.0f} ms, sixteen 'ssh NODE true' {theirs * 1e3:.0f} ms: "
        f"{ours / theirs:.2f} times (at most 1.5)"
    )


def figure_cluster() -> None:
    """A cluster file of sixteen nodes."""
    common = {"kind": "ethernet", "speed_gbps": 10, "mtu": 1500}
    fabrics = {f"f{index}": {**common, "subnet": f"10.90.{index}.0/24"} for index in range(4)}
    document = {"name": "figures", "lab": {"nodes": 16}, "fabrics": fabrics}
    up = lab.up(parse_cluster(document, "figures"), name="figures", lifeline=True)
    command = [str(NIXWULF), "cluster", "new", "--from", str(up.ssh_config)]
    written: list[str] = []

    def new() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        written.append(done.stdout)

    try:
        wall = statistics.median(seconds(new) for _ in range(3))
    finally:
        up.down()
    found = parse_cluster(tomllib.loads(written[-1]), "figures")
    right = sum(
        end in ours.fabrics.values()
        for ours, theirs in zip(found.nodes, up.cluster.nodes, strict=True)
        for end in theirs.fabrics.values()
    )
    print(
        f"cluster: a file of 16 nodes in {wall:.1f} s (at most 5), {right} of 64 attachments "
        f"right; load average {os.getloadavg()[0]:.1f}"
    )


def figure_stream() -> None:
    """The client of serve: streams at a fixed rate, through ssh as in a run, then without pause."""
    cluster = with_lab_nodes(load_cluster(ROOT / "clusters/lab.toml"), 2)
    up = lab.up(cluster, name="figures", lifeline=True)
    socket = "/tmp/nixwulf-figures.sock"  # noqa: S108 - on the node
    source = [sys.executable, str(ROOT / "tools/event_source.py"), socket]
    try:
        node = connections(cluster, up.ssh_config)["n1"]
        open_all([node])
        with subprocess.Popen(node.argv(source), stdin=subprocess.DEVNULL) as process:
            node.script('until [ -S "$1" ]; do sleep 0.05; done', socket)
            with node.forwarded(socket) as local:
                for streams, rate in ((1, 100), (8, 250), (16, 250), (8, 0)):
                    asyncio.run(stream(local, streams, rate))
            process.terminate()
    finally:
        up.down()


async def stream(socket: Path, streams: int, rate: int) -> None:
    """Read streams at once for about two seconds each, and print how it went."""
    chunks = 2 * (rate or 2000)
    request = body("completions", "m", "x", chunks, rate)
    async with Endpoint(
        cast(Run, None), socket, "m", cast(OwnedProcess, None)
    ).async_client() as client:
        begin, cpu = time.perf_counter(), time.thread_time()
        asking = [ask(client, PATHS["completions"], request, lambda: None) for _ in range(streams)]
        answers = await asyncio.gather(*asking)
        wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
    asked = f"{streams * rate} chunks/s" if rate else "no pause"
    gaps = [gap for answer in answers for gap in answer.gaps_ms]
    print(
        f"stream: {streams} at once, {asked}: {streams * chunks / wall:.0f} chunks/s read, client "
        f"busy {cpu / wall:.0%}, {cpu / streams / chunks * 1e6:.0f} us a chunk, "
        f"{sum(gap < TOGETHER_MS for gap in gaps) / len(gaps):.1%} read with the one before"
    )


def figure_models() -> None:
    """A model from one of eight lab nodes to the others; a second time after a kill."""
    size = int(os.environ.get("MODELS_MIB", "1024")) << 20
    document = {
        "name": "figures",
        "models": "/tmp/models",  # noqa: S108 - on the nodes
        "lab": {"nodes": 8},
        "fabrics": {
            "wire": {
                "kind": "ethernet",
                "speed_gbps": 0.5,
                "mtu": 9000,
                "subnet": "10.99.0.0/24",
                "shape": {"rate_gbps": 0.5},
            }
        },
    }
    cluster = parse_cluster(document, "figures")
    up = lab.up(cluster, name="figures", lifeline=True)
    try:
        nodes = connections(cluster, up.ssh_config)
        open_all(nodes.values())
        make = 'mkdir -p "$1" && head -c "$2" /dev/urandom >"$1/m.gguf"'
        nodes["n1"].script(make, cluster.models, str(size))
        seconds(lambda: on_node(nodes["n1"], "index", folder=cluster.models, name="m.gguf"))
        ideal = size / (0.5e9 / 8)
        before = read_counters(nodes.values())
        done = push(cluster, nodes, "m.gguf", list(nodes), None, lambda *_: None)
        after = read_counters(nodes.values())
        managed = sum(
            after[name].interfaces[MANAGEMENT_INTERFACE]
            - before[name].interfaces[MANAGEMENT_INTERFACE]
            for name in nodes
        )
        print(
            f"models: {size >> 20} MiB to 7 more of 8 nodes at 0.5 Gbit/s in {done.seconds:.1f} s, "
            f"{done.seconds / ideal:.2f} times size/rate (at most 1.3; one by one 7); "
            f"{managed / 1e6:.2f} MB over the management network (below 1)"
        )
        others = [name for name in nodes if name != "n1"]
        for name in others:
            on_node(nodes[name], "remove", folder=cluster.models, name="m.gguf")
        present = killed_push(cluster, nodes, others, size)
        done = push(cluster, nodes, "m.gguf", others, None, lambda *_: None)
        again = sum(done.received.values()) + present - size * len(others)
        print(
            f"models: killed with {present / size / len(others):.0%} there, then "
            f"{again / size / len(others):.2%} was sent again (at most 5%)"
        )
        found = sum(flipped(nodes["n2"], cluster.models, size) for _ in range(50))
        print(f"models: {found} of 50 flipped bits were found")
    finally:
        up.down()


def killed_push(cluster: Cluster, nodes: dict[str, Connection], names: list[str], size: int) -> int:
    """Push in a process that is killed half-way; the bytes that the nodes have by then."""
    child = os.fork()
    if child == 0:
        got: dict[str, int] = {}

        def observe(name: str, count: int, _: int) -> None:
            got[name] = count
            if sum(got.values()) > size * len(names) / 2:
                os.kill(os.getpid(), signal.SIGKILL)

        push(cluster, nodes, "m.gguf", names, None, observe)
        os._exit(0)
    os.waitpid(child, 0)
    while any("models" in "".join(stop_owned(nodes[name])) for name in names):
        time.sleep(0.1)
    listings = [on_node(nodes[name], "list", folder=cluster.models) for name in names]
    return sum(model["present"] for listing in listings for model in listing["models"])


def flipped(node: Connection, folder: str, size: int) -> bool:
    """Whether a bit that is flipped behind the file's back is found; it is flipped back."""
    bit = secrets.randbelow(8 * size)
    flip = (
        "import os, sys; p, bit = sys.argv[1], int(sys.argv[2]); s = os.stat(p);"
        "f = open(p, 'r+b'); f.seek(bit // 8); b = f.read(1)[0]; f.seek(bit // 8);"
        "f.write(bytes([b ^ 1 << bit % 8])); f.close();"
        "os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))"
    )
    argv = ["python3", "-c", flip, f"{folder}/m.gguf", str(bit)]
    node.run(argv)
    found = on_node(node, "verify", folder=folder, name="m.gguf")
    node.run(argv)
    return bool(found["damaged"] == {"m.gguf": [bit // 8 // CHUNK]})


if __name__ == "__main__":
    figures = {
        "help": figure_help,
        "overhead": figure_overhead,
        "facts": figure_facts,
        "stream": figure_stream,
        "models": figure_models,
        "cluster": figure_cluster,
    }
    for name in sys.argv[1:] or figures:
        figures[name]()
