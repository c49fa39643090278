"""Markdown: tables and code, as all pages of the reference have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what is empty in a row is left empty."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """A text in one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """A literal."""
    return f"`{text}`"


def codes(texts: Iterable[object]) -> str:
    """Literals, parted by commas."""
    return ", ".join(map(code, texts))


def link(url: str, text: str = "source") -> str:
    """A link where the text is an address, else the text itself."""
    return f"[{text}]({url})" if url.startswith("https://") and " " not in url else url


def number(value: object) -> str:
    """A number without digits that say nothing."""
    return f"{value:g}" if isinstance(value, float) else str(value)
