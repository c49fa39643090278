"""The versions of an engine that is a Python package, told by its program's own Python."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from nixwulf.plugins.engines import all_engines, devices
from nixwulf.plugins.engines.vllm import ENGINE as VLLM
from stand_in import put


@pytest.mark.parametrize(
    "first_line",
    [f"#!{sys.executable}", f"#!/usr/bin/env {sys.executable}", "#!/bin/sh"],
    ids=["its Python", "env", "a shell, which pip writes before a long path"],
)
def test_the_packages_that_are_there_are_listed(tmp_path, first_line):
    program = tmp_path / "program"
    # no output: a script
    program.write_text(f"{first_line}\nprint('slow')\n")
    put(tmp_path, "python3", f'exec {sys.executable} "$@"')
    linked = tmp_path / "bin"
    linked.symlink_to(program)
    command = devices.in_python(str(linked), devices.PRINT_VERSIONS, "click", "no-such-package")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # no output: what a script above prints
    assert done.stdout == f"click version {version('click')}\n"


def test_a_package_of_a_checkout_is_listed_with_its_commit(tmp_path):
    """Of exo two releases that do not meet have one version, and its mlx-lm is a fork's."""
    checkout = tmp_path / "exo"
    git = ["git", "-C", checkout, "-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", "init", "-q", checkout], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "m"], check=True)
    head = [*git, "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    # hand-made: what pip and uv keep of a package's origin
    # (form: https://packaging.python.org/en/latest/specifications/direct-url/)
    origins = {
        "exo": {"url": checkout.as_uri(), "dir_info": {"editable": True}},
        "mlx-lm": {"url": "https://example.org", "vcs_info": {"vcs": "git", "commit_id": "7" * 40}},
        "mlx": {"url": (tmp_path / "gone").as_uri(), "dir_info": {}},
    }
    for name, origin in origins.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        # no output: a package's name and version, which the script asks for
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "direct_url.json").write_text(json.dumps(origin))
    program = tmp_path / "program"
    # no output: a script
    program.write_text(f"#!{sys.executable}\n")
    done = subprocess.run(
        devices.in_python(str(program), devices.PRINT_VERSIONS, *origins),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    # no output: what a script above prints
    wanted = [f"exo version 1.0 {commit[:9]}", "mlx-lm version 1.0 777777777", "mlx version 1.0"]
    assert done.stdout.splitlines() == wanted


# no output: a script
@pytest.mark.parametrize("content", ["#!/bin/sh\nexec something\n", ""])
def test_of_a_program_without_a_python_nothing_is_listed(tmp_path, content):
    program = tmp_path / "program"
    program.write_text(content)
    command = devices.in_python(str(program), devices.PRINT_VERSIONS, "click")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_node_without_the_program_is_not_asked():
    assert all(engine.version_command({}) == [] for engine in all_engines().values())
    assert "/opt/bin/vllm" in VLLM.version_command({"vllm": "/opt/bin/vllm"})
