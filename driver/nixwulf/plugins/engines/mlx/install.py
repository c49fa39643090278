"""MLX's programs: on PATH, or in a virtual environment that the driver makes once in the cache."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from nixwulf.core.files import cache_dir
from nixwulf.plugins.engines.local import Making, Recipe, locked, printed

PROGRAMS = ("mlx_lm.benchmark", "mlx_lm.server")
MLX, MLX_LM = "0.32.4", "0.32.2"
# The extra is the library for CPUs, which Linux needs; a Mac's has the GPU in it.
# What their versions and those of all that they need are held to, by hashes: 'make lock' writes it.
LOCK = Path(__file__).with_name("requirements.lock")
REQUIREMENTS = (f"mlx[cpu]=={MLX}", f"mlx-lm=={MLX_LM}")
VERSION = f"{MLX_LM}-{MLX}"
BUILT_FROM = f"PyPI's mlx[cpu] {MLX} and mlx-lm {MLX_LM} (350 MB), in half a minute"


def recipe() -> Recipe:
    """How MLX is found, or installed once."""
    return Recipe(
        "install",
        "MLX",
        {name: (name,) for name in PROGRAMS},
        install_folder(),
        _version,
        _install,
        "it takes 350 MB",
        f"{PROGRAMS[0]} on PATH needs no installation.",
    )


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
        [python, "-m", "pip", "install", "--disable-pip-version-check", *locked(LOCK)],
    ]


def _install(making: Making) -> None:
    """Links to the programs come last, so that they are there only in a whole environment.

    They have a folder of their own: the environment's holds a python that is not the nodes'.
    """
    folder = making.recipe.folder
    shutil.rmtree(folder, ignore_errors=True)
    for argv in install_steps(folder):
        making.run(f"Install {' and '.join(REQUIREMENTS)}", argv)
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        (folder / "bin" / name).symlink_to(folder / "environment" / "bin" / name)


def _version(programs: Mapping[str, Path]) -> str:
    place = programs[PROGRAMS[0]]
    if place.is_relative_to(install_folder()):
        return VERSION
    # mlx_lm prints its version in a second or two.
    return printed(place.with_name("mlx_lm"), "--version", errors=False).strip() or "unknown"
