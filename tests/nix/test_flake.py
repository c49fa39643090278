"""The first two rungs of checks, all at once: everything evaluates and every assertion holds."""

import resource
import subprocess

import pytest


@pytest.fixture
def empty_store(tmp_path):
    """A store that holds nothing, as on a machine where no other evaluation ever was."""
    yield tmp_path / "store"
    subprocess.run(["chmod", "-R", "u+w", tmp_path], check=True)
    subprocess.run(["rm", "-rf", tmp_path / "store"], check=True)  # half a gigabyte


@pytest.mark.timeout(1200)
def test_every_check_of_the_flake_evaluates_on_every_system_from_an_empty_store(flake, empty_store):
    everything = ("flake", "check", "--no-build", "--all-systems", "--store", str(empty_store))
    done = flake.nix(*everything, timeout_s=1100)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_flake_is_shown_without_evaluating_what_it_checks(flake):
    """Its VM tests alone take more than two minutes of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = flake.nix("flake", "show", timeout_s=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert shown.returncode == 0, shown.stderr[-4000:]
    assert "vm-test-run-bench-node" in shown.stdout
    assert after.ru_utime - before.ru_utime < 20


def test_the_lock_is_complete(flake):
    locked = flake.nix("flake", "metadata", "--json", "--no-update-lock-file")
    assert locked.returncode == 0, locked.stderr


def test_an_image_of_a_mac_is_refused_with_the_reason_and_what_to_do(flake):
    mac = '{ platform = "mac-studio-m3-ultra"; sshKeys = [ ]; source = "own.toml"; }'
    done = flake.nix("eval", ".#lib.mkImage", "--apply", f"make: make {mac}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].strip() == (
        "error: own.toml: platform 'mac-studio-m3-ultra' has no image, because macOS stays on it: "
        "nix-darwin configures it, and RDMA can only be enabled by hand in recovery mode; leave it "
        "out of the images."
    )
