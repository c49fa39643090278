"""A host key that the cluster file pins, against a real sshd with that key and with another."""

import re
import shutil
import subprocess

import pytest
from deploy_under_test import Desk
from lab_under_test import cluster_of

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Shape, load_cluster
from nixwulf.nodes.ssh import connections
from nixwulf.ops.deploy.install import pinned_ssh

WRONG = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi other"
# What nixos-anywhere gives its ssh, before anything that it is told to add.
UNCHECKED = ("-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no")


@pytest.fixture(scope="module")
def nodes(bring_up):
    running = bring_up(cluster_of(2, cable=Shape()), "keys")
    yield running
    running.lab.down()


@pytest.fixture
def desk(nodes, tmp_path):
    made = Desk.make(nodes, tmp_path)
    yield made
    made.close()


@pytest.fixture
def pinned(desk):
    """A cluster file with a host key for each node."""

    def write(first, second):
        lines = desk.cluster().read_text().splitlines()
        keys = iter((first, second))
        text = "".join(
            f'{line}\nhost_key = "{next(keys)}"\n' if line.startswith("disk") else f"{line}\n"
            for line in lines
        )
        path = desk.folder / "pinned.toml"
        path.write_text(text)
        return path

    return write


def key_of(desk, node):
    return (desk.running.lab.state / "nodes" / node / "host_key.pub").read_text().strip()


def test_a_node_with_the_pinned_key_is_reached_and_one_with_another_is_not(desk, pinned):
    cluster = pinned(key_of(desk, "n1"), WRONG)
    done = desk.nixwulf("nodes", "exec", "--cluster", cluster, "--", "hostname")
    assert done.returncode == 3
    assert done.stdout == "n1: n1\n"
    assert re.fullmatch(
        "Node 'n2' cannot be reached: it has another host key than the host_key of node 'n2' in "
        "the cluster file; correct host_key if the machine was replaced or booted an installer of "
        "its own; try 'ssh n2 true'.\n",
        done.stderr,
    )


def test_a_connection_that_was_opened_before_the_key_was_pinned_is_not_used(desk, pinned):
    first = desk.nixwulf("nodes", "exec", "--cluster", desk.cluster(), "--", "true")
    assert first.returncode == 0, first.stderr
    done = desk.nixwulf("nodes", "exec", "--cluster", pinned(WRONG, WRONG), "--", "true")
    assert done.returncode == 3
    assert done.stderr.count("another host key") == 2


def test_deploy_does_not_go_near_a_node_with_another_key(desk, pinned):
    cluster = pinned(WRONG, key_of(desk, "n2"))
    done = desk.nixwulf("preflight", "--cluster", cluster, "--only", "facts")
    assert done.returncode == 3
    assert "not reached  Node 'n1' cannot be reached: it has another host key" in done.stdout
    assert "'n2' runs " in done.stdout


def installing(desk, connection):
    """What nixos-anywhere's ssh gives it of the node."""
    program = desk.folder / "pinned-ssh"
    program.write_text(pinned_ssh(connection))
    program.chmod(0o755)
    command = [str(program), *UNCHECKED, "n1", "hostname"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("right", [True, False])
def test_the_ssh_that_nixos_anywhere_gets_checks_a_pinned_key_whatever_options_it_gets(
    desk, pinned, monkeypatch, right
):
    key = key_of(desk, "n1") if right else WRONG
    monkeypatch.setenv("XDG_RUNTIME_DIR", desk.environment["XDG_RUNTIME_DIR"])
    connection = connections(load_cluster(pinned(key, key)))["n1"]
    monkeypatch.setenv("PATH", desk.environment["PATH"])
    done = installing(desk, connection)
    assert done.stdout == ("n1\n" if right else "")
    assert done.returncode == (0 if right else 255), done.stderr


@pytest.fixture
def reached(desk, monkeypatch):
    """A node that was reached by the user's own known_hosts, whose file is given too."""
    known = desk.folder / "known_hosts"
    config = desk.running.lab.ssh_config.read_text()
    own = desk.running.lab.state / "known_hosts"
    known.write_text(own.read_text())
    assert str(own) in config
    (desk.folder / "config").write_text(config.replace(str(own), str(known)))
    desk.program("ssh", f'exec {shutil.which("ssh")} -F {desk.folder}/config "$@"')
    for name in ("XDG_RUNTIME_DIR", "PATH"):
        monkeypatch.setenv(name, desk.environment[name])
    connection = connections(load_cluster(desk.cluster()))["n1"]
    connection.open()
    return connection, known


def test_without_host_key_installing_demands_the_key_by_which_the_node_was_reached(desk, reached):
    connection, known = reached
    assert installing(desk, connection).stdout == "n1\n"
    name = known.read_text().split()[0]
    known.write_text(f"{name} {WRONG}\n")
    done = installing(desk, connection)
    assert (done.returncode, done.stdout) == (255, "")


def test_no_node_is_installed_of_which_ssh_keeps_no_host_key(desk, reached):
    connection, known = reached
    config = desk.folder / "config"
    config.write_text(config.read_text().replace(f'"{known}"', "/dev/null"))
    with pytest.raises(InputError, match="UserKnownHostsFile is '/dev/null'"):
        pinned_ssh(connection)
