"""Documents of sentences and tables, for a terminal, as GitHub Markdown and as text.

A table is described once. It has no borders on a terminal and pipes in Markdown; as plain text
none of its cells is broken. report/tables.py makes HTML of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from nixwulf.core.text import clean, unit_name

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@])")
_PIPE_WIDTH = 1000  # of which rich fills none
_COLOURS = {"good": "green", "warning": "yellow", "bad": "red", "quiet": "dim"}


class Column(NamedTuple):
    """A column: its head and the unit of its numbers.

    number: its cells are set to the right; whole: they are not broken into lines; width: its least
    width in characters.
    """

    head: str
    unit: str = ""
    number: bool = False
    whole: bool = False
    width: int | None = None

    @property
    def title(self) -> str:
        """Head and unit: 'RTT, µs'."""
        return ", ".join(filter(None, (self.head, unit_name(self.unit))))


class Cell(NamedTuple):
    """A cell with more than its text.

    note: beside it, smaller where letters have sizes; style: good, warning, bad, quiet, or a class
    of the pages that only HTML has; href: where it leads in HTML, an address that is safe to open.
    """

    text: str
    note: str = ""
    style: str = ""
    href: str = ""

    @property
    def words(self) -> str:
        """Join its text and note."""
        return " ".join(filter(None, (self.text, self.note)))


@dataclass(frozen=True)
class RowGroup:
    """The heading of the rows after it, up to the next; without text only a rule."""

    text: str = ""
    note: str = ""
    style: str = ""


Value = str | Cell
"""Of a cell; a Markup, which HTML takes as it is, is for HTML alone."""
Row = Sequence[Value]


@dataclass(frozen=True)
class Table:
    """Rows of cells; a column is its head where it is of plain text.

    title and caption are above and below it on a terminal; notes: where its numbers are from.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Row | RowGroup]
    title: str = ""
    caption: str = ""
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> list[Column]:
        """The columns, also those that are given by their heads."""
        return [Column(one) if isinstance(one, str) else one for one in self.columns]

    @property
    def heads(self) -> list[str]:
        """The heads of its columns."""
        return [column.head for column in self.shape]

    @property
    def groups(self) -> list[tuple[RowGroup | None, list[list[Cell]]]]:
        """The rows, group by group; None stands for no group."""
        found: list[tuple[RowGroup | None, list[list[Cell]]]] = []
        for row in self.rows:
            if isinstance(row, RowGroup):
                found.append((row, []))
                continue
            if not found:
                found.append((None, []))
            found[-1][1].append([Cell(one) if isinstance(one, str) else one for one in row])
        return found

    @property
    def has_groups(self) -> bool:
        """Tell whether rows have words over them."""
        return any(isinstance(row, RowGroup) and row.text for row in self.rows)

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows without their groups."""
        return [row for _, rows in self.groups for row in rows]

    @property
    def filled(self) -> Table:
        """The same without the columns of which no row has anything."""
        rows = self.cells
        return self._of(
            [i for i, one in enumerate(self.shape) if not one.head or any(r[i].text for r in rows)]
        )

    def without(self, titles: Collection[str]) -> Table:
        """The same without the columns of these heads, or heads and units."""
        gone = {i for i, one in enumerate(self.shape) if {one.head, one.title} & {*titles}}
        return self._of([i for i in range(len(self.columns)) if i not in gone])

    def _of(self, kept: Sequence[int]) -> Table:
        rows = [row if isinstance(row, RowGroup) else [row[i] for i in kept] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in kept], rows=rows)


def output(*, stderr: bool = False) -> Console:
    """Standard output or error: a pipe or a file is wide enough to break no cell and no word."""
    console = Console(highlight=False, stderr=stderr)
    if console.is_terminal:
        return console
    return Console(highlight=False, stderr=stderr, width=_PIPE_WIDTH)


def say(
    console: Console, text: Text | str, style: str = "", *, indent: int = 0, whole: bool = False
) -> None:
    """Print a paragraph: a terminal breaks it between words, in a pipe or a file it is a line.

    text: without control characters, unless it is a Text. whole: also one line on a terminal, such
    as one with a link, or to copy.
    """
    line = text if isinstance(text, Text) else Text(clean(text), style=style)
    if console.is_terminal and not whole:
        console.print(Padding(line, (0, 0, 0, indent)) if indent else line)
    else:
        console.print(Text(" " * indent) + line, soft_wrap=True)


def rich_table(table: Table, *, gap: int = 2, show_header: bool = True) -> RichTable:
    """The rows of a table as rich prints them, with a gap of so many characters."""
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
            Text(clean("\n".join(filter(None, (column.head, unit_name(column.unit)))))),
            justify="right" if column.number else "left",
            overflow="fold",
            no_wrap=column.whole,
            min_width=column.width,
        )
    for row in table.cells:
        found.add_row(*(_text(cell.words, cell.style) for cell in row))
    return found


def print_table(console: Console, table: Table, *, gap: int = 2) -> None:
    """Print a table, each group under its words, in columns of one width."""
    if not table.has_groups:
        console.print(rich_table(table, gap=gap))
        return
    widths = _widths(table)
    columns = [
        column._replace(width=width) for column, width in zip(table.shape, widths, strict=True)
    ]
    if table.title:
        console.print(_text(table.title, "bold"))
    for index, (group, rows) in enumerate(table.groups):
        if group:
            console.print(_text(f"{group.text}: ").append_text(_text(group.note, group.style)))
        if rows:
            own = Table(columns, rows)
            printed = rich_table(own, gap=gap, show_header=index == 0)
            console.print(Padding(printed, (0, 0, 0, 2), expand=False))
    if table.caption:
        console.print(_text(table.caption, "italic dim"))


def _text(text: str, style: str = "") -> Text:
    return Text(clean(text), style=_COLOURS.get(style, style))


def _widths(table: Table) -> list[int]:
    """Return the width of each column: its longest cell, its head or its least width."""
    return [
        max([len(column.head), len(column.unit), column.width or 0, *map(len, texts)])
        for column, *texts in zip(
            table.shape, *([cell.words for cell in row] for row in table.cells), strict=True
        )
    ]


def plain_table(table: Table, *, indent: int = 0) -> str:
    """A table as lines of which none is broken, so that they can be copied.

    The rows of a group are under its words, after an empty line; indent is characters.
    """
    widths = _widths(table)

    def line(texts: Iterable[str]) -> str:
        cells = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
        return (" " * indent + "  ".join(cells)).rstrip()

    parts = [line(table.heads)] if any(table.heads) else []
    for group, rows in table.groups:
        head = [group.text] if group else []
        lines = [*head, *(line(cell.words for cell in row) for row in rows)]
        parts.append("\n".join(lines))
    return clean(("\n\n" if table.has_groups else "\n").join(parts))


def pipe_table(table: Table) -> str:
    """A table in Markdown, without the columns of which no row has anything."""
    shown = table.filled
    width = len(shown.columns)
    rows = [[escaped(column.title) for column in shown.shape], ["---"] * width]
    for group, cells in shown.groups:
        if group is not None and group.text:
            words = " ".join(filter(None, (f"**{escaped(group.text)}**", escaped(group.note))))
            rows.append([words, *[""] * (width - 1)])
        rows += ([escaped(cell.words) for cell in row] for row in cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def bullets(items: Iterable[str]) -> str:
    """A list in Markdown, of texts as they are."""
    return "\n".join(f"* {escaped(item)}" for item in items)


def markdown(parts: Iterable[str]) -> str:
    """A document of Markdown's paragraphs, tables and lists; empty ones are left out."""
    return "\n\n".join(filter(None, parts)) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))
