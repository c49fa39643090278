"""Models in the lab: pushed from node to node over a fabric, resumed, mended, listed, removed."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.core.files import cache_dir
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.counters import read
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE
from nixwulf.nodes.ssh import connections, open_all
from nixwulf.ops.models.push import on_node

MIB = 1 << 20
SIZE = 40 * MIB
CLUSTER = """
name = "models"
models = "/tmp/models"
lab = {{ nodes = 3 }}
[fabrics.slow]
kind = "ethernet"
speed_gbps = 1
mtu = 1500
subnet = "10.91.0.0/24"
shape = {{ rate_gbps = 0.02 }}
[fabrics.cable]
kind = "ethernet"
speed_gbps = 10
mtu = 65520
subnet = "10.91.1.0/24"
shape = {{ rate_gbps = {rate} }}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "cluster.toml"
    path.write_text(CLUSTER.format(rate=0.2))
    return path


@pytest.fixture(scope="module")
def nodes(bring_up, source):
    cluster = load_cluster(source)
    running = bring_up(cluster, "models")
    found = connections(cluster, running.lab.ssh_config)
    assert open_all(found.values()) == {}
    yield found
    running.lab.down()


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path, nodes):
    """A folder of models of its own for this machine, and none on the nodes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    for node in nodes.values():
        node.script("rm -rf /tmp/models")


@pytest.fixture
def nixwulf(source):
    def run(*words, expect=0):
        command, *rest = words
        cluster = [] if command == "get" else ["--cluster", str(source)]
        done = CliRunner().invoke(cli, ["models", command, *rest, *cluster])
        assert done.exit_code == expect, done.output
        return done

    return run


def make(name, size=SIZE, seed=1):
    path = cache_dir() / "models" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))  # noqa: S311
    return path


def entries(nodes, name):
    return {
        node: next(
            (m for m in on_node(c, "list", folder="/tmp/models")["models"] if m["name"] == name), {}
        )
        for node, c in nodes.items()
    }


def put_on_first(nixwulf, name, *words):
    """A model that only the first node has."""
    path = make(name)
    nixwulf("push", name, "--node", "n1", *words)
    path.unlink()
    return path


def test_a_folder_goes_to_every_node_and_a_gguf_to_the_first(nixwulf, nodes):
    for part in ("config.json", "model-1.safetensors", "sub/tokenizer.model"):
        make(f"folder/{part}", 3 * MIB + 17)
    make("file.gguf", MIB)
    assert nixwulf("push", "folder").stdout.splitlines() == [
        f"{name}: complete, received 9.0 MiB" for name in nodes
    ]
    assert nixwulf("push", "folder").stdout.splitlines() == [
        f"{name}: complete, as it was" for name in nodes
    ]
    assert nixwulf("push", "file.gguf").stdout == "n1: complete, received 1.0 MiB\n"
    listed = json.loads(nixwulf("ls", "--format", "json").stdout)["machines"]
    models = {
        name: {(one["name"], one["state"]) for one in listing["models"]}
        for name, listing in listed.items()
    }
    folder, file = ("folder", "complete"), ("file.gguf", "complete")
    both = {folder, file}
    assert models == {"this machine": both, "n1": both, "n2": {folder}, "n3": {folder}}
    sums = {
        node.script("cd /tmp/models/folder && find . -type f | sort | xargs sha256sum")
        for node in nodes.values()
    }
    assert len(sums) == 1


def test_what_a_node_has_crosses_the_fastest_fabric_once_and_no_other_network(nixwulf, nodes):
    put_on_first(nixwulf, "big.gguf")
    before = read(nodes.values())
    done = nixwulf("push", "big.gguf", "--node", "n1", "--node", "n2", "--node", "n3")
    assert "From n1 over cable in" in done.stderr
    after = read(nodes.values())

    def carried(name, interface):
        return after[name].interfaces[interface] - before[name].interfaces[interface]

    assert sum(carried(name, MANAGEMENT_INTERFACE) for name in nodes) < MIB
    assert sum(carried(name, "slow") for name in nodes) < 10_000
    for name, copies in (("n1", 1), ("n2", 2), ("n3", 1)):
        assert copies * SIZE < carried(name, "cable") < 1.5 * copies * SIZE


def test_after_a_kill_only_what_is_missing_is_sent(nixwulf, nodes, source):
    put_on_first(nixwulf, "big.gguf")
    script = "from nixwulf.cli.main import main; main()"
    push = ["models", "push", "big.gguf", "--cluster", str(source), "--engine", "vllm"]
    slowly = [sys.executable, "-c", script, *push, "--fabric", "slow"]
    # All of it takes 17 s there; some file systems count what was written only after a while.
    with subprocess.Popen(slowly, stderr=subprocess.DEVNULL) as killed:
        while not entries(nodes, "big.gguf")["n2"].get("present"):
            assert killed.poll() is None
        os.kill(killed.pid, signal.SIGKILL)
    # The last node of the chain may have nothing on its disk yet.
    left = {name: SIZE - one.get("present", 0) for name, one in entries(nodes, "big.gguf").items()}
    assert left["n1"] == 0 < left["n2"] < SIZE
    done = nixwulf("push", "big.gguf", "--engine", "vllm")
    for name in ("n2", "n3"):
        words = next(line for line in done.stdout.splitlines() if line.startswith(name))
        assert float(words.split()[3]) * MIB <= left[name] + 0.05 * SIZE, done.output
    assert {one["state"] for one in entries(nodes, "big.gguf").values()} == {"complete"}


def test_a_flipped_bit_is_found_and_mended_by_one_chunk(nixwulf, nodes):
    put_on_first(nixwulf, "big.gguf")
    nixwulf("push", "big.gguf", "--node", "n2")
    flip = (
        "import os; p='/tmp/models/big.gguf'; s=os.stat(p); f=open(p,'r+b'); f.seek(7000000);"
        "b=f.read(1)[0]; f.seek(7000000); f.write(bytes([b^4])); f.close();"
        "os.utime(p,ns=(s.st_atime_ns,s.st_mtime_ns))"
    )
    nodes["n2"].script('python3 -c "$1"', flip)
    assert entries(nodes, "big.gguf")["n2"]["state"] == "complete"  # by its size and time
    found = nixwulf("verify", "big.gguf", "--node", "n1", "--node", "n2", expect=1)
    assert "n2: big.gguf is DAMAGED in 1 of its MiB (first: 6)" in found.stdout
    assert "n1: as it was hashed" in found.stdout
    assert entries(nodes, "big.gguf")["n2"]["state"] == "damaged"
    done = nixwulf("push", "big.gguf", "--node", "n2")
    assert done.stdout == "n2: complete, received 1.0 MiB\n"
    nixwulf("verify", "big.gguf", "--node", "n1", "--node", "n2")


def test_a_node_that_cannot_write_is_left_out_and_the_others_go_on(nixwulf, nodes):
    make("folder/a.safetensors", 2 * MIB)
    nodes["n2"].script("mkdir -p /tmp/models/.nixwulf; touch /tmp/models/.nixwulf/incoming")
    done = nixwulf("push", "folder", expect=1)
    assert "n1: complete" in done.stdout
    assert "n3: complete" in done.stdout
    assert "n2: Not a directory (/tmp/models/.nixwulf/incoming/folder)" in done.stderr


def test_a_source_that_is_damaged_unseen_is_named_and_no_copy_is_complete(nixwulf, nodes):
    path = make("big.gguf", 8 * MIB)
    nixwulf("push", "big.gguf", "--node", "n1")
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(5 * MIB)
        file.write(b"\0" * 8)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    nodes["n1"].script("rm -rf /tmp/models")
    done = nixwulf("push", "big.gguf", "--node", "n2", expect=1)
    assert "cannot be copied from this machine: chunk 5 of 'big.gguf' there is not" in done.stderr
    assert entries(nodes, "big.gguf")["n2"]["state"] == "incomplete"


def test_a_removed_model_is_gone_and_nothing_else_is(nixwulf, nodes):
    make("folder/a.safetensors", MIB)
    nixwulf("push", "folder", "--node", "n1")
    nodes["n1"].script("touch /tmp/models/folder/.mine /tmp/models/other.gguf")
    asked = CliRunner().invoke(cli, ["models", "rm", "folder"], input="n\n")
    assert asked.exit_code == 1
    assert nixwulf("rm", "folder", "--node", "n1", "--yes").stdout == "n1: removed 1.0 MiB\n"
    left = nodes["n1"].script("cd /tmp/models && find . -type f | sort").split()
    assert left == ["./folder/.mine", "./other.gguf"]
    assert "No model 'folder' on n1" in nixwulf("rm", "folder", "--node", "n1", expect=2).stderr


def test_names_of_nobody_end_with_a_sentence(nixwulf):
    make("a.gguf", MIB)
    outside = nixwulf("push", "../a.gguf", expect=2)
    assert "'../a.gguf'" in outside.stderr
    assert (
        "No node 'n9' in 'models'; known: n1, n2, n3."
        in nixwulf("push", "a.gguf", "--node", "n9", expect=2).stderr
    )
    assert (
        "'models' has no 'wire'; known: slow, cable."
        in nixwulf("push", "a.gguf", "--fabric", "wire", expect=2).stderr
    )
    assert (
        "No machine has a complete model 'b.gguf'; get it by"
        in nixwulf("push", "b.gguf", expect=2).stderr
    )


def test_two_nodes_with_different_models_of_a_name_are_not_chosen_between(nixwulf, nodes):
    here = Path("/tmp/models")  # the nodes' folder, which is nothing of this machine's
    before = sorted(here.rglob("*"))
    for node, seed in (("n1", 1), ("n2", 2)):
        path = make("a.gguf", MIB, seed)
        nixwulf("push", "a.gguf", "--node", node)
        path.unlink()
    done = nixwulf("push", "a.gguf", "--node", "n3", expect=2)
    assert "Nodes 'n1' and 'n2' have different models 'a.gguf'" in done.stderr
    assert sorted(here.rglob("*")) == before
