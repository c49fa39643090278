"""The figures of the driver's layout, from the tree as it is, beside what they are to become.

Usage: .venv/bin/python tools/house.py [--names] [--lines]

--names lists public classes that share their name, and files that name an engine outside of it.
--lines counts the lines of each package: code, docstrings, comments, blank.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "docs"))
from words import MOST_IN_DOCS, MOST_IN_README, MOST_PAGES, counts, in_readme

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "driver/nixwulf"
# Names that Python and packagers have for every package: no room, and nothing to look into first.
_FIXED = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}


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


def lines_by_kind(text: str) -> Counter[str]:
    """How many lines of a module are code, docstrings, comments or blank."""
    documents = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    kinds: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        plain = "comments" if words.startswith("#") else "code" if words else "blank"
        kinds["docstrings" if number in documents else plain] += 1
    return kinds


def print_lines(texts: dict[str, str]) -> None:
    """A row a package, two folders deep at the most, and their sum."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for path, text in texts.items():
        for package in ("/".join(path.split("/")[:-1][:2]) or "nixwulf", "all"):
            rows[package] += lines_by_kind(text) + Counter(files=1, lines=text.count("\n"))
    columns = ("files", "lines", "code", "docstrings", "comments", "blank")
    print(f"\n{'package':22}" + "".join(f"{column:>12}" for column in columns))
    for package, row in sorted(rows.items()):
        print(f"{package:22}" + "".join(f"{row[column]:12,}" for column in columns))


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


def untyped(text: str) -> int:
    """How many parameters and results of a module's functions have Any in their type."""
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    types = (
        annotation
        for node in functions
        for annotation in [
            *(one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg)),
            node.returns,
        ]
        if annotation is not None
    )
    return sum(
        any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(one))
        for one in types
    )


def figures() -> list[Figure]:
    """All of them, in the order of the table."""
    texts = modules(PACKAGE)
    lines = [text.count("\n") for text in texts.values()]
    top = {path.name for path in PACKAGE.iterdir()} - _FIXED
    pages = counts(ROOT)
    return [
        Figure("names at the top of the package", len(top), 14),
        Figure("lines of Python", sum(lines), 31_500),
        Figure("files of it", len(lines), 210),
        Figure("lines of the longest file", max(lines), 700),
        Figure("median lines of a file", round(statistics.median(lines)), 180),
        Figure("public classes that share a name", sum(map(len, shared_names(texts).values())), 6),
        Figure("files that name an engine outside of it", len(naming_engines(texts)), 0),
        Figure("parameters and results with Any", sum(map(untyped, texts.values())), 150),
        Figure("words in README", in_readme(ROOT), MOST_IN_README),
        Figure("words in docs by hand", sum(pages.values()), MOST_IN_DOCS),
        Figure("pages by hand", len(pages), MOST_PAGES),
    ]


def main() -> None:
    """Print the table; with --names and --lines, what is behind its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", action="store_true", help="list the classes and files too")
    parser.add_argument("--lines", action="store_true", help="count each package's lines by kind")
    arguments = parser.parse_args()
    for figure in figures():
        print(f"{figure.name:42} {figure.value:7,} (at most {figure.most:,})")
    if arguments.names:
        texts = modules(PACKAGE)
        for name, files in {**shared_names(texts), **naming_engines(texts)}.items():
            print(f"{name}: {', '.join(files)}")
    if arguments.lines:
        print_lines(modules(PACKAGE))


if __name__ == "__main__":
    main()
