"""What results are shown in: sentences and tables, on a terminal or as GitHub Markdown.

All tables of the driver look alike: no borders on a terminal, pipes in Markdown. HTML is rendered
by the templates of `report/`, from the same tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from nixwulf.core.text import clean

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@])")


class Column(NamedTuple):
    """A column: its head, whether of numbers, whether its cells may be broken, its least width."""

    head: str
    number: bool = False
    whole: bool = False
    width: int | None = None


class Styled(NamedTuple):
    """A cell with a style of rich, which a terminal with colours shows."""

    text: str
    style: str


Cell = str | Styled


@dataclass(frozen=True)
class Table:
    """Rows of cells; a column is its head where it is of plain text.

    title and caption are above and below it on a terminal; notes: where its numbers are from.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    caption: str = ""
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> list[Column]:
        """Its columns, also those that are given by their heads."""
        return [Column(one) if isinstance(one, str) else one for one in self.columns]

    @property
    def heads(self) -> list[str]:
        """Of its columns."""
        return [column.head for column in self.shape]

    @property
    def texts(self) -> list[list[str]]:
        """Its rows without styles."""
        return [[c if isinstance(c, str) else c.text for c in row] for row in self.rows]

    @property
    def filled(self) -> Table:
        """The same without the columns of which no row has anything."""
        texts = self.texts
        kept = [i for i, head in enumerate(self.heads) if not head or any(row[i] for row in texts)]
        rows = [[row[i] for i in kept] for row in self.rows]
        return Table([self.columns[i] for i in kept], rows, self.title, self.caption, self.notes)


def output(pipe_width: int, *, stderr: bool = False) -> Console:
    """Standard output or error: plain text of a fixed width where it is a pipe or a file."""
    console = Console(highlight=False, stderr=stderr)
    if console.is_terminal:
        return console
    return Console(highlight=False, stderr=stderr, width=pipe_width)


def say(
    console: Console, text: Text | str, style: str = "", *, indent: int = 0, whole: bool = False
) -> None:
    """Print a paragraph: a terminal breaks it between words, in a pipe or a file it is a line.

    Args:
        console: where to.
        text: without control characters, unless it is a Text.
        style: of rich, for a string.
        indent: columns.
        whole: also one line on a terminal, such as one with a link, or to copy.
    """
    line = text if isinstance(text, Text) else Text(clean(text), style=style)
    if console.is_terminal and not whole:
        console.print(Padding(line, (0, 0, 0, indent)) if indent else line)
    else:
        console.print(Text(" " * indent) + line, soft_wrap=True)


def rich_table(table: Table, *, gap: int = 2, show_header: bool = True) -> RichTable:
    """A table as rich prints it.

    Args:
        table: heads, rows and what is above and below them.
        gap: columns of the terminal between two of its columns.
        show_header: whether the heads are printed.
    """
    found = RichTable(
        title=Text(clean(table.title)) if table.title else None,
        title_justify="left",
        title_style="bold",
        caption=clean(table.caption) or None,
        caption_justify="left",
        box=None,
        padding=(0, gap, 0, 0),
        pad_edge=False,
        show_header=show_header,
    )
    for column in table.shape:
        found.add_column(
            Text(clean(column.head)),
            justify="right" if column.number else "left",
            overflow="fold",
            no_wrap=column.whole,
            min_width=column.width,
        )
    for row in table.rows:
        cells = (Styled(cell, "") if isinstance(cell, str) else cell for cell in row)
        found.add_row(*(Text(clean(cell.text), style=cell.style) for cell in cells))
    return found


def pipe_table(table: Table) -> str:
    """A table in Markdown, without the columns of which no row has anything."""
    shown = table.filled
    rows = [shown.heads, ["---"] * len(shown.columns), *(map(escaped, r) for r in shown.texts)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def bullets(items: Iterable[str]) -> str:
    """A list in Markdown, of texts as they are."""
    return "\n".join(f"* {escaped(item)}" for item in items)


def markdown(parts: Iterable[str]) -> str:
    """A document of Markdown's paragraphs, tables and lists; empty ones are left out."""
    return "\n\n".join(filter(None, parts)) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))
