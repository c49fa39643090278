"""Commands at a desk that lacks programs say which, and the next command; its PATH is empty."""

import os
import subprocess
import sys

import pytest

from machine_factory import DISK, KEY

CLUSTER = f"""
name = "mine"
[deploy]
ssh_keys = ["{KEY}"]
[fabrics.lan]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "10.90.0.0/24"
[[nodes]]
name = "fw1"
platform = "generic-x86_64"
ssh = "root@127.0.0.1"
disk = "{DISK}"
fabrics.lan = {{ interface = "enp1s0", address = "10.90.0.1" }}
"""
INSTALL = "install it by 'curl -L https://nixos.org/nix/install | sh -s -- --daemon'."


@pytest.fixture
def nixwulf(tmp_path):
    """Runs the driver with an empty PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "mine.toml").write_text(CLUSTER)

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "nixwulf", *words, "--cluster", "mine.toml"],
            env=os.environ | {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (("update",), "Systems cannot be built or copied here"),
        (("deploy", "--yes-wipe", "fw1"), "Nothing can be installed from here"),
    ],
)
def test_without_nix_the_sentence_says_how_to_get_it(nixwulf, words, begin):
    done = nixwulf(*words)
    assert done.returncode == 2
    assert done.stderr == f"Error: {begin}, because nix is not on PATH; {INSTALL}\n"


def test_the_file_is_checked_without_nix(nixwulf):
    done = nixwulf("preflight", "--only", "file")
    assert done.returncode == 0, done.stderr
