"""Tables as HTML: what a record holds stays text, and cells keep their kind."""

import re

from nixwulf.core.document import Cell, Column, RowGroup, Table
from nixwulf.report.tables import html_link, html_table

EVIL = "<b onclick=x>\x1b[31m\"&'"


def test_no_text_of_a_table_becomes_markup():
    table = Table(
        (EVIL, Column(EVIL, unit=EVIL)),
        [RowGroup(EVIL, EVIL), (EVIL, Cell(EVIL, EVIL, "bad", "./a?b=\"'&c"))],
    )
    page = html_table(table, EVIL)
    assert "<b" not in page
    assert "\x1b" not in page
    assert "&lt;b onclick=x&gt;" in page
    assert re.findall(r'href="([^"]*)"', page) == ["./a?b=&#34;&#39;&amp;c"]


def test_the_first_cell_of_a_row_is_its_head_and_numbers_are_set_to_the_right():
    table = Table(("case", Column("RTT", "us", number=True)), [("a", Cell("9", "of 10"))])
    page = html_table(table, "Cases")
    assert '<th scope="row">a</th><td class="number">9 <small>of 10</small></td>' in page
    assert 'data-column="RTT">RTT <small>µs</small></th>' in page


def test_only_a_link_that_leaves_the_pages_hides_where_it_comes_from():
    assert html_link("./x.html", "x") == '<a href="./x.html">x</a>'
    assert "noreferrer" in html_link("https://example.org", "x")
