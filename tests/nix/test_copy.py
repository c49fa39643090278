"""A system built on the desk comes to a node whose Nix trusts root and no key of the desk."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.deploy.flake import Built
from nixwulf.ops.deploy.install import Target, bring_command

FEATURES = ("--extra-experimental-features", "nix-command flakes")
# Built outside a sandbox: neither stdenv nor a cache is needed for a file with one line.
HERE = (
    "--option",
    "sandbox",
    "false",
    "--option",
    "build-hook",
    "",
    "--option",
    "substitute",
    "false",
)
PRINT = ("--no-link", "--print-out-paths")
SYSTEM = (
    'derivation { name = "system"; system = builtins.currentSystem; builder = "/bin/sh"; '
    'args = [ "-c" "echo $out > $out" ]; }'
)
# The node's end of ssh: nix's daemon as root, which trusts whom ssh lets in, over another store.
SSH = """#!/bin/sh
for word; do
  case "$word" in *nix-daemon*) exec nix daemon --stdio --store "$NODE_STORE" ;; esac
done
exec /bin/sh
"""


@pytest.mark.skipif(not shutil.which("nix"), reason="There is no nix on PATH.")
def test_a_system_that_nobody_signed_is_copied_to_a_node(tmp_path: Path):
    built = subprocess.run(
        ["nix", "build", *FEATURES, *HERE, *PRINT, "--impure", "--expr", SYSTEM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    path = built.stdout.strip()
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    node = Node("node1", "generic-x86_64", "root@localhost")
    target = Target(Connection(node, ()), Built("", path), "", here=True)

    copied = subprocess.run(
        bring_command(target),
        env=os.environ
        | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE_STORE": f"{tmp_path}/n"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert copied.returncode == 0, copied.stderr
    assert Path(f"{tmp_path}/n{path}").read_text() == f"{path}\n"
