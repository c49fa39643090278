"""MLX's programs: on PATH, or in a virtual environment that the driver makes once in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir
from nixwulf.plugins.engines.local import Installation, Progress, only_one

PROGRAMS = ("mlx_lm.benchmark", "mlx_lm.server")
MLX, MLX_LM = "0.32.4", "0.32.2"
# The extra is the library for CPUs, which Linux needs; a Mac's has the GPU in it.
REQUIREMENTS = (f"mlx[cpu]=={MLX}", f"mlx-lm=={MLX_LM}")
VERSION = f"{MLX_LM}-{MLX}"
BUILT_FROM = f"PyPI's mlx[cpu] {MLX} and mlx-lm {MLX_LM} (350 MB), in half a minute"
_QUOTED_LINES = 8
_PROBE_SECONDS = 20


def find() -> Installation | None:
    """The programs on PATH, else those installed before, else none."""
    return _installation("path", os.get_exec_path()) or _installed()


def find_or_install(progress: Progress) -> Installation:
    """The programs, installed when there are none; raises NixwulfError with the end of pip's log.

    Of several drivers one installs and the others wait for it.
    """
    found = find()
    if found is not None:
        return found
    folder = install_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = "Wait for another driver that installs MLX"
        with only_one(folder.parent / f"{folder.name}.lock", progress, waiting):
            if _installed() is None:
                _install(folder, progress)
    except OSError as error:
        raise NixwulfError(
            f"Cannot install MLX in {str(folder)!r}: {error.strerror}; make room or set "
            "XDG_CACHE_HOME to a folder on another disk (it takes 350 MB)."
        ) from None
    installed = _installed()
    if installed is None:
        raise NixwulfError(f"What pip installed in {str(folder)!r} lacks MLX's programs.")
    return installed


def install_folder() -> Path:
    """Where the environment of this Python is kept, whether there is one or not."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return cache_dir() / "mlx" / f"{VERSION}-{python}"


def install_steps(folder: Path) -> list[list[str]]:
    """The command lines that make an environment: the user's own index and pip configuration."""
    environment = folder / "environment"
    python = str(environment / "bin" / "python")
    return [
        [sys.executable, "-m", "venv", str(environment)],
        [python, "-m", "pip", "install", "--disable-pip-version-check", *REQUIREMENTS],
    ]


def _install(folder: Path, progress: Progress) -> None:
    """Links to the programs come last, so that they are there only in a whole environment.

    They have a folder of their own: the environment's holds a python that is not the nodes'.
    """
    shutil.rmtree(folder, ignore_errors=True)
    log = folder.parent / f"{folder.name}.log"
    log.write_text("", encoding="utf-8")
    for argv in install_steps(folder):
        progress(f"Install {' and '.join(REQUIREMENTS)}", 0.0)
        _run(argv, log)
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        (folder / "bin" / name).symlink_to(folder / "environment" / "bin" / name)


def _run(argv: Sequence[str], log: Path) -> None:
    with log.open("a", encoding="utf-8") as file:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        tail = "\n  ".join(lines[-_QUOTED_LINES:])
        raise NixwulfError(
            f"Cannot install MLX: {' '.join(argv[1:4])!r} ended with {done.returncode}, see "
            f"{str(log)!r}; mlx_lm.benchmark on PATH needs no installation.\n  {tail}"
        )


def _installed() -> Installation | None:
    return _installation("cache", [str(install_folder() / "bin")])


def _installation(origin: Literal["path", "cache"], folders: Sequence[str]) -> Installation | None:
    search = os.pathsep.join(folders)
    places = {name: shutil.which(name, path=search) for name in PROGRAMS}
    found = {name: Path(place) for name, place in places.items() if place}
    if len(found) < len(PROGRAMS):
        return None
    version = VERSION if origin == "cache" else _version(found[PROGRAMS[0]].with_name("mlx_lm"))
    return Installation(origin, found, version)


def _version(program: Path) -> str:
    """What mlx_lm says of itself; it takes a second or two to start."""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"
