"""A desk that lacks a network, git or room: what nix does there, and what the driver says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from machine_factory import cluster_text

NIX = shutil.which("nix")
ROOT = os.geteuid() == 0
FEATURES = ("--extra-experimental-features", "nix-command flakes")
pytestmark = pytest.mark.skipif(not NIX, reason="There is no nix on PATH.")
needs_mounts = pytest.mark.skipif(
    not ROOT or str(Path(NIX or "/nix").resolve()).startswith("/nix/"),
    reason="This mounts another /nix, so it takes root and a nix that is elsewhere.",
)
CLUSTER = cluster_text("own", "n1")
# What the driver asks of a configuration, without NixOS.
FLAKE = """{
  %s
  outputs = { self, ... }: {
    nixosConfigurations.own-n1.config = {
      system.build.toplevel = derivation {
        name = "system"; system = "x86_64-linux"; builder = "/bin/sh";
      };
      disko.devices.disk = { };
      boot.initrd = { availableKernelModules = [ ]; kernelModules = [ ]; };
      networking.usePredictableInterfaceNames = false;
    };
  };
}
"""
# Nothing that a sandbox, a cache or another machine is needed for.
BUILT_HERE = "sandbox = false\nbuild-hook =\nsubstitute = false\n"
TOP = """
let make = name: more: derivation ({
  inherit name; of = "FOLDER"; system = builtins.currentSystem; builder = "/bin/sh";
  args = [ "-c" "echo >$out" ];
} // more);
in make "top" { parts = map (name: make name { }) [
  "linux-6.17.13" "linux-6.17.13.tar.xz" "llama-cpp-vulkan-9842" "linux-firmware-20260622" "unit"
]; }
"""
BUILD = """
import sys
from nixwulf.core.errors import NixwulfError
from nixwulf.ops.deploy.flake import build_here
try:
    build_here(sys.argv[1:], "The systems are")
except NixwulfError as error:
    sys.exit(error.message)
"""


@pytest.fixture
def desk(tmp_path):
    """A folder with a flake and a cluster file; runs commands there, with a store of its own."""
    (tmp_path / "own.toml").write_text(CLUSTER)
    folder = tmp_path / "flake"
    folder.mkdir()
    (folder / "flake.nix").write_text(FLAKE % "")

    def run(*words, before=(), **environment):
        return subprocess.run(
            [*before, *words],
            env=os.environ
            | {"HOME": str(tmp_path), "NIX_REMOTE": str(tmp_path / "store")}
            | environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def update(desk, flake="./flake", **how):
    words = ("update", "--cluster", "own.toml", "--dry-run", "--flake", flake)
    return desk(sys.executable, "-m", "nixwulf", *words, **how)


def build(desk, *command, **how):
    return desk(
        sys.executable, "-c", BUILD, "nix", "build", *FEATURES, "--no-link", *command, **how
    )


@pytest.mark.skipif(not ROOT, reason="Only root has a network namespace for the asking.")
def test_without_a_network_and_without_git_a_flake_whose_inputs_are_here_evaluates(desk):
    done = update(desk, before=("unshare", "--net"))
    assert done.returncode == 0, done.stderr
    assert "nix build " in done.stdout
    assert "Then on n1: activate it" in done.stdout


@pytest.mark.skipif(not ROOT, reason="Only root has a network namespace for the asking.")
def test_without_a_network_an_input_that_is_not_here_is_named_with_what_brings_it(desk, tmp_path):
    own = 'inputs.absent.url = "github:nixwulf/absent/0000000000000000000000000000000000000000";'
    (tmp_path / "flake/flake.nix").write_text(FLAKE % own)
    done = update(desk, before=("unshare", "--net"))
    assert done.returncode == 2
    assert "The flake './flake' does not evaluate: " in done.stderr
    assert done.stderr.endswith(
        "; it needs a network once: run 'nix flake archive ./flake' where there is one.\n"
    )


def test_an_input_that_git_fetches_says_that_there_is_no_git(desk, tmp_path):
    (tmp_path / "flake/flake.nix").write_text(
        FLAKE % 'inputs.x.url = "git+https://127.0.0.1:1/absent";'
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "env", "python3", "realpath", "sh", "nix"):  # of a nix that is a script
        (programs / name).symlink_to(shutil.which(name) or "/bin/sh")
    done = update(desk, PATH=str(programs))
    assert done.returncode == 2
    assert "; git is not on PATH: install it, such as by 'nix profile" in done.stderr


def test_a_folder_without_a_flake_is_named_with_what_makes_one(desk, tmp_path):
    (tmp_path / "flake/flake.nix").unlink()
    for flake in ("./flake", "./none"):
        done = update(desk, flake)
        assert done.returncode == 2
        assert f"The flake '{flake}' does not evaluate: " in done.stderr
        assert "; give --flake the folder of your flake, or begin one by 'nix fl" in done.stderr


@needs_mounts
def test_a_store_without_room_for_the_flake_is_named_with_what_makes_room(desk, tmp_path):
    (tmp_path / "flake/large").write_bytes(os.urandom(30 << 20))
    mount = 'mkdir store && mount -t tmpfs -o size=12m tmpfs store && exec "$@"'
    done = update(desk, before=("unshare", "--mount", "sh", "-c", mount, "sh"))
    assert done.returncode == 2
    assert "No space left on device; make room by 'nix-collect-garbage --delete" in done.stderr


@needs_mounts
def test_what_does_not_fit_into_the_store_is_not_fetched(desk, tmp_path):
    """The path is in a cache, which is a folder here; the store has 12 MiB."""
    (tmp_path / "large").write_bytes(os.urandom(30 << 20))
    path = desk("nix", "store", "add", *FEATURES, "large").stdout.strip()
    copied = desk(
        "nix", "copy", *FEATURES, "--to", f"file://{tmp_path}/cache?compression=none", path
    )
    assert copied.returncode == 0, copied.stderr
    mount = 'mount -t tmpfs -o size=12m tmpfs /nix && mkdir /nix/store && exec "$@"'
    done = build(
        desk,
        path,
        before=("unshare", "--mount", "sh", "-c", mount, "sh"),
        NIX_REMOTE="",
        NIX_CONFIG=f"substituters = file://{tmp_path}/cache\nsubstitute = true\n",
    )
    assert done.returncode == 1
    assert re.fullmatch(
        "The systems are not built, and no node is changed: 0.03 GiB come to '/nix/store', which "
        r"has 0.0\d GiB left; make room by 'nix-collect-garbage --delete-older-than 30d'.\n",
        done.stderr,
    )


def test_what_is_compiled_for_long_is_said_before_and_nothing_where_all_is_there(desk, tmp_path):
    (tmp_path / "top.nix").write_text(TOP.replace("FOLDER", str(tmp_path)))
    how = {"NIX_CONFIG": BUILT_HERE, "NIX_REMOTE": ""}
    first = build(desk, "-f", "top.nix", **how)
    assert first.returncode == 0, first.stderr
    sentence = (
        f"Nix builds 6 derivations here; what takes long on {os.cpu_count()} CPUs is "
        "linux-6.17.13, llama-cpp-vulkan-9842."
    )
    assert first.stderr.splitlines()[0] == sentence
    assert "Nix builds" not in build(desk, "-f", "top.nix", **how).stderr


def test_a_build_that_fails_names_the_command(desk, tmp_path):
    (tmp_path / "top.nix").write_text(TOP.replace("echo >$out", "exit 7"))
    done = build(desk, "-f", "top.nix", NIX_CONFIG=BUILT_HERE, NIX_REMOTE="")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "not built, and no node is changed: nix ended with 1, see its words above" in last
    assert last.endswith("-f top.nix'.")
