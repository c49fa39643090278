"""A desk that cannot build an installer itself: a Mac, for nodes of x86."""

import os

import pytest

from machine_factory import DEBIAN, machine, plan_of
from nixwulf.core.errors import NixwulfError
from nixwulf.ops.deploy.install import build_installers
from stand_in import put

NIXOS = DEBIAN | {"os-release": "ID=nixos\nPRETTY_NAME='NixOS 26.11 (Zokor)'"}
# hand-made: no Mac is at hand (form: nix 2.34.8 on Linux, asked for a derivation of aarch64-darwin)
REFUSES = (
    'case "$*" in config*) echo aarch64-darwin ;; *--dry-run) ;;\n*) echo '
    " \"error: Cannot build '/nix/store/x.drv'. Reason: platform mismatch\" >&2; exit 1 ;;\nesac"
)


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Builds on a Mac the installers of nodes that run what is given; the sentence of the end."""
    put(tmp_path / "bin", "nix", REFUSES)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def build(*bases):
        names = [f"fw{number}" for number, _ in enumerate(bases, start=1)]
        found = {n: machine(b, boot=n, hostname=n) for n, b in zip(names, bases, strict=True)}
        with pytest.raises(NixwulfError) as raised:
            build_installers(plan_of(found).nodes, ".")
        return raised.value.message

    return build


def test_where_no_node_can_build_it_a_builder_or_a_released_installer_is_named(words):
    sentence = words(DEBIAN)
    assert sentence.startswith(
        "An installer is not built, and no node is changed: nix ended with 1, see its words above; "
        "run 'nix build "
    )
    assert "This machine builds no 'x86_64-linux': start a builder (on a Mac 'nix run " in sentence
    assert "nix-community/nixos-images/releases), give it your key by 'ssh-copy-id " in sentence


def test_a_node_that_runs_nixos_is_named_with_the_command_that_builds_it_there(words):
    sentence = words(DEBIAN, NIXOS)
    assert sentence.endswith(
        " --builders 'ssh-ng://root@192.168.1.11 x86_64-linux' --max-jobs 0', then this again."
    )
    assert "Node 'fw2' runs NixOS and can build it: run 'nix build " in sentence
