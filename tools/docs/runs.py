"""Figures of the project's own runs, put into pages from the records that are kept of them.

A page has a comment `<!-- run FOLDER -->` where they belong, and `<!-- end of the run -->` after
it; what stands between is made of the records in that folder, and is nothing where it has none.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown import table

_PLACE = re.compile(r"(<!-- run (\S+) -->\n).*?(<!-- end of the run -->\n)", re.DOTALL)
_PICTURE = "decode.svg"
_KEYS = ("model", "nodes", "parallelism", "fabric")


def pages(root: Path) -> dict[Path, str]:
    """Each page by hand that has such a place, with the figures of today's records."""
    by_hand = (root / "README.md", *sorted((root / "docs").glob("*.md")))
    texts = {page: page.read_text(encoding="utf-8") for page in by_hand}
    return {page: filled(text, page, root) for page, text in texts.items() if _PLACE.search(text)}


def filled(text: str, page: Path, root: Path) -> str:
    """The text of a page with the figures of the runs that it names."""

    def place(found: re.Match[str]) -> str:
        folder = root / found[2]
        return found[1] + figures(folder, os.path.relpath(folder, page.parent)) + found[3]

    return _PLACE.sub(place, text)


def without_runs(text: str) -> str:
    """The text of a page without the figures that were filled in."""
    return _PLACE.sub(r"\1\3", text)


def figures(folder: Path, shown_as: str) -> str:
    """What the records of a run measured, as Markdown; empty where there is no record.

    shown_as: the folder as the page links to it.
    """
    if not list(folder.glob("records/*.json")):
        return ""
    import nixwulf
    from nixwulf.results.table import by_case

    tidy = nixwulf.load(folder)
    cases = by_case(tidy)
    metrics = list(dict.fromkeys(cases["metric"]))
    head = ["model", "nodes", "split", "fabric", "round trip, us"]
    head += [f"{name}, {cases[cases['metric'] == name]['unit'].iloc[0]}" for name in metrics]
    outcomes = Counter(tidy.drop_duplicates(["record", "started"])["outcome"])
    runs = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    picture = f"![decode against the round trip]({shown_as}/{_PICTURE})\n\n"
    return (
        f"{picture if (folder / _PICTURE).exists() else ''}{table(head, _rows(cases, metrics))}\n"
        f"Mean ± standard deviation of all samples; runs: {runs} ([records]({shown_as})).\n"
    )


def _rows(cases: Any, metrics: list[str]) -> Iterator[list[str]]:
    """A row a case: where it ran, and each metric; what a case lacks is empty."""
    cases = cases.astype(dict.fromkeys(_KEYS, object)).fillna(dict.fromkeys(_KEYS, ""))
    for keys, case in cases.groupby(list(_KEYS), sort=False):
        trip = case["rtt_us"].iloc[0]
        values = [case[case["metric"] == name] for name in metrics]
        yield [
            *map(str, keys),
            f"{trip:.0f}" if trip == trip else "",  # noqa: PLR0124 - NaN
            *(_value(one) for one in values),
        ]


def _value(rows: Any) -> str:
    if rows.empty:
        return ""
    mean, spread = float(rows["mean"].iloc[0]), float(rows["stddev"].iloc[0])
    text = f"{mean:.{max(0, 2 - math.floor(math.log10(mean)))}f}" if mean else "0"
    if math.isnan(spread):
        return text
    return f"{text} ± {spread:.0f}" if spread >= 10 else f"{text} ± {spread:.2g}"  # noqa: PLR2004
