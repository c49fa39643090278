"""How many words are written by hand, page by page."""

from __future__ import annotations

from pathlib import Path

from runs import without_runs

MOST_IN_README = 700
MOST_IN_DOCS = 12_000
MOST_PAGES = 22
# Made by tools/what_ran.py and by tools/docs.
_MADE = ("what-ran.md", "reference/")


def counts(root: Path) -> dict[str, int]:
    """Words of each page by hand, README.md not among them."""
    pages = [*sorted((root / "docs").rglob("*.md")), root / "CONTRIBUTING.md"]
    names = {str(page.relative_to(root)): page for page in pages if page.exists()}
    by_hand = {
        name: page
        for name, page in names.items()
        if not name.removeprefix("docs/").startswith(_MADE)
    }
    return {name: _count(page) for name, page in by_hand.items()}


def in_readme(root: Path) -> int:
    """Words of README.md, the figures of the project's own runs not among them."""
    return _count(root / "README.md")


def _count(page: Path) -> int:
    return len(without_runs(page.read_text(encoding="utf-8")).split())


def report(root: Path) -> str:
    """A line a page, and the sums beside what they are held to."""
    found = counts(root)
    lines = [f"{number:6} {name}" for name, number in found.items()]
    return "\n".join([
        *lines,
        f"{sum(found.values()):6} in {len(found)} pages (at most {MOST_IN_DOCS} in {MOST_PAGES})",
        f"{in_readme(root):6} README.md (at most {MOST_IN_README})",
    ])  # fmt: skip
