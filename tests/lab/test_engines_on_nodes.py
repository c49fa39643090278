"""An engine brought to nodes that have none: built on one, copied to its like, kept, removed.

The nodes of a lab are reached as machines are, by a wrapper that stands for the user's ssh. The
source is a stand-in of three scripts, so that sshd, CMake, tar, sums and files are the real ones
and no compiler runs for minutes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from lab_under_test import as_machines, cluster_of, desk

from llama_cpp_source import CMAKE, put_sdist
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.facts import gather
from nixwulf.nodes.ssh import connections, open_all
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.results.record import load
from pair_sweep import SWEEP
from stand_in import put

NAMES = ("llama-bench", "llama-server", "ggml-rpc-server")
# no output: a script in the place of a program
OTHER = "echo 'version: 8 (build 0, commit other)'\necho '  --rpc <servers>'"
VERSION = "version: 9 (build 0, commit stand-in)"
MAIN = """
import sys
from nixwulf.plugins.engines.llama_cpp import install
install.SDIST_SHA256 = sys.argv.pop(1)
from nixwulf.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder on the PATH of all nodes, empty but for one test."""
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def machines(bring_up, own):
    for tool in ("cmake", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool} on PATH")
    running = bring_up(cluster_of(3, cable=Shape()), "engines", path=[own])
    yield running
    running.lab.down()


@pytest.fixture
def nodes(machines):
    """Nodes of which the third is of another kind: it has another release of its system."""
    found = connections(machines.lab.cluster, machines.lab.ssh_config)
    assert open_all(found.values()) == {}
    found["n3"].script("echo ID=debian >/tmp/os; mount --bind /tmp/os /etc/os-release")
    yield found
    found["n3"].script("umount /etc/os-release")
    for node in found.values():
        node.script("rm -rf ~/.cache")


@pytest.fixture
def file(machines, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(as_machines(machines.lab.cluster))
    return path


@pytest.fixture
def command(machines, file, tmp_path):
    """Command line and environment of 'nixwulf engines', with the stand-in for a source."""
    environment = desk(machines, tmp_path)
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    def prepare(*words, cmake=CMAKE):
        sha256 = put_sdist(tmp_path / "cache/nixwulf/llama.cpp", cmake)
        argv = [sys.executable, "-c", MAIN, sha256, *words, "--cluster", str(file)]
        return {"args": argv, "env": environment}

    return prepare


@pytest.fixture
def nixwulf(command):
    def run(*words, expect=0, **options):
        done = subprocess.run(
            **command(*words, **options), capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return run


def hide(node, program):
    """Let a node have no such program until the block ends."""
    place = shutil.which(program)
    node.script(f"touch /tmp/nothing; chmod 644 /tmp/nothing; mount --bind /tmp/nothing {place}")
    return lambda: node.script(f"umount {place}")


def left(node):
    return set(node.script("cd ~/.cache/nixwulf/engines && ls -A").split())


def test_one_node_of_a_kind_builds_and_its_like_get_the_same_files(nixwulf, nodes, file):
    done = nixwulf("engines", "install")
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["n1"].startswith("built there, for cpu")
    assert lines["n2"].startswith("copied from n1, for cpu")
    assert lines["n3"].startswith("built there, for cpu")
    assert all(line.endswith(VERSION) for line in lines.values())
    assert "n1: Build llama.cpp, 100 %" in done.stderr
    assert left(nodes["n1"]) == left(nodes["n2"]) == {"llama.cpp", "lock"}
    sums = {
        name: node.script("cd ~/.cache/nixwulf/engines/llama.cpp && cat sums build")
        for name, node in nodes.items()
    }
    assert sums["n1"] == sums["n2"] != sums["n3"]
    facts = gather(nodes.values(), NAMES)
    for name, node in nodes.items():
        folder = node.script("echo ~/.cache/nixwulf/engines/llama.cpp/bin").strip()
        assert facts[name].programs == {program: f"{folder}/{program}" for program in NAMES}
    nixwulf("preflight", "--gate", "versions")
    again = nixwulf("engines", "install")
    assert again.stdout.count(": as it was, for cpu") == 3
    assert "Build" not in again.stderr


def test_what_was_changed_is_found_removed_and_installed_again(nixwulf, nodes):
    nixwulf("engines", "install")
    nodes["n2"].script("echo '#' >>~/.cache/nixwulf/engines/llama.cpp/bin/llama-bench")
    done = nixwulf("engines", "install", expect=1)
    assert "Node 'n2' cannot use its build of llama.cpp, which is removed" in done.stderr
    assert "n2: copied from n1" in nixwulf("engines", "install").stdout
    assert nixwulf("engines", "remove", "--node", "n2").stdout == "n2: removed\n"
    assert gather([nodes["n2"]], NAMES)["n2"].programs == {}
    assert nixwulf("engines", "remove").stdout.splitlines() == [
        "n1: removed",
        "n2: had none that was installed",
        "n3: removed",
    ]


def test_a_node_without_a_compiler_gets_a_copy_and_a_kind_without_is_refused(nixwulf, nodes):
    show = [hide(nodes["n1"], "cmake"), hide(nodes["n3"], "c++")]
    try:
        done = nixwulf("engines", "install", expect=3)
        assert "Node 'n3' cannot build llama.cpp without c++; run 'sudo apt-get install" in (
            done.stderr
        )
        assert left(nodes["n1"]) == left(nodes["n2"]) == set()
        done = nixwulf("engines", "install", "--node", "n1", "--node", "n2")
    finally:
        for one in show:
            one()
    assert "n1: copied from n2" in done.stdout
    assert "n2: built there" in done.stdout


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_build_whose_driver_is_stopped_leaves_nothing_on_the_node(command, nodes, how, code):
    # no output: a line of a project file
    slow = CMAKE.replace("COMMAND", "COMMAND sleep 300 COMMAND", 1)
    with subprocess.Popen(
        **command("engines", "install", cmake=slow), stderr=subprocess.PIPE, text=True
    ) as driver:
        while "Build" not in driver.stderr.readline():
            assert driver.poll() is None
        wait_for(nodes["n1"], "pgrep -x sleep")
        os.kill(driver.pid, how)
        driver.communicate()
    assert driver.returncode == code
    wait_for(nodes["n1"], "! pgrep -x sleep && [ ! -e ~/.cache/nixwulf/engines/.llama.cpp ]")
    assert left(nodes["n1"]) == {"lock"}


def test_a_build_that_fails_says_why_and_the_next_one_goes_on(nixwulf, nodes):
    # no output: a line of a project file
    broken = CMAKE + '    message(FATAL_ERROR "the stand-in is broken")\n'
    done = nixwulf("engines", "install", "--node", "n1", cmake=broken, expect=1)
    assert "Node 'n1' did not build llama.cpp: " in done.stderr
    assert left(nodes["n1"]) == {"lock"}
    assert "n1: built there" in nixwulf("engines", "install", "--node", "n1").stdout


def wait_for(node, condition):
    node.script(f"for _ in $(seq 900); do if {condition}; then exit 0; fi; sleep 0.1; done; exit 1")


def test_a_disk_without_room_is_refused_before_anything_is_sent(nixwulf, nodes):
    place = "~/.cache/nixwulf/engines"
    nodes["n1"].script(f"mkdir -p {place}; mount -t tmpfs -o size=1m tmpfs {place}")
    try:
        done = nixwulf("engines", "install", "--node", "n1", expect=3)
        assert "Node 'n1' has 0.00 GiB free in" in done.stderr
        assert left(nodes["n1"]) == set()
    finally:
        nodes["n1"].script(f"umount {place}")


def test_one_version_on_the_path_of_all_is_kept_and_several_are_not_used(nixwulf, nodes, own):
    for name in NAMES:
        put(own, name, OTHER)
    try:
        done = nixwulf("engines", "install")
        assert done.stdout.splitlines() == [
            f"{name}: keeps its own {own}/llama-bench; version: 8 (build 0, commit other)"
            for name in nodes
        ]
        assert left(nodes["n1"]) == set()
        show = hide_in(nodes["n1"], own)
        try:
            done = nixwulf("engines", "install")
        finally:
            show()
        assert "n1: built there, for cpu" in done.stdout
        assert f"its own {own}/llama-bench is left as it is and not used" in done.stdout
        place = gather([nodes["n2"]], NAMES)["n2"].programs["llama-bench"]
        assert place.endswith("/.cache/nixwulf/engines/llama.cpp/bin/llama-bench")
    finally:
        for name in NAMES:
            (own / name).unlink()


def test_a_case_runs_by_programs_that_were_copied(nixwulf, nodes, tmp_path):
    """The stand-in builds by copying this machine's llama.cpp, which takes minutes to compile."""
    built = ENGINE.install_local(lambda step, share: None).programs.values()
    cmake = CMAKE.split("foreach", maxsplit=1)[0]
    for name, place in zip(NAMES, map(str, built), strict=True):
        # no output: a line of a project file
        cmake += f"""add_custom_target({name} COMMAND ${{CMAKE_COMMAND}} -E copy {place}
          ${{CMAKE_BINARY_DIR}}/bin/{name})
"""
    done = nixwulf("engines", "install", "--node", "n1", "--node", "n2", cmake=cmake)
    assert "n2: copied from n1, for cpu" in done.stdout
    sweep, out = tmp_path / "own.yaml", tmp_path / "out"
    sweep.write_text(SWEEP)
    nixwulf("bench", str(sweep), "--out", str(out))
    (record,) = [load(path) for path in (out / "records").glob("*.json")]
    assert record["outcome"] == "ok"
    assert record["engine"]["origin"].endswith("/.cache/nixwulf/engines/llama.cpp/bin/llama-bench")
    engines = [c["argv"][0] for c in record["commands"] if "llama" in c["argv"][0]]
    assert len(engines) >= 2
    assert all("/nixwulf/engines/llama.cpp/bin/" in engine for engine in engines)


def test_a_toolbox_is_held_to_a_digest_and_pulled_by_it_on_all_nodes(nixwulf, nodes, own, file):
    """podman is a stand-in that keeps its command lines: this machine need not have it."""
    digest = f"sha256:{'a' * 64}"
    image = "docker.io/me/box"
    lock = file.with_name("mine.lock.json")
    entry = {"image": image, "tag": "new", "digest": digest}
    lock.write_text(json.dumps({"version": 1, "images": {"box": {**entry, "tag": None}}}))
    script = 'echo "$*" >>/tmp/podman; case "$1" in run) echo /usr/bin/llama-bench ;; esac'
    put(own, "podman", script)
    try:
        done = nixwulf("engines", "install", "--toolbox", "box")
        assert done.stdout.splitlines() == [
            f"{name}: {image}@{digest} has llama-bench" for name in nodes
        ]
        for node in nodes.values():
            asked = node.script("cat /tmp/podman; rm /tmp/podman").splitlines()
            assert asked[0] == f"pull --quiet {image}@{digest}"
        assert nixwulf("engines", "remove", "--toolbox", "box").stdout.count(": removed") == 3
        assert f"image rm {image}@{digest}" in nodes["n3"].script("cat /tmp/podman")
    finally:
        (own / "podman").unlink()
    done = nixwulf("engines", "install", "--toolbox", "box", expect=1)
    assert "lacks podman; install it, or leave out --toolbox." in done.stderr


def hide_in(node, folder):
    node.script(f"mount -t tmpfs tmpfs {folder}")
    return lambda: node.script(f"umount {folder}")
