"""What Python 3.11.2, which Debian 12 has, lacks or does wrong, is nowhere used."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository
PATHS = [
    path
    for folder in ("driver/nixwulf", "tools")
    for suffix in ("py", "toml")
    for path in Path(folder).rglob(f"*.{suffix}")
]


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        # Mended in 3.11.5: https://github.com/python/cpython/issues/106052
        ("a possessive group", r"\)(?:[*+?]|\{\d*,?\d*\})\+(?!\+)['\"|()\[\\]"),
        # Since 3.11.4: https://docs.python.org/3/library/tarfile.html#tarfile-extraction-filter
        ("a filter of tarfile", r"\bextractall\([^)\n]*filter"),
    ],
)
def test_no_file_has(what, pattern):
    found = re.compile(pattern)
    have = [str(path) for path in PATHS if found.search(path.read_text())]
    assert have == [], what
