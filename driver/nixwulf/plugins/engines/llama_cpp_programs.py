"""Where llama.cpp's programs are: on PATH, or in the cache of what the driver built."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from nixwulf.core.files import cache_dir
from nixwulf.core.naming import fingerprint
from nixwulf.plugins.engines.local import Installation

# The RPC server's name changed over time and between distributions.
RPC_SERVER_NAMES = ("ggml-rpc-server", "rpc-server", "llama-rpc-server")
PROGRAMS = {
    "llama-bench": ("llama-bench",),
    "llama-server": ("llama-server",),
    "rpc-server": RPC_SERVER_NAMES,
}

SDIST = "llama-cpp-python"
SDIST_VERSION = "0.3.36"
# Of the source that the sdist vendors, as its own copy of the submodule says.
SOURCE_COMMIT = "0c1e570"
BUILD_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=ON",
    "-DGGML_RPC=ON",
    # Otherwise git is asked, and answers for whatever repository is around the cache.
    "-DLLAMA_BUILD_NUMBER=0",
    f"-DLLAMA_BUILD_COMMIT={SOURCE_COMMIT}",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    # The next three would look for packages or fetch files during the build.
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    # Of 6 MB of log, 5 were warnings.
    "-DLLAMA_ALL_WARNINGS=OFF",
)
BUILD_TARGETS = ("llama-bench", "llama-server", "ggml-rpc-server")

BUILT_FROM = f"PyPI's {SDIST} {SDIST_VERSION} (llama.cpp {SOURCE_COMMIT}), in 10 CPU minutes"
_PROBE_SECONDS = 20


def find() -> Installation | None:
    """The programs on PATH, else those built before, else none."""
    return _installation("path", _path_folders()) or find_built()


def find_built() -> Installation | None:
    """The programs built before for this machine's CPU, or None."""
    return _installation("cache", [build_folder() / "bin"])


def build_folder() -> Path:
    """Where a build for this machine's CPU is kept, whether there is one or not.

    A build uses every instruction of its CPU, so a home shared by unlike machines needs several.
    """
    digest = fingerprint([cpu_description(), BUILD_OPTIONS, BUILD_TARGETS])[:12]
    return cache_dir() / "llama.cpp" / f"{SDIST_VERSION}-{digest}"


def cpu_description(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The machine, the CPU's model and its instruction sets; the same at any clock rate."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = [f"model name : {platform.processor()}"]
    pairs = (line.partition(":") for line in lines)
    found = {f"{key.strip()}: {value.strip()}" for key, _, value in pairs if key.strip() in wanted}
    return [platform.machine(), *sorted(found)]


def _path_folders() -> list[Path]:
    folders = [Path(folder) for folder in os.get_exec_path()]
    # Debian keeps the RPC server out of PATH, in a folder of libexec.
    libexec = Path("/usr/libexec")
    return [
        *folders,
        libexec,
        *sorted(libexec.glob("*llama*")),
        *sorted(libexec.glob("*ggml*")),
    ]


def _installation(origin: Literal["path", "cache"], folders: list[Path]) -> Installation | None:
    search = os.pathsep.join(map(str, folders))
    programs = {key: next(_found(names, search), None) for key, names in PROGRAMS.items()}
    places = {key: place for key, place in programs.items() if place is not None}
    if len(places) < len(PROGRAMS) or "--rpc" not in _output(places["llama-bench"], "--help"):
        return None
    return Installation(origin, places, version_of(places["llama-server"]))


def _found(names: tuple[str, ...], search: str) -> Iterator[Path]:
    places = (shutil.which(name, path=search) for name in names)
    return (Path(place) for place in places if place)


def version_of(server: Path) -> str:
    """The version that a llama-server prints, such as `0.5.0-dev (build 0, commit 0c1e570)`."""
    for line in _output(server, "--version").splitlines():
        if line.startswith("version:"):
            return line.removeprefix("version:").strip()
    return "unknown"


def _output(program: Path, option: str) -> str:
    """Both streams of a program that prints and ends; nothing when it cannot start."""
    try:
        done = subprocess.run(
            [program, option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
