"""A lab's state folder: what is written is what later commands read."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Node, load_cluster
from nixwulf.nodes.lab.state import (
    Definition,
    StateFolder,
    base,
    read_definition,
    state_of,
    write_definition,
)
from nixwulf.nodes.ssh import connect


def test_a_definition_reads_back_as_it_was_written(tmp_path: Path) -> None:
    cluster = load_cluster("lab")
    subnet = ipaddress.IPv4Network("10.77.0.0/24")
    written = Definition("lab", cluster, subnet, "me", "/usr/sbin/sshd", ("/opt/engines",))
    write_definition(StateFolder(tmp_path), written)
    read = read_definition(StateFolder(tmp_path))
    assert dataclasses.asdict(read) == dataclasses.asdict(written)
    assert read == written


def test_a_lab_lives_in_the_runtime_folder_or_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("nixwulf.nodes.lab.state.STATE_PATH_MAXIMUM", 1000)
        assert state_of("x").folder == tmp_path / "nixwulf/lab/x"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert state_of("x").folder == Path("/home/me/.local/state/nixwulf/lab/x")


@pytest.mark.parametrize("fault", ["writable", "group", "foreign", "percent", "blank", "gone"])
def test_a_runtime_folder_that_is_not_ours_or_that_ssh_would_not_read_is_not_used(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"percent": "a%n", "blank": "a b"}
    folder = tmp_path / names.get(fault, "run")
    if fault != "gone":
        folder.mkdir()
        folder.chmod({"writable": 0o777, "group": 0o770}.get(fault, 0o700))
    if fault == "foreign":
        if os.getuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(folder, 65533, 65533)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert folder not in base().parents
    node = Node("n1", "lab", "n1.invalid")
    assert str(folder) not in " ".join(connect([node])["n1"].argv(["true"]))


def test_a_folder_too_long_for_a_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path.joinpath(*["long"] * 20)
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with pytest.raises(InputError, match="set XDG_RUNTIME_DIR"):
        state_of("x")


def test_a_file_that_is_written_while_the_folder_is_removed_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder(tmp_path / "lab")
    state.folder.mkdir()
    rmdir = Path.rmdir

    def late(folder: Path) -> None:
        monkeypatch.setattr(Path, "rmdir", rmdir)
        (folder / "id_ed25519").write_text("a key")
        folder.rmdir()

    monkeypatch.setattr(Path, "rmdir", late)
    state.remove()
    assert not state.folder.exists()
