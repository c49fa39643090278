"""Building llama.cpp: what is run, and that a cache never holds half a build.

The source here is a stand-in of three shell scripts in an sdist of the same name, so that pip, the
hash check, CMake, the lock and the cache are the real ones and no compiler runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_cpp_source import CMAKE, put_sdist
from nixwulf.core.errors import NixwulfError
from nixwulf.core.text import fingerprint
from nixwulf.plugins.engines.llama_cpp import install
from nixwulf.plugins.engines.llama_cpp.install import (
    build_folder,
    compile_arguments,
    configure_arguments,
    download_steps,
    share_done,
)
from nixwulf.plugins.engines.local import make_once

# no output: a build backend
BACKEND = """
    from pathlib import Path

    def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
        folder = Path(metadata_directory) / "llama_cpp_python-0.3.36.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            "Metadata-Version: 2.1\\nName: llama-cpp-python\\nVersion: 0.3.36\\n"
        )
        return folder.name
"""
# no output: a project file
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("[12/215] Building CXX object a.o", 12 / 215),
        ("[215/215] Linking CXX executable bin/llama-server", 1.0),
        ("[ 12%] Building C object b.o", 0.12),
        ("[100%] Built target llama-bench", 1.0),
        ("-- Found OpenMP: [1/2]", None),
        ("[0/0] nothing", None),
        ("warning: x[3/4]", None),
    ],
)
def test_the_share_done_is_read_from_ninja_and_from_make(line, share):
    assert share_done(line) == share


@given(st.text())
def test_any_line_of_a_log_is_a_share_or_nothing(line):
    share = share_done(line)
    assert share is None or 0 <= share <= 1


def test_pip_downloads_with_the_users_own_configuration():
    tools, sdist = download_steps(Path("/work"))
    assert tools[:4] == [sys.executable, "-m", "pip", "install"]
    assert sdist[2:6] == [sys.executable, "-m", "pip", "download"]
    assert not {"--index-url", "--extra-index-url", "--isolated", "-i"} & {*tools, *sdist}


def test_nothing_that_no_hash_is_known_of_runs_to_read_the_sdist():
    tools, sdist = download_steps(Path("/work"))
    assert {"--require-hashes", "--only-binary"} <= set(tools)
    assert sdist[:2] == ["env", "PYTHONPATH=/work/tools"]
    assert "--no-build-isolation" in sdist


def test_the_build_is_static_has_rpc_and_fetches_nothing():
    argv = configure_arguments(Path("/source"), Path("/tree"), "Ninja")
    assert argv[:7] == ["cmake", "-S", "/source", "-B", "/tree", "-G", "Ninja"]
    for option in (
        "-DBUILD_SHARED_LIBS=OFF",
        "-DGGML_RPC=ON",
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_UI=OFF",
        "-DLLAMA_USE_PREBUILT_UI=OFF",
    ):
        assert option in argv


def test_what_a_build_is_made_of_is_in_its_version():
    """Raise LOCAL_BUILD with any change of options, targets or flags: records tell them apart."""
    digest = fingerprint(install.local_recipe())[:12]
    assert (install.LOCAL_BUILD, digest) == (1, "11d6deb8f40c")
    argv = configure_arguments(Path("/source"), Path("/tree"), None)
    assert [each for each in argv if "BUILD_NUMBER" in each][-1] == "-DLLAMA_BUILD_NUMBER=1"


def test_another_recipe_has_another_folder(monkeypatch):
    before = build_folder()
    monkeypatch.setattr(install, "LOCAL_BUILD", install.LOCAL_BUILD + 1)
    assert build_folder() != before


def test_what_computes_tensors_is_built_as_upstream_has_it():
    """No target of ggml, and not llama, which builds each token's graph."""
    (targets,) = re.findall(r"foreach\(target (.*)\)", install._CHEAPER.read_text())
    assert set(targets.split()) == {
        *("llama-common", "server-context", "llama-server-impl", "llama-bench-impl"),
        *("mtmd", "cpp-httplib"),
    }


def test_only_the_programs_that_are_needed_are_built():
    argv = compile_arguments(Path("/tree"), 2)
    assert argv[:5] == ["cmake", "--build", "/tree", "--parallel", "2"]
    assert argv[5:] == ["--target", "llama-bench", "llama-server", "ggml-rpc-server"]


@pytest.fixture
def sdist(tmp_path, monkeypatch):
    """Make the stand-in the only package that pip can see, and its hash the expected one."""
    if not all(map(shutil.which, ("cmake", "c++"))) or not (
        shutil.which("ninja") or shutil.which("make")
    ):
        pytest.skip("no cmake, C++ compiler and ninja or make on PATH")
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
    )
    if pip.returncode != 0:
        pytest.skip("this Python has no pip")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "none.lock").touch()  # its own backend reads the stand-in
    monkeypatch.setattr(install, "_LOCK", tmp_path / "none.lock")

    def make(cmake: str = CMAKE) -> None:
        packaging = {
            "pyproject.toml": PROJECT,
            "backend.py": textwrap.dedent(BACKEND),
            # no output: the metadata of a package
            "PKG-INFO": "Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.3.36\n",
        }
        monkeypatch.setattr(install, "SDIST_SHA256", put_sdist(tmp_path, cmake, packaging))

    return make


def build(progress):
    return make_once(install.recipe(), progress)


def _left() -> list[str]:
    return sorted(path.name for path in build_folder().parent.iterdir() if path.suffix != ".lock")


def test_a_build_is_kept_with_its_log_and_reports_its_steps(sdist):
    sdist()
    steps: dict[str, float] = {}
    built = build(lambda step, share: steps.update({step: share}))
    assert built.origin == "cache"
    assert built.version == "9 (build 0, commit stand-in)"
    assert set(built.programs) == {"llama-bench", "llama-server", "rpc-server"}
    assert [step.split()[0] for step in steps] == ["Download", "Configure", "Build"]
    assert steps["Build llama.cpp"] == 1.0
    assert _left() == [build_folder().name, f"{build_folder().name}.log"]


def test_of_two_drivers_one_builds_and_both_get_the_same(sdist):
    sdist()
    steps: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: build(lambda step, share: steps.append(step)), range(2)))
    assert both[0] == both[1]
    assert steps.count("Configure llama.cpp") == 1


def test_a_source_with_another_hash_is_refused_and_nothing_of_it_is_left(sdist, monkeypatch):
    sdist()
    monkeypatch.setattr(install, "SDIST_SHA256", "0" * 64)
    with pytest.raises(NixwulfError, match="Download the source") as caught:
        build(lambda step, share: None)
    assert "0" * 64 in caught.value.message
    assert _left() == [f"{build_folder().name}.log"]


def test_a_failed_build_quotes_its_last_lines_and_names_log_and_packages(sdist):
    # no output: a line of a project file
    sdist(CMAKE + '    message(FATAL_ERROR "the stand-in is broken")\n')
    with pytest.raises(NixwulfError) as caught:
        build(lambda step, share: None)
    log = build_folder().parent / f"{build_folder().name}.log"
    assert "the stand-in is broken" in caught.value.message
    assert str(log) in caught.value.message
    assert "apt-get install cmake" in caught.value.message
    assert _left() == [log.name]


def test_an_interrupted_build_looks_unfinished_and_the_next_one_succeeds(sdist):
    sdist()

    def interrupt(step: str, share: float) -> None:
        if step == "Build llama.cpp" and share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(interrupt)
    assert _left() == [f"{build_folder().name}.log"]
    assert build(lambda step, share: None).origin == "cache"


def test_what_a_killed_driver_left_is_removed(sdist):
    sdist()
    abandoned = build_folder().parent / f".{build_folder().name}-x"
    (abandoned / "tree").mkdir(parents=True)
    build(lambda step, share: None)
    assert not abandoned.exists()


def test_a_machine_without_tools_is_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NixwulfError, match=r"without cmake and c\+\+ and ninja or make; install"):
        build(lambda step, share: None)
