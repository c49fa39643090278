"""Programs of an engine on this machine, those the lab's nodes run: found, or made in the cache.

Made is a build, or an environment of Python packages.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir

Progress = Callable[[str, float], None]
"""Called with the step that goes on and the share of it that is done, 0 to 1."""
_QUOTED_LINES = 8
_PROBE_SECONDS = 20


def locked(file: Path) -> list[str]:
    """pip's options to install what a file lists: wheels with its hashes, so nothing is built."""
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    return [*options, "--requirement", str(file)]


@dataclass(frozen=True)
class Installation:
    """Programs of an engine that belong together.

    origin: PATH or the driver's cache; programs: their places by name; version: what they say.
    """

    origin: Literal["path", "cache"]
    programs: dict[str, Path]
    version: str


@dataclass(frozen=True)
class Recipe:
    """Where an engine's programs are looked for, and how they are made in the cache, once.

    verb and name: such as 'build' and 'llama.cpp'. programs: for each the file names that are
    accepted. folder: where the made ones are kept, in its `bin`. version: what such programs print;
    None where they cannot be used. steps: makes them, by Making.run. size: what it takes of the
    disk, as a clause; instead: what to do where it fails, as a clause. more_folders: searched after
    PATH. share_done: the share of a step that a line of its output reports.
    """

    verb: str
    name: str
    programs: Mapping[str, tuple[str, ...]]
    folder: Path
    version: Callable[[Mapping[str, Path]], str | None]
    steps: Callable[[Making], None]
    size: str
    instead: str
    more_folders: tuple[Path, ...] = ()
    share_done: Callable[[str], float | None] = lambda line: None

    @property
    def log(self) -> Path:
        """Of the last time that they were made."""
        return self.folder.parent / f"{self.folder.name}.log"

    def find(self) -> Installation | None:
        """The programs on PATH, else those made before, or None."""
        folders = [*map(Path, os.get_exec_path()), *self.more_folders]
        return self._installation("path", folders) or self.made()

    def made(self) -> Installation | None:
        """The programs that were made before, or None."""
        return self._installation("cache", [self.folder / "bin"])

    def _installation(
        self, origin: Literal["path", "cache"], folders: Iterable[Path]
    ) -> Installation | None:
        found = programs_in(folders, self.programs)
        version = self.version(found) if found else None
        return Installation(origin, found, version) if found and version else None


@dataclass(frozen=True)
class NodeBuild:
    """How an engine's programs are built on a node that has none, from a source of this machine's.

    version: of the source, one word; sha256: of its archive; folder: inside of it; archive: gets
    it, and raises NixwulfError. script: sh's, called with `probe` and with `build SOURCE TREE BIN`
    and the options; what the first prints is read by ops/engines. free_kib: of the disk.
    """

    version: str
    sha256: str
    folder: str
    archive: Callable[[Progress], Path]
    script: str
    options: tuple[str, ...]
    free_kib: int
    share_done: Callable[[str], float | None]


@dataclass(frozen=True)
class Making:
    """A recipe that is being carried out."""

    recipe: Recipe
    progress: Progress

    def run(self, step: str, argv: Sequence[str]) -> None:
        """Run a command with its output in the log; raises NixwulfError with the end of it.

        It does not outlive the driver's interruption.
        """
        self.progress(step, 0.0)
        log = self.recipe.log
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
                    share = self.recipe.share_done(line)
                    if share is not None:
                        self.progress(step, share)
            except BaseException:
                os.killpg(process.pid, signal.SIGTERM)
                raise
        if process.returncode != 0:
            lines = [line for line in log.read_text("utf-8").splitlines() if line.strip()]
            tail = "\n  ".join(lines[-_QUOTED_LINES:])
            raise NixwulfError(
                f"{step}: {argv[0]!r} ended with {process.returncode}, see {str(log)!r}; "
                f"{self.recipe.instead}\n  {tail}"
            )


def make_once(recipe: Recipe, progress: Progress) -> Installation:
    """The programs of a recipe, made where they are not there yet; raises NixwulfError.

    Of several drivers one makes them and the others wait for it.
    """
    folder, verb, name = recipe.folder, recipe.verb, recipe.name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = f"Wait for another driver that {verb}s {name}"
        with _only_one(folder.parent / f"{folder.name}.lock", progress, waiting):
            if recipe.made() is None:
                recipe.log.write_text("", encoding="utf-8")
                recipe.steps(Making(recipe, progress))
    except OSError as error:
        raise NixwulfError(
            f"Cannot {verb} {name} in {str(folder)!r}: {error.strerror}; make room or set "
            f"XDG_CACHE_HOME to a folder on another disk ({recipe.size})."
        ) from None
    found = recipe.made()
    if found is None:
        raise NixwulfError(
            f"The programs of {name} in {str(folder)!r} do not start; see {str(recipe.log)!r}."
        )
    return found


def programs_in(
    folders: Iterable[str | Path], programs: Mapping[str, tuple[str, ...]]
) -> dict[str, Path] | None:
    """The place of each program, by its name here; None where one is in none of the folders.

    programs: by that name those that it has, the first that is found counts.
    """
    search = os.pathsep.join(map(str, folders))
    found = {
        name: next(filter(None, (shutil.which(each, path=search) for each in names)), None)
        for name, names in programs.items()
    }
    places = {name: Path(place) for name, place in found.items() if place}
    return places if len(places) == len(programs) else None


def printed(program: Path, option: str, *, errors: bool) -> str:
    """What a program prints before it ends; empty where it cannot start.

    errors: whether standard error is included.
    """
    try:
        done = subprocess.run(
            [program, option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


@contextmanager
def _only_one(lock: Path, progress: Progress, waiting: str) -> Iterator[None]:
    """Hold the lock; the kernel lets it go however the driver ends. waiting: reported meanwhile."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(waiting, 0.0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
