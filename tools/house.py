"""The figures of the driver's layout, from the tree as it is, beside what they are to become.

Usage: .venv/bin/python tools/house.py [--names]

--names lists public classes that share their name, and files that name an engine outside of it.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "docs"))
from words import MOST_IN_README, counts, in_readme

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "driver/nixwulf"


@dataclass(frozen=True)
class Figure:
    """One figure of the layout, and the most that it is to be."""

    name: str
    value: int
    most: int


def modules(package: Path) -> dict[str, str]:
    """The text of every module, by its path in the package."""
    paths = sorted(package.rglob("*.py"))
    return {str(path.relative_to(package)): path.read_text("utf-8") for path in paths}


def shared_names(texts: dict[str, str]) -> dict[str, list[str]]:
    """Files by the name of a public class that two or more of them define."""
    files: dict[str, list[str]] = defaultdict(list)
    for path, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(path)
    return {name: found for name, found in sorted(files.items()) if len(found) > 1}


def strings(text: str) -> Iterator[str]:
    """The string constants of a module, docstrings not among them."""
    tree = ast.parse(text)
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documents
        ):
            yield node.value


def naming_engines(texts: dict[str, str]) -> dict[str, list[str]]:
    """Engines that modules outside of plugins/engines have as a string, by module.

    A module of outputs/ declares the engine whose output it reads (ENGINE = "..."): an output says
    so as well as an engine's own file, which knows nothing of other people's benchmarks.
    """
    own = {path: text for path, text in texts.items() if path.startswith("plugins/engines/")}
    found = re.findall(r'^    name = "([^"]+)"', "\n".join(own.values()), re.MULTILINE)
    named = {path: set(found) & set(strings(texts[path])) for path in texts.keys() - own}
    for path in named:
        if path.startswith("outputs/"):
            named[path] -= set(re.findall(r'^ENGINE = "([^"]+)"', texts[path], re.MULTILINE))
    return {path: sorted(engines) for path, engines in sorted(named.items()) if engines}


def figures() -> list[Figure]:
    """All of them, in the order of the table."""
    texts = modules(PACKAGE)
    lines = [text.count("\n") for text in texts.values()]
    top = {path.name for path in PACKAGE.iterdir()} - {"__init__.py", "py.typed", "__pycache__"}
    pages = counts(ROOT)
    return [
        Figure("names at the top of the package", len(top), 14),
        Figure("lines of Python", sum(lines), 31_500),
        Figure("files of it", len(lines), 210),
        Figure("lines of the longest file", max(lines), 500),
        Figure("median lines of a file", round(statistics.median(lines)), 180),
        Figure("public classes that share a name", sum(map(len, shared_names(texts).values())), 6),
        Figure("files that name an engine outside of it", len(naming_engines(texts)), 0),
        Figure("words in README", in_readme(ROOT), MOST_IN_README),
        Figure("words in docs by hand", sum(pages.values()), 12_000),
        Figure("pages by hand", len(pages), 16),
    ]


def main() -> None:
    """Print the table; with --names, what is behind two of its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", action="store_true", help="list the classes and files too")
    arguments = parser.parse_args()
    for figure in figures():
        print(f"{figure.name:42} {figure.value:7,} (at most {figure.most:,})")
    if arguments.names:
        texts = modules(PACKAGE)
        for name, files in {**shared_names(texts), **naming_engines(texts)}.items():
            print(f"{name}: {', '.join(files)}")


if __name__ == "__main__":
    main()
