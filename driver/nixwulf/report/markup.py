"""Tables and links as HTML; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from markupsafe import Markup, escape

from nixwulf.core.document import Cell, Column, Row, RowGroup, Table
from nixwulf.core.text import clean, unit_name


def html_table(table: Table, label: str) -> Markup:
    """A table in a region that scrolls sideways; label: the region's name."""
    bodies = "".join(
        f"<tbody{'' if group is None else _class('group')}>\n"
        f"{_group(group, len(table.columns))}{''.join(html_rows(table.shape, rows))}</tbody>\n"
        for group, rows in table.groups
    )
    return Markup(  # noqa: S704 - made of escaped texts
        f'<div class="wide" role="region" aria-label="{_escaped(label)}" tabindex="0">\n'
        f"<table>\n{html_head(table.shape)}\n{bodies}</table>\n</div>"
    )


def html_head(columns: Iterable[Column]) -> Markup:
    """The head of a table; scripts find a column by its data-column."""
    cells = (
        f'<th scope="col"{_class("number" if column.number else "")} data-column="{name}">{name}'
        f"{_note(unit_name(column.unit))}</th>"
        for column in columns
        for name in (_escaped(column.head),)
    )
    return Markup(f"<thead><tr>{''.join(cells)}</tr></thead>")  # noqa: S704 - escaped texts


def html_rows(columns: Sequence[Column], rows: Iterable[Row]) -> list[Markup]:
    """Each row; its first cell is its head."""
    return [
        Markup(f"<tr>{''.join(_cells(columns, row))}</tr>\n")  # noqa: S704 - escaped texts
        for row in rows
    ]


def _cells(columns: Sequence[Column], row: Row) -> Iterable[str]:
    for index, (column, value) in enumerate(zip(columns, row, strict=True)):
        cell = Cell(value) if isinstance(value, str) else value
        kind = "number" if column.number else "" if column.whole or not index else "wrap"
        text = html_link(cell.href, cell.text, cell.style) if cell.href else _escaped(cell.text)
        kinds = _class(f"{kind} {'' if cell.href else cell.style}".strip())
        tag, scope = ("td", "") if index else ("th", ' scope="row"')
        yield f"<{tag}{scope}{kinds}>{text}{_note(cell.note)}</{tag}>"


def html_link(href: str, text: str, style: str = "") -> Markup:
    """A link; one that leaves the pages does not tell where it comes from."""
    leaves = ' rel="noopener noreferrer external"' if "://" in href else ""
    return Markup(  # noqa: S704 - escaped texts
        f'<a{_class(style)} href="{escape(href)}"{leaves}>{_escaped(text)}</a>'
    )


def _group(group: RowGroup | None, width: int) -> str:
    if group is None or not group.text:
        return ""
    note = f" <small{_class(group.style)}>{_escaped(group.note)}</small>"
    head = f'<th scope="rowgroup" colspan="{width}" class="case">{_escaped(group.text)}{note}</th>'
    return f"<tr>{head}</tr>\n"


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else _escaped_text(text)


@lru_cache(4096)  # never of Markup, which is equal to a text that is not escaped
def _escaped_text(text: str) -> str:
    return str(escape(clean(text)))


@lru_cache(256)
def _class(names: str) -> str:
    return f' class="{escape(names)}"' if names else ""


def _note(text: str) -> str:
    return f" <small>{_escaped(text)}</small>" if text else ""
