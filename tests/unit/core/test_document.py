"""Tables and paragraphs: the same on a terminal and in Markdown, whatever stands in them."""

import io

import pytest
from rich.console import Console

from nixwulf.core.document import (
    Cell,
    Column,
    RowGroup,
    Table,
    bullets,
    escaped,
    markdown,
    pipe_table,
    plain_table,
    print_table,
    rich_table,
    say,
)

TABLE = Table(
    ("case", Column("tok/s", number=True), "note"),
    [("one node", "410", ""), ("2 nodes", Cell("80.5", style="good"), "")],
    notes=("Watts: wall.",),
)


def printed(width=60, *, terminal=False):
    out = io.StringIO()
    return out, Console(file=out, width=width, force_terminal=terminal, color_system=None)


def test_a_table_has_no_borders_on_a_terminal_and_pipes_in_markdown():
    out, console = printed()
    console.print(rich_table(TABLE))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "case      tok/s  note",
        "one node    410",
        "2 nodes    80.5",
    ]
    assert pipe_table(TABLE).splitlines() == [
        "| case | tok/s |",
        "| --- | --- |",
        "| one node | 410 |",
        "| 2 nodes | 80.5 |",
    ]


def test_a_table_without_its_empty_columns_keeps_all_else():
    assert TABLE.filled.heads == ["case", "tok/s"]
    assert TABLE.filled.cells[1][1] == Cell("80.5", style="good")
    assert TABLE.filled.notes == TABLE.notes


def test_what_a_record_says_is_neither_markup_nor_a_sequence_of_a_terminal():
    evil = "[red]a|b*c_[/red]\x1b[31m<b>"
    out, console = printed()
    console.print(rich_table(Table((evil,), [(evil,)])))
    say(console, evil)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("[red]a|b*c_[/red]<b>") == 3
    assert pipe_table(Table(("x",), [(evil,)])).splitlines()[2].count(" | ") == 0
    assert escaped("a\n b") == "a b"


GROUPED = Table(
    (Column("metric", whole=True), Column("mean", "us", number=True)),
    [RowGroup("one node", "ok"), ("TTFT", "9.0"), RowGroup("2 nodes", "hang", "bad")],
)


def test_a_group_stands_over_its_rows_on_a_terminal_and_in_markdown():
    out, console = printed()
    print_table(console, GROUPED)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "one node: ok",
        "          mean",
        "  metric    µs",
        "  TTFT     9.0",
        "2 nodes: hang",
    ]
    assert pipe_table(GROUPED).splitlines()[2:] == [
        "| **one node** ok |  |",
        "| TTFT | 9.0 |",
        "| **2 nodes** hang |  |",
    ]


def test_plain_text_breaks_no_cell_and_parts_groups_by_an_empty_line():
    command = "x" * 300
    plan = Table((Column("", width=7), ""), [RowGroup("n1"), ("command", command), RowGroup("n2")])
    assert plain_table(plan, indent=2) == f"n1\n  command  {command}\n\nn2"
    assert plain_table(Table(("gate", "n1"), [("mtu", "ok")])) == "gate  n1\nmtu   ok"


@pytest.mark.parametrize(
    ("terminal", "whole", "lines"),
    [(False, False, 1), (False, True, 1), (True, False, 2), (True, True, 1)],
)
def test_a_paragraph_is_broken_by_a_terminal_alone_and_what_is_to_be_copied_never(
    terminal, whole, lines
):
    out, console = printed(12, terminal=terminal)
    say(console, "two words and", indent=2, whole=whole)
    assert len(out.getvalue().splitlines()) == lines
    assert out.getvalue().startswith("  two words")


def test_a_document_has_no_empty_paragraphs():
    assert markdown(["# A", "", bullets([]), bullets(["b", "c_d"])]) == "# A\n\n* b\n* c\\_d\n"
