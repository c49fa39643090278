"""Nodes whose login shell, programs or ssh settings are other than usual: one sentence, or none."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from lab_under_test import cluster_of

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes import link
from nixwulf.nodes.facts import gather
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection, Unreachable
from nixwulf.nodes.transfer import put
from nixwulf.ops.preflight import preflight

FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")


@pytest.fixture(scope="module")
def lab(bring_up):
    running = bring_up(cluster_of(2, cable=Shape()), "odd")
    yield running.lab
    running.lab.down()


@pytest.fixture
def node(nodes):
    return nodes["n1"]


@pytest.fixture
def files(lab):
    """The files of the first node, which are as they were afterwards."""
    folder = lab.files.node("n1")
    passwd = (folder / "passwd").read_text()
    yield folder
    (folder / "passwd").write_text(passwd)
    (folder / "home" / ".bashrc").unlink(missing_ok=True)
    shutil.rmtree(folder / "home" / "programs", ignore_errors=True)


def log_in_by(files, shell):
    passwd = files / "passwd"
    passwd.write_text(re.sub(r"^(root:.*:)[^:]*$", rf"\1{shell}", passwd.read_text(), flags=re.M))


def without(files, name, instead=None):
    """Leave a program out of the node's PATH, or put another in its place."""
    programs = files / "home" / "programs"
    programs.mkdir()
    for folder in map(Path, FOLDERS):
        for program in folder.iterdir() if folder.is_dir() else ():
            place = programs / program.name
            if program.name != name and not place.is_symlink():
                place.symlink_to(program)
    if instead:
        (programs / name).symlink_to(instead)
    log_in_by(files, "/bin/bash")
    (files / "home" / ".bashrc").write_text("PATH=$HOME/programs\n")


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("/usr/bin/tcsh", r"login shell is '/usr/bin/tcsh' \(Unmatched '''\."),
        ("/bin/true", r"is none that runs commands \(it printed nothing\)"),
        ("/usr/sbin/nologin", r"is none that runs commands \(This account is currently not"),
    ],
)
def test_a_login_shell_that_is_none_of_posix_is_named_with_what_to_do(node, files, shell, words):
    if not Path(shell).exists():
        pytest.skip(f"this machine has no {shell}; apt-get install it")
    log_in_by(files, shell)
    with pytest.raises(Unreachable, match=words) as error:
        node.open()
    assert "'n1' runs no commands of a POSIX shell" in error.value.message
    assert error.value.message.endswith("set another there by 'chsh -s /bin/bash'.")


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/bash", "/bin/sh", "/usr/bin/zsh"])
def test_a_login_shell_of_posix_is_taken(node, files, shell):
    if not Path(shell).exists():
        pytest.skip(f"this machine has no {shell}")
    log_in_by(files, shell)
    node.open()


def test_a_login_shell_that_prints_text_is_named_with_the_text_and_what_to_do(node, files):
    log_in_by(files, "/bin/bash")
    (files / "home" / ".bashrc").write_text("echo Welcome to n1\n")
    with pytest.raises(Unreachable) as error:
        node.open()
    assert "prints 'Welcome to n1' before the output of every command" in error.value.message
    assert "~/.bashrc" in error.value.message
    (files / "home" / ".bashrc").write_text("echo 'stty: not a tty' >&2\n")
    node.open()


def test_preflight_refuses_such_a_node_alone(lab, nodes, files):
    log_in_by(files, "/bin/bash")
    (files / "home" / ".bashrc").write_text("echo Welcome\n")
    refused = preflight(lab.cluster, nodes).of("refused")
    assert [(result.gate, result.node) for result in refused] == [("ssh", "n1")]


def test_a_node_without_grep_is_named_before_anything_runs(nodes, files):
    without(files, "grep")
    with pytest.raises(NixwulfError, match=r"'n1' lacks 'grep' on PATH.*; install it there"):
        gather(nodes.values(), ())


def test_a_ping_that_forbids_no_fragments_is_named_and_no_mtu_is_blamed(lab, nodes, files):
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("this machine has no busybox; apt-get install it")
    without(files, "ping", busybox)
    found = preflight(lab.cluster, nodes, gates=["path-mtu"])
    (result,) = [result for result in found.results if result.sentences]
    assert (result.gate, result.node, result.state) == ("path-mtu", "n1", "unknown")
    assert "ping of node 'n1' has no option '-M do'" in result.sentences[0]
    other = nodes["n2"].node.fabrics["cable"].address
    trips = link.round_trips(nodes["n1"], other, count=3)
    assert trips is not None
    assert len(trips.samples) == 3


SETTINGS = (
    "RemoteCommand echo of-the-user",
    "StdinNull yes",
    "ForkAfterAuthentication yes",
    "SessionType none",
    "SessionType subsystem",
    "RequestTTY force",
)


@pytest.mark.parametrize("settings", [*([one] for one in SETTINGS), SETTINGS])
def test_a_users_settings_that_change_commands_change_none_of_the_drivers(lab, tmp_path, settings):
    config = tmp_path / "config"
    config.write_text("\n".join([*settings, f"Include {lab.ssh_config}"]) + "\n")
    node = Connection(lab.cluster.nodes[0], ("-F", str(config), "-o", f"ControlPath={tmp_path}/c"))
    try:
        node.open()
        assert node.run(["echo", "ours"]).stdout == "ours\n"
        assert node.script('echo "$1"', "ours") == "ours\n"
        (tmp_path / "file").write_text("ours\n")
        put(node, tmp_path / "file", "/tmp/of-the-driver")
        assert node.first_bytes("/tmp/of-the-driver", 9) == b"ours\n"
        process = OwnedProcess.start(node, "it", ["echo", "ours"], {}, tmp_path / "raw")
        until(lambda: not process.running)
        assert (process.returncode, process.output) == (0, "ours\n")
        with node.forwarded("/tmp/of-a-server") as local:
            assert local.is_socket()
    finally:
        node.close()


def test_a_long_tmpdir_takes_no_socket_with_it(node, tmp_path, monkeypatch):
    long = tmp_path / ("t" * 240)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert tempfile.gettempdir() == str(long)
    node.open()
    with node.forwarded("/tmp/of-a-server") as local:
        assert local.is_socket()
        assert len(os.fsencode(local)) < 108


def test_who_holds_the_output_of_a_program_that_has_ended_makes_no_hang(node, tmp_path):
    """What clears its environment and has a session of its own is not known to be ours."""
    node.open()
    script = """
    env -i setsid sleep 3031 & until grep -qx sleep "/proc/$!/comm"; do :; done; echo "$!"; exit 4
    """
    process = OwnedProcess.start(node, "held", ["sh", "-c", script], {}, tmp_path)
    until(lambda: not process.running)
    assert process.returncode == 4
    node.script('kill "$1"', process.output.strip())


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
