"""Pinned host keys, as files and settings of ssh."""

import stat
from dataclasses import replace

import pytest

from machine_factory import KEY, cluster_of
from nixwulf.core.errors import InputError
from nixwulf.core.schema import check
from nixwulf.nodes.ssh import known_hosts, mismatch, pin

NODE = cluster_of("fw1").nodes[0]
PINNED = replace(NODE, host_key=KEY)


def test_a_node_without_a_pinned_key_has_no_settings(tmp_path):
    assert pin(NODE, tmp_path) == {}
    assert mismatch(NODE, "Host key verification failed.") is None


def test_the_file_has_the_key_and_not_whose_it_is():
    assert known_hosts(PINNED) == f"nixwulf-fw1 {KEY.removesuffix(' you@desk')}\n"
    assert known_hosts(replace(NODE, host_key=KEY.removesuffix(" you@desk"))) == known_hosts(PINNED)


def test_only_the_user_reads_the_file_and_no_other_file_is_asked(tmp_path):
    settings = pin(PINNED, tmp_path)
    (file,) = tmp_path.iterdir()
    assert settings["UserKnownHostsFile"] == str(file)
    assert settings["GlobalKnownHostsFile"] == "/dev/null"
    assert settings["StrictHostKeyChecking"] == "yes"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert pin(PINNED, tmp_path) == settings


def test_another_key_has_another_file_and_another_connection(tmp_path):
    other = replace(NODE, host_key=KEY.replace("AAAAC3", "AAAAC4"))
    first, second = pin(PINNED, tmp_path), pin(other, tmp_path)
    assert first["UserKnownHostsFile"] != second["UserKnownHostsFile"]
    assert first["ControlPath"] != second["ControlPath"]


def test_a_sockets_path_is_no_longer_than_one_that_ssh_names_itself(tmp_path):
    socket = pin(PINNED, tmp_path)["ControlPath"].removeprefix(f"{tmp_path}/")
    assert len(socket) == 40


@pytest.mark.parametrize(
    "key", ["", "ssh-ed25519", "ssh-ed25519 AAAA\nevil ssh-rsa AAAA", "x AAAA"]
)
def test_what_is_no_key_is_refused_before_it_comes_to_a_file(key):
    document = cluster_of("fw1").document
    document["nodes"][0]["host_key"] = key
    with pytest.raises(InputError, match="host_key is "):
        check(document, "cluster", "mine.toml")
