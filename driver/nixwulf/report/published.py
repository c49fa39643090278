"""Published decode speeds by number of nodes, each beside its prediction.

For the picture of the README, and for who waits for an engine to be built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.core.files import DATA, find_results, read_toml
from nixwulf.core.text import format_significant
from nixwulf.perf.explain.explanation import Explained, explain
from nixwulf.report.predicted import band_of

if TYPE_CHECKING:
    from rich.table import Table

RECORDS = Path("results/published/records")


@dataclass(frozen=True)
class Comparison:
    """Published records that differ in the number of nodes alone.

    pattern: of their files. machines, model, split: in words. source: who measured.
    """

    pattern: str
    machines: str
    model: str
    split: str
    source: str


_DATA = DATA / "comparisons.toml"
COMPARISONS = tuple(Comparison(**row) for row in read_toml(_DATA)["comparisons"])


def decodes(comparison: Comparison) -> list[Explained]:
    """Its decode speeds by number of nodes.

    Those of who measured one node only are left out: there is nothing to compare.
    """
    records = sorted(find_results(RECORDS).glob(comparison.pattern))
    found = [one for path in records for one in explain(path)[0] if one.metric == "decode"]
    split = {_who(one) for one in found if one.case["nodes"] > 1}
    return sorted((one for one in found if _who(one) in split), key=lambda one: one.case["nodes"])


def to_rich(comparisons: Sequence[Comparison] = COMPARISONS) -> Table:
    """All of them as a table for the terminal."""
    from rich.table import Table

    table = Table(
        title="Until there are speeds of your own, decode in tok/s, published and predicted:",
        title_justify="left",
        box=None,
    )
    table.add_column("", no_wrap=True)
    for name in ("nodes", "published", "predicted (80 %)"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in comparisons:
        words = (f"{each.model}, {each.machines}", each.split, f"measured by {each.source}")
        for name, one in zip_longest(words, decodes(each)):
            band = band_of(one) if one else None
            speeds = (str(one.case["nodes"]), format_significant(one.measured)) if one else ("", "")
            table.add_row(name or "", *speeds, band.text if band else "")
    return table


def _who(one: Explained) -> tuple[str, ...]:
    source, engine = one.record["source"], one.record["engine"]
    return source["url"], engine["name"], engine.get("version", "")
