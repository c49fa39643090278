"""Predictions beside the values of a site."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from nixwulf.core.metric import is_predicted
from nixwulf.perf.explain.explanation import Explained, explain_records
from nixwulf.perf.explain.text import measured, sentences
from nixwulf.report.predicted import About, about
from nixwulf.report.site.look import Figure
from nixwulf.report.site.rows import SiteRow, Source
from nixwulf.results.identity import case_id, one_name
from nixwulf.results.store import PLAN, read_plan


def explained(rows: Iterable[SiteRow], sources: Iterable[Source]) -> list[SiteRow]:
    """Rows, each with its explanation; a run folder is explained as a whole."""
    folders: defaultdict[Path, list[Source]] = defaultdict(list)
    for source in sources:
        folders[_folder(source)].append(source)
    found: defaultdict[tuple[Path, str, str], list[Explained]] = defaultdict(list)
    for folder, own in folders.items():
        place = folder.parent / PLAN
        plan = read_plan(place) if place.exists() else None
        for one in explain_records([(source.record, plan) for source in own])[0]:
            found[folder, case_id(one.record), one.metric].append(one)
    return [
        replace(
            row,
            explained=_explanation_of(
                row, found[_folder(row.source), case_id(row.source.record), row.metric]
            ),
        )
        for row in rows
    ]


def words(rows: Sequence[SiteRow]) -> list[tuple[str, list[str]]]:
    """For each value that has a prediction to show, both in words and the sentences beside it."""
    return [
        (f"{row.key.words}: {measured(row.explained)}", list(sentences(row.explained)))
        for row in rows
        if row.explained and row.predicted
    ]


def with_words(figures: Iterable[Figure]) -> list[Figure]:
    """Figures with their prediction notes; a sentence is in those of the first figure only."""
    found: list[Figure] = []
    shown: set[str] = set()
    for figure in figures:
        own = _about([row for rows in figure.rows for row in rows])
        new = tuple(sentence for sentence in own.why if sentence not in shown)
        shown.update(new)
        found.append(replace(figure, prediction_notes=replace(own, why=new)))
    return found


def _name(row: SiteRow) -> str:
    """'gpt-oss-120b, 4 × framework-desktop, ethernet, pipeline, llama.cpp'."""
    machines = f"{row.nodes} × {'+'.join(row.platforms)}"
    split = row.parallelism if row.nodes > 1 else ""
    return ", ".join(filter(None, (row.model, machines, row.link, split, row.program)))


def _about(rows: Sequence[SiteRow]) -> About:
    named = [(_name(row), one) for row in rows if (one := _speed(row))]
    return about(named, [(row.value, row.predicted) for row in rows if row.value and row.predicted])


def _speed(row: SiteRow) -> Explained | None:
    """The explanation of a row, if its metric can be predicted."""
    return row.explained if is_predicted(row.metric, row.unit) else None


def why_not(rows: Sequence[SiteRow]) -> str:
    """Why no speed of a record has a prediction; empty where one has, or where there is none."""
    reasons = [one.why_not for row in rows if (one := _speed(row)) and one.why_not]
    return "" if not reasons or any(row.predicted for row in rows) else reasons[0]


def _folder(source: Source) -> Path:
    return source.entry.path.parent


def _explanation_of(row: SiteRow, found: Sequence[Explained]) -> Explained | None:
    """The one whose conditions are the row's."""
    for one in found:
        asked = one_name(one.conditions)
        if row.unit == "tok/s" and all(row.conditions.get(k) == v for k, v in asked.items()):
            return one
    return None
