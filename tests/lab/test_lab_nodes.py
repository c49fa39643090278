"""What a node of a lab is: a machine of its own, as far as the driver and the engines can see."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_under_test import Running, cluster_of

from nixwulf.inventory.cluster import Shape
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


def test_one_connection_carries_many_sessions_at_once(running: Running) -> None:
    running.out("n1", "true")
    argv = ["ssh", "-F", str(running.lab.ssh_config), "n1", "sleep 0.2; echo done"]
    sessions = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(20)]
    assert [session.communicate(timeout=30)[0] for session in sessions] == ["done\n"] * 20


def test_a_command_leaves_with_its_own_exit_code(running: Running) -> None:
    assert running.ssh("n1", "exit 42").returncode == 42
