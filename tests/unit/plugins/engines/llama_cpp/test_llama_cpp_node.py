"""llama.cpp on nodes: what a node's tools make of a build, and the source without pip."""

import hashlib
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from meter_server import serving
from nixwulf.core.errors import NixwulfError
from nixwulf.plugins.engines.llama_cpp import ENGINE, install
from stand_in import put

SCRIPT = ENGINE.node_build().script
SHELL = ("sh", "grep", "ls", "awk", "getconf", "cp", "mkdir", "cat")


@pytest.fixture
def tools(tmp_path):
    """Run the script on a PATH with nothing but the shell's tools and those that are put there."""
    folder = tmp_path / "tools"
    for name in SHELL:
        if place := shutil.which(name):
            put(folder, name, f'exec {place} "$@"')

    def run(*arguments, **scripts):
        for name, script in scripts.items():
            put(folder, name.replace("cxx", "c++"), script)
        argv = [shutil.which("sh"), "-c", SCRIPT, "sh", *map(str, arguments)]
        return subprocess.run(
            argv,
            env={**os.environ, "PATH": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()

    return run


def test_a_node_without_tools_names_them_all_with_one_command(tools):
    lines = tools("probe")
    assert lines[0] == "missing cmake cc c++ make"
    assert "cmake" in lines[1]
    assert lines[1].startswith("tools ")


def test_a_node_with_a_compiler_lacks_nothing(tools):
    lines = tools("probe", cmake="true", cc="true", cxx="true", make="true")
    assert not any(line.startswith("missing") for line in lines)
    assert any(line.startswith("features cpu") for line in lines)


def test_the_build_gets_options_and_targets_and_copies_what_it_made(tools, tmp_path):
    # no output: programs of a test's own
    cmake = f"""
        echo "$*" >>{tmp_path}/asked
        mkdir -p {tmp_path}/tree/bin; echo a >{tmp_path}/tree/bin/a"""
    places = (tmp_path / "source", tmp_path / "tree", tmp_path / "bin")
    tools("build", *places, "-DX=1", "-DY=2", "--", "a", cmake=cmake)
    configure, compile_ = (tmp_path / "asked").read_text().splitlines()
    assert configure.startswith(f"-S {places[0]} -B {places[1]} -DX=1 -DY=2 ")
    assert "-DGGML_RPC_RDMA=" in configure
    assert compile_.startswith(f"--build {places[1]} --parallel ")
    assert compile_.endswith(" --target a")
    assert (tmp_path / "bin" / "a").read_text() == "a\n"


@pytest.fixture
def without_pip(empty, monkeypatch):
    """A Python as in an environment that uv makes, and what the network gives it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    content = b"the source"
    monkeypatch.setattr(install, "SDIST_SHA256", hashlib.sha256(content).hexdigest())

    with ExitStack() as servers:

        def give(answer, status=200):
            url = servers.enter_context(serving({"/sdist": answer}, status))
            monkeypatch.setattr(install, "SDIST_URL", f"{url}/sdist")
            return content

        yield give


def test_without_pip_the_source_comes_by_its_address_and_is_kept(without_pip):
    content = without_pip(b"the source")
    steps = []
    archive = ENGINE.node_build().archive(lambda step, share: steps.append(step))
    assert archive.read_bytes() == content
    assert steps == ["Download the source of llama.cpp"]
    without_pip(b"", 500)
    assert ENGINE.node_build().archive(lambda step, share: steps.append(step)) == archive


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [(b"another", 200, "has the sha256"), (b"", 404, "it answers 404")],
)
def test_another_source_or_none_is_refused_and_nothing_is_kept(without_pip, answer, status, words):
    without_pip(answer, status)
    with pytest.raises(NixwulfError, match=words) as caught:
        ENGINE.node_build().archive(lambda step, share: None)
    assert install.SDIST_URL in caught.value.message
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "nixwulf" / "llama.cpp"
    assert [*folder.iterdir()] == []
