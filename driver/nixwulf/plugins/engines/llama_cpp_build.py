"""Building llama.cpp's programs, once for each kind of CPU, from the source in an sdist on PyPI."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.plugins.engines.llama_cpp_programs import (
    BUILD_OPTIONS,
    BUILD_TARGETS,
    SDIST,
    SDIST_VERSION,
    build_folder,
    find,
    find_built,
)
from nixwulf.plugins.engines.local import Installation, Progress, only_one

# pip refuses any other file, before anything in it runs.
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
SOURCE_FOLDER = "vendor/llama.cpp"
PACKAGES = "apt-get install cmake g++ ninja-build"

_NINJA = re.compile(r"\[\s*(\d+)/(\d+)\]")
_MAKE = re.compile(r"\[\s*(\d+)%\]")
_QUOTED_LINES = 8


def find_or_build(progress: Progress) -> Installation:
    """The programs, built from source when there are none; raises NixwulfError."""
    return find() or build(progress)


def build(progress: Progress) -> Installation:
    """Download, build and keep the programs: 10 CPU minutes, then never again.

    Of several drivers one builds and the others wait for it. What does not end well leaves its log
    and nothing else; raises NixwulfError with the end of the log.
    """
    _require_tools()
    folder = build_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = "Wait for another driver that builds llama.cpp"
        with only_one(folder.parent / f"{folder.name}.lock", progress, waiting):
            if find_built() is None:
                _build_at(folder, progress)
    except OSError as error:
        raise NixwulfError(
            f"Cannot build llama.cpp in {str(folder)!r}: {error.strerror}; make room or set "
            "XDG_CACHE_HOME to a folder on another disk (a build needs 1 GB for a while)."
        ) from None
    built = find_built()
    if built is None:
        raise NixwulfError(
            f"The programs built in {str(folder)!r} do not start; see {str(_log(folder))!r}."
        )
    return built


def download_arguments(work: Path) -> list[str]:
    """pip's command line: the user's own pip, its index and its configuration."""
    options = [
        "--disable-pip-version-check",
        "--no-deps",
        "--no-binary",
        SDIST,
        "--dest",
        str(work),
    ]
    requirements = str(work / "requirements.txt")
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "--requirement",
        requirements,
    ]


def configure_arguments(source: Path, tree: Path, generator: str | None) -> list[str]:
    """CMake's command line that prepares a build."""
    chosen = ["-G", generator] if generator else []
    return ["cmake", "-S", str(source), "-B", str(tree), *chosen, *BUILD_OPTIONS]


def compile_arguments(tree: Path, jobs: int) -> list[str]:
    """CMake's command line that builds the programs and only what they need."""
    return [
        "cmake",
        "--build",
        str(tree),
        "--parallel",
        str(jobs),
        "--target",
        *BUILD_TARGETS,
    ]


def share_done(line: str) -> float | None:
    """The share that a line of Ninja (`[12/215]`) or Make (`[ 12%]`) reports as done, or None."""
    if (ninja := _NINJA.match(line)) and int(ninja[2]):
        return min(1.0, int(ninja[1]) / int(ninja[2]))
    if make := _MAKE.match(line):
        return min(1.0, int(make[1]) / 100)
    return None


def _build_at(folder: Path, progress: Progress) -> None:
    temporary = f".{folder.name}-"
    for abandoned in folder.parent.glob(temporary + "*"):  # by a driver that was killed
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=temporary) as work:
        _build(Path(work), folder, progress)


def _build(work: Path, folder: Path, progress: Progress) -> None:
    log = _log(folder)
    log.write_text("", encoding="utf-8")
    (work / "requirements.txt").write_text(
        f"{SDIST}=={SDIST_VERSION} --hash=sha256:{SDIST_SHA256}\n", encoding="utf-8"
    )
    _run(download_arguments(work), log, progress, "Download the source of llama.cpp")
    (sdist,) = work.glob("*.tar.gz")
    shutil.unpack_archive(sdist, work)
    source, tree = (
        sdist.with_name(sdist.name.removesuffix(".tar.gz")) / SOURCE_FOLDER,
        work / "tree",
    )
    generator = "Ninja" if shutil.which("ninja") else None
    _run(
        configure_arguments(source, tree, generator),
        log,
        progress,
        "Configure llama.cpp",
    )
    _run(compile_arguments(tree, os.cpu_count() or 1), log, progress, "Build llama.cpp")
    finished = work / "finished"
    (finished / "bin").mkdir(parents=True)
    for target in BUILD_TARGETS:
        shutil.copy2(tree / "bin" / target, finished / "bin" / target)
    shutil.rmtree(folder, ignore_errors=True)
    finished.rename(folder)


def _run(argv: Sequence[str], log: Path, progress: Progress, step: str) -> None:
    """Run one step with its output in the log; it does not outlive the driver's interruption."""
    progress(step, 0.0)
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                file.write(line)
                share = share_done(line)
                if share is not None:
                    progress(step, share)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode != 0:
        lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
        tail = "\n  ".join(lines[-_QUOTED_LINES:])
        raise NixwulfError(
            f"{step}: {argv[0]!r} ended with {process.returncode}, see {str(log)!r}; llama.cpp on "
            f"PATH needs no build, and a build needs: {PACKAGES}\n  {tail}"
        )


def _log(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.log"


def _require_tools() -> None:
    compiler = os.environ.get("CXX", "c++")
    needed = {
        "cmake": ("cmake",),
        compiler: (compiler,),
        "ninja or make": ("ninja", "make"),
    }
    missing = [name for name, names in needed.items() if not any(map(shutil.which, names))]
    if missing:
        raise NixwulfError(
            f"llama.cpp is not on PATH and cannot be built without {' and '.join(missing)}; "
            f"install what is missing, for example with: {PACKAGES}"
        )
