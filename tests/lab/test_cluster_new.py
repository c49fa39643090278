"""A cluster file of what the nodes of a lab say: every attachment right, and none invented.

The nodes have decoys, planted by ip in their own namespaces; they are reached by an ssh config, or
as machines are, by a wrapper that stands for the user's ssh.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from lab_under_test import cluster_of

from nixwulf.inventory.cluster import Shape, load_cluster
from nixwulf.nodes.ssh import connections, each
from stand_in import put

FABRICS = ("office", "switch", "jumbo", "backup")
# $1: the node's number. An interface of containers, which all have at the same address and which
# has an end of theirs; a port without a cable; a second subnet on a wire; a wire to nobody.
DECOYS = """
set -e
ip -batch - <<END
link add docker0 type bridge
address add 172.17.0.1/16 dev docker0
link add container0 type veth peer name container1
link set container0 master docker0 up
link set container1 up
link set docker0 up
link add unplugged0 type veth peer name unplugged1
address add 10.98.0.$1/24 dev unplugged0
link set unplugged0 up
address add 10.99.0.$1/24 dev switch
link add alone0 type veth peer name alone1
address add 10.97.$1.1/24 dev alone0
link set alone0 up
link set alone1 up
END
"""
SWEEP = """
name: first
models: {tiny: {random: {layers: 2}}}
matrix:
  model: [tiny]
  nodes: [2, 16]
  parallelism: [pipeline]
  parameters: {n_prompt: [16], n_gen: [8]}
"""


@pytest.fixture(scope="module")
def machines(bring_up):
    running = bring_up(cluster_of(16, **dict.fromkeys(FABRICS, Shape())), "new16")
    nodes = connections(running.lab.cluster, running.lab.ssh_config).values()
    each(lambda one: one.script(DECOYS, one.node.name.removeprefix("n")), nodes)
    yield running
    running.lab.down()


@pytest.fixture
def nixwulf(machines, tmp_path):
    """The command line of a user whose ssh knows the nodes."""
    script = f'exec {shutil.which("ssh")} -F {machines.lab.ssh_config} "$@"'
    path = put(tmp_path / "bin", "ssh", script).parent

    def run(*arguments):
        command = [sys.executable, "-m", "nixwulf", *map(str, arguments)]
        environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    return run


@pytest.fixture(scope="module")
def written(machines, tmp_path_factory):
    """The file of all sixteen, by the lab's ssh config."""
    file = tmp_path_factory.mktemp("new") / "mine.toml"
    command = ["cluster", "new", "--from", str(machines.lab.ssh_config), "--output", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "nixwulf", *command],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return file, done.stderr


def test_every_attachment_of_sixteen_nodes_is_right_and_none_is_invented(machines, written):
    file, _ = written
    found = load_cluster(file)
    true = machines.lab.cluster
    assert found.name == "mine"
    assert [node.name for node in found.nodes] == [node.name for node in true.nodes]
    for ours, theirs in zip(found.nodes, true.nodes, strict=True):
        places = {(end.interface, end.address) for end in ours.fabrics.values()}
        management = f"10.77.0.{ours.name.removeprefix('n')}"
        assert places == {
            *((end.interface, end.address) for end in theirs.fabrics.values()),
            ("mgmt0", management),
        }
    assert {f"lan-{name}" for name in (*FABRICS, "mgmt0")} == found.fabrics.keys()
    for name in FABRICS:
        fabric = found.fabrics[f"lan-{name}"]
        assert (fabric.subnet, fabric.mtu) == (true.fabrics[name].subnet, true.fabrics[name].mtu)
        assert (fabric.kind, fabric.speed_gbps) == ("ethernet", 10)
        assert len(found.nodes_on(fabric.name)) == 16


def test_what_is_left_out_is_listed_with_the_reason(written):
    file, said = written
    comments = " ".join(
        line.removeprefix("# ") for line in file.read_text().splitlines() if line.startswith("#")
    )
    for words in (
        "docker0 of every node (172.17.0.1/16): of containers or virtual machines",
        "unplugged0 of every node (10.98.0.1/24, 10.98.0.2/24, 10.98.0.3/24, 10.98.0.4/24 and 12 "
        "more): nothing is plugged in.",
        "switch of every node (10.99.0.1/24, 10.99.0.2/24, 10.99.0.3/24, 10.99.0.4/24 and 12 "
        "more): a second address on one wire",
        "alone0 of every node (10.97.1.1/24, 10.97.2.1/24, 10.97.3.1/24, 10.97.4.1/24 and 12 "
        "more): no other machine has an address in this subnet.",
        "ssh takes this network too.",
    ):
        assert words in comments
    assert f"Wrote {file}; go on with 'nixwulf preflight --cluster {file}'." in said


def test_the_file_passes_its_checks_and_a_sweep_plans_on_it(nixwulf, written, tmp_path):
    file, _ = written
    checked = nixwulf("preflight", "--cluster", file, "--only", "file")
    assert checked.returncode == 0, checked.stderr
    sweep = tmp_path / "first.yaml"
    sweep.write_text(SWEEP)
    planned = nixwulf("bench", sweep, "--cluster", file, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    for name in FABRICS:
        assert f"lan-{name}" in planned.stdout


def test_the_file_agrees_with_the_machines_until_a_value_is_changed(nixwulf, written, tmp_path):
    two = written[0].read_text().split("[[nodes]]")
    file = tmp_path / "two.toml"
    file.write_text("[[nodes]]".join(two[:3]))
    for words in (("cluster", "check", file), ("cluster", "new", "--check", file)):
        done = nixwulf(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "All 2 nodes answer and are on their fabrics." in done.stdout
    head, table, tail = file.read_text().partition("[fabrics.lan-backup]")
    file.write_text(head + table + tail.replace("speed_gbps = 10", "speed_gbps = 40", 1))
    done = nixwulf("cluster", "check", file)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "fabrics.lan-backup: its speed is 40 Gbit/s in the file, and 10 by what" in done.stdout


def test_an_mtu_that_does_not_pass_is_not_written(machines, nixwulf):
    for node in ("n1", "n2"):
        machines.out(node, "ip link set backup mtu 9000")
    try:
        done = nixwulf("cluster", "new", "n1", "n2")
    finally:
        for node in ("n1", "n2"):
            machines.out(node, "ip link set backup mtu 1500")
    assert done.returncode == 0, done.stderr
    assert tomllib.loads(done.stdout)["fabrics"]["lan-backup"]["mtu"] == 1500
    assert "# The interfaces have MTU 9000; what is between them passes 1500." in done.stdout


def test_who_cannot_be_reached_is_in_the_file_with_a_warning_and_on_no_fabric(machines, nixwulf):
    machines.out("n2", "sysctl -q -w net.ipv4.icmp_echo_ignore_all=1")
    try:
        done = nixwulf("cluster", "new", "n1", "n2")
    finally:
        machines.out("n2", "sysctl -q -w net.ipv4.icmp_echo_ignore_all=0")
    assert done.returncode == 0, done.stderr
    assert "Warning: no two of these machines reach each other on a wire" in done.stderr
    document = tomllib.loads(done.stdout)
    assert document["fabrics"] == {}
    assert [node["name"] for node in document["nodes"]] == ["n1", "n2"]
    assert "# switch of n2 (10.90.1.12/24): reaches n1, which does not" in done.stdout


def test_two_names_of_one_machine_are_refused(machines, nixwulf, tmp_path):
    config = machines.lab.ssh_config.read_text()
    both = re.sub(r"^Host n1\b", "Host n1 again", config, flags=re.MULTILINE)
    aliased = tmp_path / "config"
    aliased.write_text(f"Host again\n  HostKeyAlias n1\n{both}")
    done = nixwulf("cluster", "new", "--from", aliased, "n1", "n2", "again")
    assert done.returncode == 2, done.stderr
    assert "'n1' and 'again' are one machine, 'n1', by its network cards; leave" in done.stderr
    assert done.stdout == ""


def test_a_host_that_does_not_answer_is_named_and_nothing_is_written(nixwulf):
    done = nixwulf("cluster", "new", "n1", "no-such-host")
    assert done.returncode == 3
    assert "Node 'no-such-host' cannot be reached: " in done.stderr
    assert "try 'ssh no-such-host true'" in done.stderr
    assert done.stdout == ""
