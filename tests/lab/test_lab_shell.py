"""What a user's shell does when it starts is no part of a connection to a lab's node."""

from pathlib import Path

from lab_under_test import Silent
from test_placing_in_the_lab import plan_for

from nixwulf.sweep import session as bench


def test_a_bashrc_that_never_ends_keeps_no_lab_from_its_nodes(cluster, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("sleep 1000\n")
    (home / ".cache").symlink_to(Path.home() / ".cache")
    for name, value in {"HOME": str(home), "SHELL": "/bin/bash", "SHLVL": "0"}.items():
        monkeypatch.setenv(name, value)
    with bench.session(plan_for(cluster, 2), Silent()) as connected:
        assert connected.nodes["n1"].script("echo here").strip() == "here"
