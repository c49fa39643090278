"""A lab's state folder: what is written is what later commands read."""

from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.lab.state import (
    Definition,
    StateFolder,
    read_definition,
    state_of,
    write_definition,
)


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
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert state_of("x").folder == Path("/run/user/1000/nixwulf/lab/x")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert state_of("x").folder == Path("/home/me/.local/state/nixwulf/lab/x")


def test_a_folder_too_long_for_a_socket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "long/" * 20)
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
