"""The versions of an engine that is a Python package, told by its program's own Python."""

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
