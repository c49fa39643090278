"""Programs that stand in for others: shell scripts of a few lines."""

from __future__ import annotations

from pathlib import Path


def put(folder: Path, name: str, script: str = "true") -> Path:
    """Put a program in a folder, which is made; the script is sh's unless it says whose it is."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    # no output: a program of a test's own
    program.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program
