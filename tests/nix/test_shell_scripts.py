"""Scripts that Nix writes: their text is evaluated, checked, and run with the test's programs."""

import os
import shutil
import subprocess

import pytest

SCRIPT = """node: (node.extendModules { modules = [ {
  nixwulf.toolboxes.names = [ "vllm" ];
  nixwulf.toolboxes.folders = [ "/tmp" "/does/not exist" ];
} ]; }).config.nixwulf.toolboxes.wrappers.vllm.text"""
IMAGE = (
    "docker.io/kyuz0/vllm-therock-gfx1151"
    "@sha256:25fd294fde9f729d1e75f109022ab4496c78190c0a6dc0142440529f7af20e4d"
)
PODMAN = """#!/usr/bin/env bash
[[ $1 == image ]] && exit "${HAVE_IMAGE:-1}"
printf '%s\\n' "$@"
"""


@pytest.fixture(scope="module")
def script(flake, tmp_path_factory):
    """The program of a toolbox, on a PATH where podman prints its arguments."""
    folder = tmp_path_factory.mktemp("toolbox")
    text = flake.value("nixosConfigurations.mini-3-mini1", SCRIPT)
    (folder / "toolbox-vllm").write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{text}")
    (folder / "podman").write_text(PODMAN)
    (folder / "podman").chmod(0o755)
    return folder / "toolbox-vllm"


@pytest.fixture
def toolbox(script, tmp_path):
    def run(*arguments, **variables):
        return subprocess.run(
            ["bash", script, *arguments],
            env={"PATH": f"{script.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
            | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_script_passes_shellcheck(script):
    if not shutil.which("shellcheck"):
        pytest.skip("There is no shellcheck on PATH.")
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_command_reaches_the_image_argument_by_argument(toolbox):
    done = toolbox("vllm", "serve", "a model", "--port=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-5:] == [IMAGE, "vllm", "serve", "a model", "--port=1"]


def test_only_folders_that_exist_are_given_to_it(toolbox):
    options = toolbox("env").stdout.splitlines()
    assert "--volume=/tmp:/tmp" in options
    assert not [option for option in options if "not exist" in option]


def test_without_a_command_it_says_what_to_give(toolbox):
    done = toolbox()
    assert (done.returncode, done.stdout) == (2, "")
    assert "no command; give one" in done.stderr


def test_an_image_that_is_there_is_not_pulled_again(toolbox):
    assert toolbox("--pull", HAVE_IMAGE="0").stdout == ""
    assert toolbox("--pull").stdout.splitlines() == ["pull", "--quiet", IMAGE]
