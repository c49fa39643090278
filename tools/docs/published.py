"""The picture of published speeds beside their predictions, docs/published.svg.

The predictions are those of 'nixwulf explain' on the same records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from nixwulf.core.text import format_significant, plural
from nixwulf.perf.explain.explanation import Explained, explain
from nixwulf.report.charts import Chart, Curve, Mark, to_file
from nixwulf.report.predicted import band_of

RECORDS = Path(__file__).parents[2] / "results" / "published" / "records"
NAME = "published.svg"


@dataclass(frozen=True)
class Comparison:
    """Published records that differ in the number of nodes: their files, a title, a legend."""

    pattern: str
    title: str
    legend: str


COMPARISONS = (
    Comparison(
        "framework-desktop-llama.cpp-gpt-oss-120b-*.json",
        "gpt-oss-120b, Framework Desktops",
        "published: lhl, llama.cpp, layers split over Ethernet",
    ),
    Comparison(
        "mac-studio-m3-ultra-exo-qwen3-235b-a22b-*.json",
        "Qwen3-235B-A22B, Mac Studios M3 Ultra",
        "published: J. Geerling, exo, tensors split over RDMA",
    ),
)


def picture() -> str:
    """Both comparisons as an SVG: decode by number of nodes."""
    charts = [_chart(style, one) for style, one in enumerate(COMPARISONS)]
    return to_file(charts, [one.legend for one in COMPARISONS], "")


def same_words(first: str, second: str) -> bool:
    """Whether two pictures show the same texts; their shapes depend on matplotlib's version."""
    one, other = (re.findall(r">([^<]*\w[^<]*)<", text) for text in (first, second))
    return one == other


def decodes(comparison: Comparison) -> list[Explained]:
    """Its decode speeds by number of nodes, each with a prediction.

    A cluster that was measured on one node only is no comparison of nodes.
    """
    records = sorted(RECORDS.glob(comparison.pattern))
    found = [one for path in records for one in explain(path)[0] if one.metric == "decode"]
    split = {_who(one) for one in found if one.case["nodes"] > 1}
    return sorted((one for one in found if _who(one) in split), key=lambda one: one.case["nodes"])


def _who(one: Explained) -> tuple[str, ...]:
    source, engine = one.record["source"], one.record["engine"]
    return source["url"], engine["name"], engine.get("version", "")


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
    return Chart(comparison.title, "decode, tok/s", "nodes", marks, [line], steps=True)
