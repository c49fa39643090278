"""Public classes of the driver that share their name with another: a line a name.

Usage: .venv/bin/python tools/same_names.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "driver/nixwulf"


def shared_names(package: Path) -> dict[str, list[str]]:
    """Files below the package by the name of a public class that two or more of them define."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(path.relative_to(package)))
    return {name: found for name, found in sorted(files.items()) if len(found) > 1}


def main() -> None:
    """Print them, then how many classes they are."""
    found = shared_names(PACKAGE)
    for name, files in found.items():
        print(f"{name}: {', '.join(files)}")
    print(f"{sum(map(len, found.values()))} public classes share their name with another.")


if __name__ == "__main__":
    main()
