"""Outputs of tools for the tests of their parsers: fixtures, and other people's where there are."""

import os
from pathlib import Path

import pytest

FIXTURES = Path("tests/fixtures")


def fixture(name):
    return (FIXTURES / name).read_text()


def reference(name):
    """An output that others published; it is not in the repository."""
    folder = os.environ.get("NIXWULF_REFERENCE")
    if not folder:
        pytest.skip("NIXWULF_REFERENCE names no folder with the published outputs")
    return Path(folder, "outputs", name).read_text(errors="replace")


def truncations(text):
    """The text cut after every line, and once in the middle of each."""
    lines = text.splitlines(keepends=True)
    for count, line in enumerate(lines):
        before = "".join(lines[:count])
        yield before
        yield before + line[: len(line) // 2]
    yield text
