"""What other people's servers and files do to the driver: the outside of a trial, by its kind.

Each function is a fault that is there before the driver starts, and adds to the stage's proofs
what must be so when it has ended.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

from stage import ADDRESSES, Missed, Stage, node
from trial import WALL_S

import hostile_hub as hub_program
from hostile_meter import WATTS

SUPPORT = Path(hub_program.__file__).parent
MIB = 1 << 20
PORT = 18080
_MODEL = "m.gguf"
_MODEL_BYTES = 3 * MIB + 17
_LISTEN_S = 20.0
_ALL = 100
_MOST = 1e6
# Tokens a second: of one each 5 ms, up to 250 (timers), and a prompt of 16 is there in no time.
_SLOW, _FAST, _FAST_PROMPT = 2, 250, 1e5
_MOST_KEPT = 64 * MIB
_MINE = "mine, and nobody else's\n"
_NODE = """
[[nodes]]
name = "{name}"
platform = "generic-x86_64"
ssh = "{name}"
fabrics.cable = {{ interface = "cable", address = "{address}" }}
{more}"""
_CLUSTER = """
name = "own"
models = "/tmp/models"
[fabrics.cable]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "10.91.0.0/24"
"""


def hostile_endpoint(stage: Stage, name: str) -> None:
    """What serves on n1 misbehaves in this way; its tokens come 5 ms after each other."""
    own_cluster(stage)
    serve(stage, "hostile_endpoint.py", PORT, name, enter=enter("n1"))
    stage.must_ask = False  # it prints nothing

    def proof() -> list[str]:
        return [
            f"{metric['name']} of {value:g} {metric['unit']}, ok"
            for record in filter(None, stage.records())
            for metric in record.get("metrics", ())
            for value in metric.get("samples", ())
            if not _possible(metric["name"], metric["unit"], value)
        ]

    stage.proofs.append(proof)


def _possible(name: str, unit: str, value: float) -> bool:
    """Whether a server can have done that that sends a token each 5 ms, on a busy machine too."""
    if unit == "%":
        return 0 <= value <= _ALL
    if unit == "ms":
        return 0 <= value <= 1000 * WALL_S
    if unit == "tok/s":
        return _SLOW <= value <= (_FAST_PROMPT if name == "prompt" else _FAST)
    return 0 <= value < _MOST


def hostile_hub(stage: Stage, name: str) -> None:
    """A hub that misbehaves in this way is where models are got from."""
    outside = stage.folder / "outside"
    outside.mkdir()
    (outside / "mine").write_text(_MINE)
    before = outside.stat().st_mtime_ns
    cache = stage.folder / "cache"
    port = free_port()
    serve(stage, "hostile_hub.py", port, name, str(outside))
    stage.environment |= {
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(stage.folder / "hub"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "XDG_CACHE_HOME": str(cache),
    }

    def proof() -> list[str]:
        found = [f"written outside: {p.name}" for p in outside.rglob("*") if p.name != "mine"]
        if not (outside / "mine").exists() or (outside / "mine").read_text() != _MINE:
            found.append("a file outside is not what it was")
        if not found and outside.stat().st_mtime_ns != before:
            found.append("something was outside for a while")
        files = [path for path in cache.rglob("*") if path.is_file()]
        kept = sum(path.stat().st_size for path in files)
        if kept > _MOST_KEPT:
            found.append(f"{kept >> 20} MiB are kept of a model of 66 B")
        models = cache / "nixwulf" / "models" / "name"
        got = [path for path in models.rglob("*") if path.is_file()]
        if stage.code == 0 and (
            not got or any(path.read_bytes() != hub_program.CONTENT for path in got)
        ):
            found.append("a model that did not arrive is said to be there")
        return found

    stage.proofs.append(proof)


def hostile_meter(stage: Stage, name: str) -> None:
    """Both nodes hang on a wall meter that misbehaves in this way."""
    port = free_port()
    serve(stage, "hostile_meter.py", port, name)
    own_cluster(stage, f'meter = {{ kind = "tasmota", url = "http://127.0.0.1:{port}" }}\n')

    def proof() -> list[str]:
        found = []
        for record in filter(None, stage.records()):
            for meter in record.get("power", {}).get("meters", ()):
                numbers = set(_numbers(meter.get("watts", {})))
                if any(not WATTS - 1 < number < WATTS + 1 for number in numbers):
                    found.append(f"watts that no meter reported: {sorted(numbers)}")
        return found

    stage.proofs.append(proof)


def model_on_n1(stage: Stage) -> Path:
    """Bring a model to n1 alone; where its manifest is."""
    from nixwulf.ops.models.store import Place, encoded

    own_cluster(stage)
    models = stage.folder / "cache" / "nixwulf" / "models"
    models.mkdir(parents=True)
    (models / _MODEL).write_bytes(os.urandom(_MODEL_BYTES))
    sha256 = hashlib.sha256((models / _MODEL).read_bytes()).hexdigest()
    os.environ |= {"XDG_CACHE_HOME": str(models.parents[1]), "PATH": stage.environment["PATH"]}
    stage.environment["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
    code, text = stage.read(
        "models", "push", _MODEL, "--node", "n1", "--cluster", "o.toml", limit_s=60
    )
    manifest = Place(str(models), _MODEL).known()
    if code != 0 or manifest is None:
        raise Missed(f"n1 did not get the model first: {text[-200:]}")
    (models / _MODEL).unlink()
    kept = stage.folder / "manifest"
    kept.write_bytes(encoded(manifest))

    def proof() -> list[str]:
        there = Path(f"/proc/{node('n2')}/root/tmp/models/{_MODEL}")
        right = there.exists() and hashlib.sha256(there.read_bytes()).hexdigest() == sha256
        if there.exists() and not right:
            return ["n2 has a model that is another one"]
        said = "n2: complete" in stage.output()
        return [] if right or not said else ["n2 is said to be complete and has no model"]

    stage.proofs.append(proof)
    return kept


def hostile_peer(stage: Stage, name: str) -> None:
    """A model goes from n1 to n2, where something else answers at the address of n1."""
    manifest = model_on_n1(stage)
    address = ADDRESSES["n1"]
    add = ["ip", "address", "add", f"{address}/32", "dev", "lo"]
    subprocess.run([*enter("n2"), *add], check=True)
    serve(stage, "hostile_peer.py", 50055, name, address, str(manifest), enter=enter("n2"))


def own_cluster(stage: Stage, of_each_node: str = "") -> None:
    """Bring a lab up and describe its nodes in o.toml as machines, which ssh reaches by name.

    Args:
        stage: of the trial.
        of_each_node: TOML.
    """
    os.environ["XDG_RUNTIME_DIR"] = str(stage.folder / "run")
    code, text = stage.read("lab", "up", "--cluster", "c.toml")
    if code != 0:
        raise Missed(f"no lab: {text[-200:]}")
    stage.closing.callback(lambda: stage.read("lab", "down"))
    config = next((stage.folder / "run").rglob("ssh_config"))
    wrapper = stage.folder / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    wrapper.chmod(0o755)
    nodes = "".join(
        _NODE.format(name=name, address=address, more=of_each_node)
        for name, address in ADDRESSES.items()
    )
    (stage.folder / "o.toml").write_text(_CLUSTER + nodes)


def enter(name: str) -> list[str]:
    """What stands before a command that runs in the network of a node."""
    return ["nsenter", "--target", str(node(name)), "--net"]


def free_port() -> int:
    """A port of this machine's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def serve(
    stage: Stage, program: str, port: int, *arguments: str, enter: Sequence[str] = ()
) -> None:
    """Start a server of tests/support and wait until it listens; it ends with the trial."""
    argv = [*enter, sys.executable, str(SUPPORT / program), str(port), *arguments]
    with (stage.folder / "asked").open("wb") as out:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    stage.servers.append(server)
    listening = f":{port:04X} "
    until = time.monotonic() + _LISTEN_S
    while server.poll() is None and time.monotonic() < until:
        table = Path(f"/proc/{server.pid}/net/tcp").read_text()
        if any(listening in row and " 0A " in row for row in table.splitlines()):
            return
        time.sleep(0.02)
    raise Missed(f"{program} does not listen: {(stage.folder / 'asked').read_text()[-200:]}")


def _numbers(tree: Any) -> list[float]:
    if isinstance(tree, dict):
        return [number for value in tree.values() for number in _numbers(value)]
    if isinstance(tree, list):
        return [number for value in tree for number in _numbers(value)]
    return [tree] if isinstance(tree, int | float) and not isinstance(tree, bool) else []
