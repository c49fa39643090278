"""The first two rungs of checks, all at once: everything evaluates and every assertion holds."""

import pytest


@pytest.mark.timeout(1200)
def test_every_check_of_the_flake_evaluates(flake):
    done = flake.nix("flake", "check", "--no-build", timeout_s=1100)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_lock_is_complete(flake):
    locked = flake.nix("flake", "metadata", "--json", "--no-update-lock-file")
    assert locked.returncode == 0, locked.stderr
