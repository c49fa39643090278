"""llama.cpp's programs: on PATH, or built once in the cache for each kind of CPU.

They are built from the source in an sdist on PyPI.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir, sha256_of, shipped_table, shipped_text
from nixwulf.core.text import fingerprint
from nixwulf.plugins.engines.local import Making, NodeBuild, Progress, Recipe, locked, printed

# The RPC server's name changed over time and between distributions.
RPC_SERVER_NAMES = ("ggml-rpc-server", "rpc-server", "llama-rpc-server")
PROGRAMS = {
    "llama-bench": ("llama-bench",),
    "llama-server": ("llama-server",),
    "rpc-server": RPC_SERVER_NAMES,
}

SDIST = "llama-cpp-python"
SDIST_VERSION = "0.3.36"
# Any other file is refused, before anything in it runs.
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
# Where there is no pip, as in environments that uv makes.
SDIST_URL = (
    "https://files.pythonhosted.org/packages/ec/e9/"
    "e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/llama_cpp_python-0.3.36.tar.gz"
)
_SDIST_FOLDER = "llama_cpp_python-0.3.36"
# Of the source that the sdist vendors, as its own copy of the submodule says.
SOURCE_COMMIT = "0c1e570"
BUILD_OPTIONS = tuple(
    one.format(commit=SOURCE_COMMIT) for one in shipped_table("build_options")["llama.cpp"]
)
BUILD_TARGETS = ("llama-bench", "llama-server", "ggml-rpc-server")
# In the version of a build here, and so in its records: raised when local_recipe() changes.
LOCAL_BUILD = 1

BUILT_FROM = f"PyPI's {SDIST} {SDIST_VERSION} (llama.cpp {SOURCE_COMMIT}), in 7 CPU minutes"
SOURCE_FOLDER = "vendor/llama.cpp"
PACKAGES = "apt-get install cmake g++ ninja-build"
# Of what reads the sdist's metadata: 'make lock' writes it.
_LOCK = Path(__file__).with_name("requirements.lock")
_CHEAPER = Path(__file__).with_name("cheaper.cmake")
_DOWNLOAD_S, _MOST_BYTES = 3600.0, 128 << 20  # of 70 MB
_NINJA = re.compile(r"\[\s*(\d+)/(\d+)\]")
_MAKE = re.compile(r"\[\s*(\d+)%\]")


def recipe() -> Recipe:
    """How llama.cpp is found, or built: 7 CPU minutes, then never again.

    What does not end well leaves its log and nothing else.
    """
    # Debian keeps the RPC server out of PATH, in a folder of libexec.
    libexec = Path("/usr/libexec")
    return Recipe(
        "build",
        "llama.cpp",
        PROGRAMS,
        build_folder(),
        _version,
        _build,
        "a build needs 1 GB for a while",
        f"llama.cpp on PATH needs no build, and a build needs: {PACKAGES}",
        (libexec, *sorted(libexec.glob("*llama*")), *sorted(libexec.glob("*ggml*"))),
        share_done,
    )


def build_folder() -> Path:
    """Where a build for this machine's CPU is kept, whether there is one or not.

    A build uses every instruction of its CPU, so a home shared by unlike machines needs several.
    """
    digest = fingerprint([cpu_description(), *local_recipe()])[:12]
    return cache_dir() / "llama.cpp" / f"{SDIST_VERSION}-{digest}"


def local_recipe() -> list[object]:
    """All that decides what a build on this machine is made of, but for its CPU and compiler."""
    return [SDIST_SHA256, BUILD_OPTIONS, BUILD_TARGETS, LOCAL_BUILD, _CHEAPER.read_text("utf-8")]


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


def download_steps(work: Path) -> list[list[str]]:
    """pip's command lines: the user's own pip, its index and its configuration.

    pip asks an sdist for its metadata, by programs that the sdist names: they come first, held to
    their hashes, for pip would fetch and run the newest.
    """
    pip = [sys.executable, "-m", "pip"]
    tools = ["install", "--disable-pip-version-check", "--target", str(work / "tools")]
    sdist = ["download", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    sdist += ["--no-binary", SDIST, "--dest", str(work)]
    sdist += ["--requirement", str(work / "requirements.txt")]
    return [[*pip, *tools, *locked(_LOCK)], ["env", f"PYTHONPATH={work / 'tools'}", *pip, *sdist]]


def node_build() -> NodeBuild:
    """How it is built on a node, with the options of a build on this machine."""
    return NodeBuild(
        SDIST_VERSION,
        SDIST_SHA256,
        f"{_SDIST_FOLDER}/{SOURCE_FOLDER}",
        _archive,
        shipped_text("plugins/engines/llama_cpp/node.sh"),
        (*BUILD_OPTIONS, "--", *BUILD_TARGETS),
        2 * 2**20,
        share_done,
    )


def _archive(progress: Progress) -> Path:
    """The sdist in the cache, downloaded where it is not there or is another."""
    kept = cache_dir() / "llama.cpp" / f"{_SDIST_FOLDER}.tar.gz"
    if kept.exists() and sha256_of(kept) == SDIST_SHA256:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".source-") as place:
        return _download(Making(recipe(), progress), Path(place)).replace(kept)


def _download(making: Making, work: Path) -> Path:
    """The sdist in a folder, by pip where this Python has it; raises NixwulfError."""
    step = "Download the source of llama.cpp"
    sdist = work / f"{_SDIST_FOLDER}.tar.gz"
    if importlib.util.find_spec("pip"):
        (work / "requirements.txt").write_text(
            f"{SDIST}=={SDIST_VERSION} --hash=sha256:{SDIST_SHA256}\n", encoding="utf-8"
        )
        for argv in download_steps(work):
            making.run(step, argv)
        return sdist
    making.progress(step, 0.0)
    try:
        asked = web.client(SDIST_URL, proxies=True)
        answer = web.fetch(asked, "GET", SDIST_URL, _DOWNLOAD_S, _MOST_BYTES)
        words = "" if answer.ok else f"it answers {answer.status}"
    except web.NoAnswer as error:
        words = error.message
    if words:
        raise NixwulfError(f"{step}: {SDIST_URL!r}: {words}; {making.recipe.instead}.")
    sdist.write_bytes(answer.body)
    if (found := sha256_of(sdist)) != SDIST_SHA256:
        raise NixwulfError(
            f"{step}: {SDIST_URL!r} has the sha256 {found}, expected {SDIST_SHA256}."
        )
    return sdist


def configure_arguments(source: Path, tree: Path, generator: str | None) -> list[str]:
    """CMake's command line that prepares a build.

    source: folder of llama.cpp's source. generator: CMake's name of a build tool; None: its
    default.
    """
    chosen = ["-G", generator] if generator else []
    own = [f"-DLLAMA_BUILD_NUMBER={LOCAL_BUILD}", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={_CHEAPER}"]
    return ["cmake", "-S", str(source), "-B", str(tree), *chosen, *BUILD_OPTIONS, *own]


def compile_arguments(tree: Path, jobs: int) -> list[str]:
    """CMake's command line that builds the programs and only what they need."""
    return ["cmake", "--build", str(tree), "--parallel", str(jobs), "--target", *BUILD_TARGETS]


def share_done(line: str) -> float | None:
    """The share that a line of Ninja (`[12/215]`) or Make (`[ 12%]`) reports as done, or None."""
    if (ninja := _NINJA.match(line)) and int(ninja[2]):
        return min(1.0, int(ninja[1]) / int(ninja[2]))
    if make := _MAKE.match(line):
        return min(1.0, int(make[1]) / 100)
    return None


def _build(making: Making) -> None:
    _require_tools()
    folder = making.recipe.folder
    temporary = f".{folder.name}-"
    for abandoned in folder.parent.glob(temporary + "*"):  # by a driver that was killed
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=temporary) as place:
        work = Path(place)
        tree = work / "tree"
        shutil.unpack_archive(_download(making, work), work)
        source = work / _SDIST_FOLDER / SOURCE_FOLDER
        generator = "Ninja" if shutil.which("ninja") else None
        making.run("Configure llama.cpp", configure_arguments(source, tree, generator))
        making.run("Build llama.cpp", compile_arguments(tree, os.cpu_count() or 1))
        finished = work / "finished"
        (finished / "bin").mkdir(parents=True)
        for target in BUILD_TARGETS:
            shutil.copy2(tree / "bin" / target, finished / "bin" / target)
        shutil.rmtree(folder, ignore_errors=True)
        finished.rename(folder)


def _version(programs: Mapping[str, Path]) -> str | None:
    """Such as `0.5.0-dev (build 0, commit 0c1e570)`; None of a build without RPC."""
    if "--rpc" not in printed(programs["llama-bench"], "--help", errors=True):
        return None
    lines = printed(programs["llama-server"], "--version", errors=True).splitlines()
    versions = (line.partition(":")[2] for line in lines if line.startswith("version:"))
    return next(versions, "unknown").strip()


def _require_tools() -> None:
    compiler = os.environ.get("CXX", "c++")
    needed = {"cmake": ("cmake",), compiler: (compiler,), "ninja or make": ("ninja", "make")}
    missing = [name for name, names in needed.items() if not any(map(shutil.which, names))]
    if missing:
        raise NixwulfError(
            f"llama.cpp is not on PATH and cannot be built without {' and '.join(missing)}; "
            f"install what is missing, for example with: {PACKAGES}"
        )
