"""The newcomer's path: a repository of one's own from the template, evaluated and dry-run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CHECKOUT, Flake  # type: ignore[import-not-found]

OUTPUTS = """
  let flake = builtins.getFlake (toString ./.); in {
    systems = builtins.mapAttrs (_: system: system.config.system.build.toplevel.drvPath)
      flake.nixosConfigurations;
    packages = builtins.attrNames flake.packages.x86_64-linux;
    apps = builtins.attrNames flake.apps.x86_64-linux;
  }
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi you@desk"
NIXWULF = [str(Path(sys.executable).with_name("nixwulf"))]


@pytest.fixture(scope="module")
def mine(flake, tmp_path_factory) -> Flake:
    """A folder made from the template, with this checkout as its Nixwulf."""
    made = Flake(tmp_path_factory.mktemp("mine"))
    done = made.nix("flake", "init", "--template", f"git+file://{CHECKOUT}")
    assert done.returncode == 0, done.stderr
    cluster = made.folder / "cluster.toml"
    cluster.write_text(re.sub(r'"ssh-ed25519 .*"', f'"{KEY}"', cluster.read_text()))
    wiring = made.folder / "flake.nix"
    ours = f"git+file://{CHECKOUT}"
    wiring.write_text(wiring.read_text().replace("github:nixwulf/nixwulf", ours))
    options = [
        word
        for name, reference in flake.locked_inputs().items()
        for word in ("--override-input", f"nixwulf/{name}", reference)
    ]
    done = made.nix("flake", "lock", "--allow-dirty-locks", *options)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def outputs(mine) -> dict:
    """Its outputs, evaluated at once: each evaluation more takes as long as the first."""
    done = mine.nix("eval", "--json", "--impure", "--expr", OUTPUTS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_template_is_a_flake_a_cluster_and_a_sweep(mine):
    assert {path.name for path in mine.folder.iterdir()} == {
        ".gitignore",
        "cluster.toml",
        "flake.lock",
        "flake.nix",
        "sweep.yaml",
    }


def test_runs_are_not_part_of_the_flake(mine):
    """A flake in git is what git knows; what a sweep leaves would be copied into the store."""
    assert "/runs/" in (mine.folder / ".gitignore").read_text().splitlines()


def test_each_of_its_three_nodes_is_a_system(outputs):
    assert sorted(outputs["systems"]) == ["mine-mini1", "mine-mini2", "mine-mini3"]
    assert all(path.endswith(".drv") for path in outputs["systems"].values())


def test_it_has_the_installer_and_the_commands(outputs):
    assert outputs["packages"] == ["default", "image-generic-x86_64", "kexec-generic-x86_64"]
    assert {"bench", "deploy", "update"} <= set(outputs["apps"])


def test_its_sweep_can_be_planned_on_its_cluster(mine):
    done = subprocess.run(
        [*NIXWULF, "bench", "sweep.yaml", "--cluster", "cluster.toml", "--dry-run"],
        cwd=mine.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "5 cases" in done.stdout


def test_its_deployment_can_be_dry_run(mine):
    done = subprocess.run(
        [*NIXWULF, "deploy", "--cluster", "cluster.toml", "--dry-run"],
        cwd=mine.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for node in ("mini1", "mini2", "mini3"):
        assert f".#mine-{node}" in done.stdout


def test_the_key_of_the_examples_is_refused_with_what_to_do(mine):
    example = (CHECKOUT / "templates" / "cluster" / "cluster.toml").read_text()
    done = with_cluster(mine, example)
    assert done.returncode == 1
    assert (
        "error: cluster.toml: deploy.ssh_keys has the key of Nixwulf's examples; put your own in "
        "its place ('cat ~/.ssh/*.pub')." in done.stderr
    )


def test_a_wrong_cluster_is_one_sentence_that_names_file_and_fix(mine):
    text = (mine.folder / "cluster.toml").read_text()
    done = with_cluster(mine, text.replace('"generic-x86_64"', '"generic"', 1))
    assert done.returncode == 1
    assert (
        "error: cluster.toml: node 'mini1' has the unknown platform 'generic'; known: dgx-spark,"
        in done.stderr
    )


def with_cluster(mine, text):
    """What nix prints where the cluster file is another one."""
    cluster = mine.folder / "cluster.toml"
    own = cluster.read_text()
    try:
        cluster.write_text(text)
        return mine.nix("eval", ".#nixosConfigurations", "--apply", "builtins.attrNames")
    finally:
        cluster.write_text(own)
