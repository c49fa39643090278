"""The picture of published speeds beside their predictions, docs/published.svg.

The predictions are those of 'nixwulf explain' on the same records.
"""

from __future__ import annotations

import re

from nixwulf.core.text import format_significant, plural
from nixwulf.report.charts import Chart, Curve, Mark, to_file
from nixwulf.report.lines import COMPARISONS, Comparison, band_of, decodes

NAME = "published.svg"


def picture() -> str:
    """All comparisons as an SVG: decode by number of nodes."""
    charts = [_chart(style, one) for style, one in enumerate(COMPARISONS)]
    return to_file(charts, [f"published: {one.source}, {one.split}" for one in COMPARISONS], "")


def same_words(first: str, second: str) -> bool:
    """Whether two pictures show the same texts; their shapes depend on matplotlib's version."""
    one, other = (re.findall(r">([^<]*\w[^<]*)<", text) for text in (first, second))
    return one == other


def _chart(style: int, comparison: Comparison) -> Chart:
    marks = []
    for one in decodes(comparison):
        band, nodes = band_of(one), one.case["nodes"]
        predicted = format_significant(band.value) if band else ""
        words = f"{plural(nodes, 'node')}: {format_significant(one.measured)} tok/s"
        marks.append(
            Mark(
                nodes,
                one.measured,
                style,
                words,
                kind="published",
                predicted=band,
                predicted_words=f"{plural(nodes, 'node')}: predicted ~{predicted} tok/s",
            )
        )
    line = Curve([(mark.x, mark.y) for mark in marks], style)
    title = f"{comparison.model}, {comparison.machines}"
    return Chart(title, "decode, tok/s", "nodes", marks, [line], steps=True)
