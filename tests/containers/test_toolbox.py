"""llama.cpp in a real container of podman on a node of the lab.

Opt-in (NIXWULF_PODMAN=1): it needs root, podman, crun and busybox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import container, lab
from nixwulf.nodes.process import OwnedProcess, unit_name
from nixwulf.nodes.ssh import connections, open_all
from nixwulf.plugins.engines import find
from nixwulf.results.record import load, save
from nixwulf.sweep import session as bench
from nixwulf.sweep.plan import make_plan, parse_sweep
from stand_in import put

pytestmark = pytest.mark.skipif(
    os.environ.get("NIXWULF_PODMAN") != "1",
    reason="containers are opt-in: set NIXWULF_PODMAN=1 where podman, crun and busybox are",
)

APPLETS = ("sh", "env", "sleep")
# Each node has a store of its own, as machines have. In a lab, podman finds no cgroups to disable,
# and without CAP_SYS_RESOURCE it cannot raise the limits that it raises by itself.
PODMAN = """#!/bin/sh
store=/run/podman-of-the-test
podman() { command %(podman)s --root $store/root --runroot $store/run "$@"; }
if ! [ -e $store ]; then
  mkdir $store
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  podman load --quiet --input %(archive)s >/dev/null
fi
if [ "$1" = run ]; then
  shift; set -- run --ulimit=nofile=1024:1024 --ulimit=nproc=4096:4096 "$@"
fi
exec %(podman)s --root $store/root --runroot $store/run "$@"
"""


def root_of_llama_cpp(folder: Path) -> Path:
    """A tar of a root with llama.cpp, what it links to, and a shell."""
    programs = find("llama.cpp").install_local(lambda step, share: None).programs.values()
    files = {Path("/bin/busybox"): "bin/busybox"}
    for program in programs:
        files[program] = f"usr/bin/{program.name}"
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        for word in linked.stdout.split():
            if word.startswith("/"):
                files[Path(word)] = word.lstrip("/")
    path = folder / "root.tar"
    with tarfile.open(path, "w") as tar:
        for file, name in files.items():
            tar.add(file.resolve(), name)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name in ("tmp", "root", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return path


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """An archive of an image of llama.cpp, and its reference by digest once it is loaded."""
    folder = tmp_path_factory.mktemp("image")
    name = "localhost/nixwulf/llama.cpp"
    archive = folder / "image.oci"

    def podman(store, *arguments):
        stores = ["--root", folder / store, "--runroot", folder / f"{store}-run"]
        done = subprocess.run(
            ["podman", *stores, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    podman("made", "import", root_of_llama_cpp(folder), f"{name}:test")
    podman("made", "save", "--format", "oci-archive", "--output", archive, f"{name}:test")
    podman("loaded", "load", "--input", archive)
    digest = podman("loaded", "image", "inspect", "--format", "{{.Digest}}", f"{name}:test")
    return archive, f"{name}@{digest}"


@pytest.fixture(scope="module")
def nodes(image, tmp_path_factory):
    """A lab whose nodes have podman with the image, and no llama.cpp of their own."""
    folder = tmp_path_factory.mktemp("bin")
    put(folder, "podman", PODMAN % {"podman": shutil.which("podman"), "archive": image[0]})
    cluster = load_cluster("lab")
    up = lab.up(cluster, name=f"toolbox-{os.getpid()}", path=[folder, image[0].parent])
    try:
        session = bench.Session(cluster, connections(cluster, up.ssh_config), up)
        assert open_all(session.nodes.values()) == {}
        yield session
    finally:
        up.down()


def plan_for(toolbox, **limits):
    matrix = {
        "model": ["tiny"],
        "nodes": [2],
        "fabric": ["rdma-like"],
        "parallelism": ["pipeline"],
        "parameters": {"n_prompt": [16], "n_gen": [4], "threads": [1], "toolbox": [toolbox]},
    }
    document = {"name": "boxed", "models": {"tiny": {"random": {}}}, "matrix": matrix}
    limits = {"limits": {"wall_s": 200, "progress_s": 60, **limits}, "samples": 2}
    return make_plan(parse_sweep({**document, **limits}, "boxed.yaml"), load_cluster("lab"))


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def containers(nodes):
    return "".join(
        node.run(["podman", "ps", "--all", "--quiet"]).stdout for node in nodes.nodes.values()
    )


def llama_processes(nodes):
    script = "grep -ls -e rpc-server -e llama- /proc/[0-9]*/comm || true"
    return "".join(node.script(script) for node in nodes.nodes.values())


def test_a_run_in_a_toolbox_is_a_run_and_leaves_no_container(nodes, image, tmp_path):
    plan = plan_for(image[1])
    record = bench.run_one(nodes, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
    save(record, tmp_path / "record.json")
    assert load(tmp_path / "record.json")["outcome"] == "ok", record.get("failure")
    assert record["engine"]["image"] == image[1]
    assert record["case"]["parameters"]["toolbox"] == image[1]
    assert record["sanity"]["text"]["agrees"]
    assert all(command["argv"][0] == "podman" for command in record["commands"])
    assert containers(nodes) == ""


def test_a_run_that_is_cut_off_leaves_no_container_either(nodes, image, tmp_path):
    plan = plan_for(image[1])

    def lose_the_driver(phase):
        if phase == "measure":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run_one(nodes, plan, tmp_path, plan.cases[0], 0, lose_the_driver)
    until(lambda: not containers(nodes) and not llama_processes(nodes))


def test_a_container_that_ignores_term_ends_with_the_drivers_ssh_client(nodes, image, tmp_path):
    node = nodes.nodes["n3"]
    box = container.look(node, image[1], "", ["sh"])
    assert isinstance(box, container.Toolbox)
    name = unit_name(tmp_path, "stubborn")
    argv = box.argv(name, ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], {})
    after = container.removal(name)
    process = OwnedProcess.start(node, "stubborn", argv, {}, tmp_path, after=after)
    until(lambda: containers(nodes))
    process._client.kill()
    until(lambda: not containers(nodes))


def test_a_node_without_the_image_is_a_gate_that_says_what_to_pull(nodes, tmp_path):
    missing = f"localhost/other@sha256:{'0' * 64}"
    plan = plan_for(missing)
    record = bench.run_one(nodes, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
    assert record["outcome"] == "skipped"
    assert f"run 'podman pull {missing}' there" in record["failure"]["reason"]
