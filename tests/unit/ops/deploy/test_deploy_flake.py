"""What the driver asks of a flake, and what of an answer it takes."""

import json
import os
import shutil
import stat
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from machine_factory import KEY, cluster_of, machine
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.deploy import flake, install, refusals
from nixwulf.ops.deploy.flake import store_address
from nixwulf.ops.deploy.install import Target, bring_command, build_command
from stand_in import put

NODE = cluster_of("fw1").nodes[0]
CONNECTION = Connection(NODE, ())
BUILT = flake.Built("/nix/store/x.drv", "/nix/store/x")


def test_one_evaluation_asks_for_all_nodes_and_a_dot_in_a_name_does_not_divide_it():
    command = flake.evaluation(".", "nixosConfigurations", ["a.b-n1", "a.b-n2"], "s: s.config.x")
    assert command[-4:-1] == ["--json", ".#nixosConfigurations", "--apply"]
    assert command[-1].endswith('else null) { "a.b-n1" = null; "a.b-n2" = null; }')
    assert flake.installable(".", "a.b-n1") == (
        '.#nixosConfigurations."a.b-n1".config.system.build.toplevel'
    )


@pytest.mark.parametrize("reference", ["", "--impure", ".#x", "-f"])
def test_a_reference_that_is_an_option_or_has_an_attribute_is_refused(reference):
    with pytest.raises(InputError, match="expected a flake without '#'"):
        flake.check_reference(reference)


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        ("", "it printed nothing"),
        ("warning: x\nerror: the first\n  … while\nerror: the last", "the last"),
        ("error:\n       … while\n       error: attribute 'x' missing", "attribute 'x' missing"),
        ("error:\nno more", "no more"),
    ],
)
def test_the_sentence_of_an_error_is_found_in_what_nix_prints(stderr, sentence):
    assert flake.error_of(stderr) == sentence


def test_without_nix_the_message_names_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install it" in flake.lacks_nix()


@pytest.mark.skipif(
    shutil.which("nix") is None or not Path("flake.nix").exists(),
    reason="there is no nix here, or no flake: this is the package's own check",
)
def test_the_repositorys_own_flake_formats_the_disk_of_its_cluster_file():
    node = load_cluster("mini-3").nodes[0]
    name = "mini-3-mini1"
    layout = flake.layouts(".", [name])[name]
    assert layout.disks == (node.disk,)
    assert len(layout.labels) == 2
    assert all(label.startswith(f"disk-{node.name}-") for label in layout.labels)
    with pytest.raises(InputError, match='has no nixosConfigurations."mini-3-none"; is the cl'):
        flake.layouts(".", ["mini-3-none"])


def test_a_flake_that_does_not_evaluate_is_named(tmp_path, monkeypatch):
    program = tmp_path / "nix"
    program.write_text("#!/bin/sh\necho 'error: infinite recursion' >&2\nexit 1\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InputError, match="'x' does not evaluate: infinite recursion; see all of"):
        flake.layouts("x", ["a"])


LISTS = {"disks": None, "labels": [], "modules": ["x"], "interfaces": None}


@pytest.mark.parametrize("ask", [flake.layouts, flake.systems])
@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"\xff\xfe{", b"null", b"[]", b'"a"', b'{"a": 7}', b'{"a": []}', b"[" * 100_000),
        json.dumps({"a": {**LISTS, "disks": "sda"}}).encode(),
        json.dumps({"a": {**LISTS, "labels": [1]}}).encode(),
        b'{"a": {"drv": "/nix/store/x.drv", "out": null, "disks": 1}}',
        b'{"a": {"drv": "x", "out": "x", "layout": {"disks": {}}, "labels": true}}',
    ],
)
def test_an_answer_of_nix_that_is_no_system_is_named(tmp_path, monkeypatch, ask, answer):
    (tmp_path / "answer").write_bytes(answer)
    put(tmp_path, "nix", f"printf '\\377' >&2; exec cat {tmp_path}/answer")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError, match="^nix answered for .*the flake 'x' with"):
        ask("x", ["a"])


@pytest.mark.parametrize("path", ["", "-rf", "x", "/nix/store/a b", "/nix/\ud800", "/nix/a\0b"])
def test_a_path_that_no_command_could_take_is_no_system(tmp_path, monkeypatch, path):
    (tmp_path / "answer").write_text(json.dumps({"a": {"drv": "/nix/store/x.drv", "out": path}}))
    put(tmp_path, "nix", f"exec cat {tmp_path}/answer")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError, match="which is no system"):
        flake.systems("x", ["a"])


@pytest.mark.parametrize("stream", [1, 2])
def test_a_nix_that_prints_for_ever_is_ended(tmp_path, monkeypatch, stream):
    put(tmp_path, "nix", f"exec yes /nix/store >&{stream}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(
        InputError, match=r"'x' does not evaluate: nix printed more than 8 MiB; see"
    ):
        flake.systems("x", ["a"])


def test_a_nix_that_does_not_end_is_ended(tmp_path, monkeypatch):
    put(tmp_path, "nix", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(flake, "_MOST_S", 0.5)
    with pytest.raises(InputError, match="'x' does not evaluate: nix took longer than 0"):
        flake.systems("x", ["a"])


def test_of_a_line_of_a_megabyte_the_sentence_has_both_ends(tmp_path, monkeypatch):
    put(tmp_path, "nix", "head -c 1000000 /dev/zero | tr '\\0' e >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError, match=r"'x' does not evaluate: e+ \.\.\. e+; see all") as error:
        flake.systems("x", ["a"])
    assert len(error.value.message) < 5000


def test_a_system_is_copied_or_where_it_cannot_be_built_here_built_on_the_node():
    connection = Connection(NODE, ())
    here = Target(connection, BUILT, ".#fw1", here=True)
    there = replace(here, here=False)
    assert build_command([there]) == []
    assert build_command([here, here, there])[-1] == "/nix/store/x.drv^out"
    assert bring_command(here)[-2:] == ["ssh-ng://root@192.168.1.10", "/nix/store/x"]
    assert bring_command(there)[-3:] == ["--store", "ssh-ng://root@192.168.1.10", ".#fw1"]


def test_a_node_of_another_cluster_is_not_updated(monkeypatch):
    target = Target(CONNECTION, BUILT, ".#fw1", here=True)
    cluster = cluster_of("fw1")

    def runs(found):
        monkeypatch.setattr(install, "gather_machines", lambda _: {"fw1": found})
        return [install.unfit(cluster, [target], other) for other in (None, "office")]

    none, expected = runs(machine(cluster="office"))
    assert none[0].startswith("Node 'fw1' runs a system of the cluster 'office', and mine.toml")
    assert expected == []
    assert runs(machine(cluster="mine")) == [[], []]
    assert runs(machine()) == [[], []]
    gone = NixwulfError("Node 'fw1' is gone.")
    assert runs(gone) == [["Node 'fw1' is gone."]] * 2


@pytest.mark.parametrize(
    ("ssh", "address"),
    [
        ("fw1", "ssh-ng://fw1"),
        ("root@fw1.lan", "ssh-ng://root@fw1.lan"),
        ("root@fd00::1", "ssh-ng://root@[fd00::1]"),
        ("fd00::1", "ssh-ng://[fd00::1]"),
    ],
)
def test_a_node_has_an_address_that_nix_reads(ssh, address):
    assert store_address(ssh) == address


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home without keys; an ssh that says which key file it would use, and no agent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(f"#!/bin/sh\necho identityfile {tmp_path}/elsewhere\n")
    agent = tmp_path / "bin" / "ssh-add"
    agent.write_text("#!/bin/sh\n[ -e ~/agent ] && cat ~/agent\n")
    for program in (ssh, agent):
        program.chmod(stat.S_IRWXU)
    return tmp_path


def test_a_user_without_a_key_is_refused_with_how_to_make_one(home):
    words = refusals.locked_out(cluster_of("fw1"), [CONNECTION])
    assert words.startswith("mine.toml: you have no public key in ~/.ssh or in your ssh agent")
    assert "ssh-keygen" in words


def test_a_user_with_another_key_is_refused_with_its_name(home):
    (home / ".ssh" / "id.pub").write_text(KEY.replace("AAAAC3", "AAAAC4"))
    words = refusals.locked_out(cluster_of("fw1"), [CONNECTION])
    assert "none of your 1 public keys (you@desk) is in deploy.ssh_keys" in words


@pytest.mark.repository
@pytest.mark.parametrize("place", [".ssh/id_ed25519.pub", "elsewhere.pub", "agent"])
def test_a_key_of_home_agent_or_configuration_lets_in_whatever_its_comment(home, place):
    (home / place).write_text(KEY.replace("you@desk", "another comment") + "\n")
    assert refusals.locked_out(cluster_of("fw1"), [CONNECTION]) is None


@pytest.mark.parametrize("example", tomllib.loads(refusals._EXAMPLE_KEYS.read_text())["keys"])
def test_the_examples_key_beside_ones_own_would_let_somebody_else_in(home, example):
    (home / ".ssh" / "id.pub").write_text(KEY)
    cluster = cluster_of("fw1")
    keys = [KEY, f"ssh-ed25519 {example} left over"]
    cluster = replace(cluster, document={**cluster.document, "deploy": {"ssh_keys": keys}})
    words = refusals.locked_out(cluster, [CONNECTION])
    assert words.endswith("by which somebody else could log in as root; remove its line.")


@pytest.mark.parametrize("junk", [b"\xff\xfe", b"", b"one-word\n"])
def test_a_file_that_is_no_key_is_left_out(home, junk):
    (home / ".ssh" / "id.pub").write_bytes(junk)
    assert refusals.own_keys([CONNECTION]) == []


PRIVATE = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\n"
)


def test_a_private_key_where_a_public_one_should_be_is_refused_and_not_shown(home):
    (home / ".ssh" / "id.pub").write_text(PRIVATE)
    with pytest.raises(InputError, match=r"id\.pub' holds a private key, and a public") as raised:
        refusals.locked_out(cluster_of("fw1"), [CONNECTION])
    assert "b3BlbnNzaC1rZXk" not in raised.value.message


@pytest.mark.parametrize("keys_before", [[], [KEY]])
def test_a_private_key_in_a_cluster_file_is_refused_and_not_shown(tmp_path, keys_before):
    file = tmp_path / "mine.toml"
    file.write_text(f"name = 'mine'\ndeploy.ssh_keys = {json.dumps([*keys_before, PRIVATE])}\n")
    with pytest.raises(InputError, match=r"deploy\.ssh_keys has a private key") as raised:
        load_cluster(file)
    assert "b3BlbnNzaC1rZXk" not in raised.value.message


def scripts():
    return sorted(map(str, Path(flake.__file__).parents[1].rglob("*.sh")))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not on this machine")
def test_shellcheck_finds_nothing_in_the_scripts_that_are_sent_to_nodes():
    assert {Path(script).parent.name for script in scripts()} >= {"deploy", "survey"}
    done = subprocess.run(["shellcheck", *scripts()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
