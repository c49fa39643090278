"""Programs of Python packages: on PATH, or in an environment that the driver makes once."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir
from nixwulf.plugins.engines.local import Making, Recipe, locked, printed


@dataclass(frozen=True)
class Wheels:
    """Wheels that have an engine's programs, held to versions by the hashes in lock files.

    name: of the engine, as in 'Install MLX'. version: of what is installed, in records and in the
    folder's name. locks: what pip installs, file by file, in the engine's folder; 'make lock'
    writes them. on_path: tells the version of a program on PATH. size: what it takes of the disk,
    and how long. index: where a file's wheels are that the user's own has not. unlisted: names and
    versions that programs look up, of packages that have another name.
    """

    name: str
    programs: tuple[str, ...]
    version: str
    locks: tuple[Path, ...]
    on_path: Callable[[Path], str]
    size: str
    index: str = ""
    unlisted: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """Where the environment of this Python is kept, whether there is one or not."""
        python = f"py{sys.version_info.major}{sys.version_info.minor}"
        return cache_dir() / self.name.lower() / f"{self.version}-{python}"

    def recipe(self) -> Recipe:
        """How the programs are found, or installed once."""
        return Recipe(
            "install",
            self.name,
            {name: (name,) for name in self.programs},
            self.folder,
            self._version,
            self._install,
            f"it takes {self.size.partition(',')[0]}",
            f"{self.programs[0]} on PATH needs no installation.",
        )

    def steps(self, folder: Path) -> list[list[str]]:
        """Commands that make an environment, by the user's own index and pip configuration."""
        environment = folder / "environment"
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--no-compile"]
        return [
            [sys.executable, "-m", "venv", str(environment)],
            *([*pip, "--disable-pip-version-check", *locked(lock)] for lock in self.locks),
        ]

    def _install(self, making: Making) -> None:
        """Links to the programs come last, so that they are there only in a whole environment.

        They have a folder of their own: the environment's holds a python that is not the nodes'.
        """
        folder, step = making.recipe.folder, f"Install {self.name} {self.version} ({self.size})"
        shutil.rmtree(folder, ignore_errors=True)
        for argv in self.steps(folder):
            try:
                making.run(step, argv)
            except NixwulfError:
                if not self.index or "pip" not in argv:
                    raise
                making.run(f"{step} from {self.index}", [*argv, "--index-url", self.index])
        for packages in (folder / "environment").glob("lib/python*/site-packages"):
            for name, version in self.unlisted:
                named = packages / f"{name}-{version}.dist-info"
                named.mkdir()
                text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                (named / "METADATA").write_text(text, encoding="utf-8")
        (folder / "bin").mkdir()
        for name in self.programs:
            (folder / "bin" / name).symlink_to(folder / "environment" / "bin" / name)

    def _version(self, programs: Mapping[str, Path]) -> str:
        place = programs[self.programs[0]]
        return self.version if place.is_relative_to(self.folder) else self.on_path(place)


def printed_version(program: Path) -> str:
    """What a program prints with --version, in a second or two."""
    return printed(program, "--version", errors=False).strip() or "unknown"
