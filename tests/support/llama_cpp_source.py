"""A stand-in for llama.cpp's source: a CMake project that builds without a compiler, in seconds."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

from nixwulf.plugins.engines.llama_cpp.install import SOURCE_FOLDER

# As pip names the sdist and the folder in it.
NAME = "llama_cpp_python-0.3.36"
# CMake 3.31 prints no share of a target that makes nothing.
# no output: a project file
CMAKE = """
    cmake_minimum_required(VERSION 3.14)
    project(stand_in NONE)
    foreach(name llama-bench llama-server ggml-rpc-server)
      set(program ${CMAKE_BINARY_DIR}/bin/${name})
      add_custom_command(OUTPUT ${program} COMMAND ${CMAKE_COMMAND} -E copy
        ${CMAKE_SOURCE_DIR}/program ${program})
      add_custom_target(${name} DEPENDS ${program})
    endforeach()
"""
# no output: a script in the place of a program that was built
PROGRAM = "#!/bin/sh\necho 'version: 9 (build 0, commit stand-in)'\necho '  --rpc <servers>'\n"


def put_sdist(folder: Path, cmake: str = CMAKE, more: Mapping[str, str] | None = None) -> str:
    """Put an sdist of the source into a folder, which is made; its SHA-256 is of its content alone.

    Args:
        folder: where it is put, as NAME.tar.gz.
        cmake: its CMakeLists.txt.
        more: other files by their path in it.
    """
    files = {
        **(more or {}),
        f"{SOURCE_FOLDER}/CMakeLists.txt": textwrap.dedent(cmake),
        f"{SOURCE_FOLDER}/program": PROGRAM,
    }
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{name}")
            entry.size, entry.mode = len(text), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    content = gzip.compress(plain.getvalue(), mtime=0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.tar.gz").write_bytes(content)
    return hashlib.sha256(content).hexdigest()
