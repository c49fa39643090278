"""Write data/public_words.txt: the words of a run that 'nixwulf publish' asks nobody about.

Usage: .venv/bin/python tools/public_words.py

They are those of this project's texts, of what publish leaves of these: its docs, schemas, data,
code, modules, sweeps, published results and outputs of tools. 60 outputs of tools that are not
among these have 69 other words in all; with the 12,000 most common English words besides they have
60, so the file has none of these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from nixwulf.plugins import benchmarks, engines
from nixwulf.results.publish import patterns
from nixwulf.results.publish.patterns import closed_words
from nixwulf.results.publish.scrub import Scrubber

ROOT = Path(__file__).parents[1]
FILE = ROOT / "driver/nixwulf/data/public_words.txt"
_FOLDERS = ("docs", "driver/nixwulf", "modules", "packages", "sweeps", "results", "tests/fixtures")
_ENDINGS = {".md", ".py", ".toml", ".json", ".yaml", ".csv", ".nix", ".txt", ".log", ".sh"}
# Made of these, or about what is private.
_NOT_READ = {FILE.name, "private_texts.toml", "token_families.toml"}
# Of examples in the docs.
PERSONS = {"acme", "alice", "bob", "carol", "jane", "joe", "mallory"}
_LONGEST = 24


def texts() -> Iterator[str]:
    """Every text of the project that is for others."""
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _ENDINGS and path.name not in _NOT_READ:
                yield path.read_text("utf-8", errors="replace")


def main() -> int:
    """Write the file; returns 0."""
    scrubber = Scrubber(closed=closed_words((*engines.all_engines(), *benchmarks.all_benchmarks())))
    lines = dict.fromkeys(line for text in texts() for line in text.splitlines())
    found = (word for line in lines for word in patterns.WORD.findall(scrubber.text(line)))
    read = {word for word in found if not patterns.is_short(word)}
    kept = {part for word in read for part in patterns.parts(word) if len(part) <= _LONGEST}
    public = sorted(word for word in kept - PERSONS if not patterns.is_short(word))
    FILE.write_text("\n".join(public) + "\n", "utf-8")
    print(f"{FILE.relative_to(ROOT)}: {len(public)} words, {FILE.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
