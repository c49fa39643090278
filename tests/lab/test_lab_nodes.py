"""What a node of a lab is: a machine of its own, as far as the driver and the engines can see."""

from __future__ import annotations

import ipaddress
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_under_test import Running, cluster_of

from nixwulf.inventory.cluster import Shape
from nixwulf.nodes import counters
from nixwulf.nodes.ssh import Connection
from stand_in import put


@pytest.fixture(scope="module")
def running(
    bring_up: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    programs = tmp_path_factory.mktemp("programs")
    for name in ("nproc", "engine"):
        put(programs, name, "echo deployed")
    cluster = cluster_of(3, plain=Shape(), jumbo=Shape(delay_us=200))
    running = bring_up(cluster, "nodes", path=[programs])
    yield running
    running.lab.down()


def test_a_node_has_its_own_host_name(running: Running) -> None:
    assert [running.out(node, "hostname") for node in ("n1", "n2", "n3")] == ["n1", "n2", "n3"]


def test_a_node_sees_its_own_processes_only(running: Running) -> None:
    seen = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    running.out("n1", "sleep 98.7 >/dev/null 2>&1 &")
    assert "sleep 98.7" in running.out("n1", seen)
    assert "sleep 98.7" not in running.out("n2", seen)
    assert "sleep 98.7" in Path(f"/proc/{_host_pid('sleep 98.7')}/cmdline").read_text().replace(
        "\0", " "
    )


def _host_pid(command: str) -> str:
    listed = subprocess.run(["pgrep", "-f", command], capture_output=True, text=True, check=True)
    return listed.stdout.split()[0]


def test_a_kill_of_all_processes_by_name_stays_on_its_node(running: Running) -> None:
    for node in ("n1", "n2"):
        running.out(node, "sleep 87.6 >/dev/null 2>&1 &")
    running.out("n1", "pkill -f '^sleep 87.6'")
    assert running.ssh("n1", "pgrep -f '^sleep 87.6'").returncode == 1
    assert running.ssh("n2", "pgrep -f '^sleep 87.6'").returncode == 0


@pytest.mark.parametrize("folder", ["/tmp", "/run", "/dev/shm", "$HOME"])
def test_a_file_of_one_node_is_not_on_another(running: Running, folder: str) -> None:
    running.out("n1", f"touch {folder}/nixwulf-mine")
    assert running.ssh("n2", f"test -e {folder}/nixwulf-mine").returncode == 1
    assert folder == "$HOME" or not (Path(folder) / "nixwulf-mine").exists()


def test_a_node_has_the_interfaces_addresses_and_mtus_of_its_cluster(running: Running) -> None:
    for node in running.lab.cluster.nodes:
        for fabric, attachment in node.fabrics.items():
            shown = running.out(node.name, f"ip -o addr show {attachment.interface}")
            assert f" {attachment.address}/24 " in shown
            mtu = running.out(node.name, f"cat /sys/class/net/{attachment.interface}/mtu")
            assert int(mtu) == running.lab.cluster.fabrics[fabric].mtu


def test_a_packet_of_the_largest_mtu_passes_whole(running: Running) -> None:
    address = running.address("n2", "jumbo")
    assert running.ssh("n1", f"ping -n -c 1 -M do -s 65492 {address}").returncode == 0
    assert running.ssh("n1", f"ping -n -c 1 -M do -s 65493 {address}").returncode != 0


def test_ssh_runs_over_the_management_network_and_never_over_a_fabric(running: Running) -> None:
    client, _, server, _ = running.out("n1", "echo $SSH_CONNECTION").split()
    fabrics = running.lab.cluster.fabrics.values()
    for address in (client, server):
        assert not any(address.startswith(str(f.subnet).rpartition(".")[0]) for f in fabrics)


def test_nodes_reach_each_other_over_ssh_by_name(running: Running) -> None:
    assert running.out("n1", "ssh n3 hostname") == "n3"


def test_ssh_refuses_a_node_with_another_host_key(running: Running, tmp_path: Path) -> None:
    lines = (
        (running.lab.state / "known_hosts").read_text().replace("n1,", "x,").replace("n2,", "n1,")
    )
    (tmp_path / "known_hosts").write_text(lines)
    fresh = ("-o", "ControlPath=none", "-o")
    refused = running.ssh("n1", "true", *fresh, f"UserKnownHostsFile={tmp_path}/known_hosts")
    assert refused.returncode == 255
    assert "host key" in refused.stderr.lower()
    assert running.ssh("n1", "true", "-o", "ControlPath=none").returncode == 0


def test_folders_given_to_up_come_first_on_the_nodes_path(running: Running) -> None:
    assert running.out("n2", "engine; nproc") == "deployed\ndeployed"


def test_a_program_of_a_virtual_environment_below_tmp_finds_what_it_imports(
    bring_up: Callable[..., Running], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "V"], check=True)
    (packages,) = (tmp_path / "V").glob("lib/python*/site-packages")
    (packages / "its_own.py").write_text("print('imported')\n")
    # no output: a program of the test's own
    put(tmp_path / "V" / "bin", "engine", f"#!{tmp_path}/V/bin/python\nimport its_own")
    running = bring_up(cluster_of(2, plain=Shape()), "venv", path=[tmp_path / "V" / "bin"])
    try:
        assert running.out("n1", "engine") == "imported"
    finally:
        running.lab.down()


_HEAR = """
import socket, struct
heard = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
heard.bind(("::", 52413))
place = socket.if_nametoindex({interface!r})
group = socket.inet_pton(socket.AF_INET6, "ff12::e0a1:de89") + struct.pack("@I", place)
heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
heard.settimeout(20)
open("/tmp/listens", "w").close()
print(heard.recvfrom(100)[1][0].partition("%")[0])
"""
_SAY = """
import socket, time
said = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for _ in range(20):
    said.sendto(b"here", ("ff12::e0a1:de89", 52413, 0, socket.if_nametoindex({interface!r})))
    time.sleep(0.1)
"""


@pytest.mark.parametrize("fabric", ["plain", "jumbo"])
def test_programs_meet_by_ipv6_multicast_on_a_fabric_as_exo_does(
    running: Running, fabric: str
) -> None:
    # The group and port of exo b5375f8: rust/networking/src/discovery.rs.
    ends = [node.fabrics[fabric] for node in running.lab.cluster.nodes]
    hear = shlex.quote(_HEAR.format(interface=ends[1].interface))
    say = shlex.quote(_SAY.format(interface=ends[0].interface))
    argv = [
        "ssh",
        "-F",
        str(running.lab.ssh_config),
        "n2",
        f"rm -f /tmp/listens; python3 -c {hear}",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as hearing:
        running.out("n2", "until [ -e /tmp/listens ]; do sleep 0.1; done")
        running.out("n1", f"python3 -c {say}")
        heard, _ = hearing.communicate(timeout=30)
    assert ipaddress.ip_address(heard.strip()) == ipaddress.ip_address(f"fe80::{ends[0].address}")


def test_the_counters_of_a_node_know_the_drivers_own_connection(running: Running) -> None:
    node = Connection(running.lab.cluster.nodes[0], ("-F", str(running.lab.ssh_config)))
    before = counters.read([node])["n1"]
    node.script("head -c 3000000 /dev/zero")
    after = counters.read([node])["n1"]
    grown = after.interfaces[after.management or ""] - before.interfaces[before.management or ""]
    assert 3_000_000 < after.own - before.own < 3_400_000
    assert abs(grown - (after.own - before.own)) < 200_000


def test_one_connection_carries_many_sessions_at_once(running: Running) -> None:
    running.out("n1", "true")
    argv = ["ssh", "-F", str(running.lab.ssh_config), "n1", "sleep 0.2; echo done"]
    sessions = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(20)]
    assert [session.communicate(timeout=30)[0] for session in sessions] == ["done\n"] * 20


def test_a_command_leaves_with_its_own_exit_code(running: Running) -> None:
    assert running.ssh("n1", "exit 42").returncode == 42
