"""A repeat on a terminal: the table, then for each slow case its causes and commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from nixwulf.core.document import Cell, Column, Table, output, rich_table, say
from nixwulf.core.text import format_significant, link_name, plural
from nixwulf.results.record import Record
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.reproduce.expected import Expectation
from nixwulf.sweep.reproduce.outcome import FASTER, INSIDE, MISSING, SLOWER, Repeat

_MOST_CAUSES = 4
_STYLES = {INSIDE: "good", SLOWER: "bad", MISSING: "warning", FASTER: "warning"}


def to_terminal(repeats: Sequence[Repeat], folder: str) -> None:
    """Print what a run in a folder came to."""
    console = output()
    sources = {repeat.expected.references[0]["kind"] for repeat in repeats}
    before = Column("published" if "published" in sources else "earlier run", number=True)
    columns = [*_COLUMNS[:2], before, *_COLUMNS[2:]]
    console.print(rich_table(Table(columns, [_row(repeat) for repeat in repeats])))
    said: set[str] = set()
    for repeat in repeats:
        text = _sentences(repeat, folder)
        if text and text not in said:
            said.add(text)
            say(console, text)
    inside = sum(repeat.verdict == INSIDE for repeat in repeats)
    say(console, f"{inside} of {plural(len(repeats), 'number')} inside the tolerance.")


_COLUMNS = (
    Column("what"),
    Column("measured", number=True),
    Column("predicted", number=True),
    Column("ratio", number=True, whole=True),
    Column("verdict", whole=True),
)


def expected(repeats: Sequence[Repeat], plan: Plan) -> None:
    """Print what a dry run would hold its cases against, and how its models are had."""
    console = output()
    rows = [
        [
            what(one.expected, one),
            f"{format_significant(one.expected.value)} {one.expected.unit}",
            f"{one.expected.tolerance:.0%}",
            one.case.id if one.case else f"none: {one.why_not}",
        ]
        for one in repeats
    ]
    columns = ("what", Column("published", number=True), Column("tolerance", number=True), "case")
    console.print(rich_table(Table(columns, rows)))
    unset = {
        f"{key} {value}": None
        for one in repeats
        for key, value in one.expected.references[0]["case"]["parameters"].items()
        if one.case and key not in one.case.parameters
    }
    if unset:
        say(console, f"Of the records' conditions nothing here sets: {', '.join(unset)}.")
    for name in dict.fromkeys(case.model for case in plan.cases if case.model):
        model = plan.sweep.models[name]
        if model.path and model.hub:
            file = re.sub("-00001-of-.*", "-*", PurePosixPath(model.path).name)
            check = f" --sha256 {model.sha256}" if model.sha256 else ""
            say(console, f"{name}: nixwulf models get {model.hub} --only '*{file}'{check}")
    missing = sum(one.case is None for one in repeats)
    planned = f"{len(repeats) - missing} of {plural(len(repeats), 'number')}"
    say(console, f"{planned} can be repeated on {plan.cluster.name!r}.")


def document(repeat: Repeat) -> dict[str, Any]:
    """A number and its repeat as JSON; values are in the unit of the metric."""
    one, interval, predicted = repeat.expected, repeat.interval, repeat.predicted
    return {
        "records": [record["id"] for record in one.references],
        **{key: getattr(one, key) for key in ("metric", "unit", "tolerance", "conditions")},
        "case": repeat.case and repeat.case.document(),
        "published": one.value,
        "measured": repeat.measured,
        "predicted": predicted and predicted.value,
        "ratio": repeat.ratio,
        "ratio_interval": interval and [interval.low, interval.high],
        **{key: getattr(repeat, key) for key in ("verdict", "why_not", "causes")},
    }


def _row(repeat: Repeat) -> list[str | Cell]:
    expected, interval = repeat.expected, repeat.interval
    ratio = "" if repeat.ratio is None else f"{repeat.ratio:.2f}"
    if interval:
        ratio += f" ({interval.low:.2f} to {interval.high:.2f})"
    return [
        what(expected, repeat),
        "" if repeat.measured is None else format_significant(repeat.measured),
        f"{format_significant(expected.value)} {expected.unit}",
        f"~{format_significant(repeat.predicted.value)}" if repeat.predicted else "",
        ratio,
        Cell(repeat.verdict, style=_STYLES[repeat.verdict]),
    ]


def what(expected: Expectation, repeat: Repeat | None = None) -> str:
    """'minimax-m2, 2 nodes, tensor, lan, decode' by the case, else by the record."""
    of = expected.references[0]["case"]
    case = repeat.case.document() if repeat and repeat.case else of
    link = link_name(case.get("fabric", ""), case.get("transport", ""))
    lengths = [
        f"{key} {value}" for key, value in expected.conditions.items() if value and key != "n_gen"
    ]
    parts = (
        case.get("model") or case["benchmark"],
        plural(case["nodes"], "node"),
        case.get("parallelism", "") if case["nodes"] > 1 else "",
        link,
        expected.metric,
        *[text for text in lengths if text.startswith(("n_prompt", "n_depth", "direction"))],
    )
    return ", ".join(filter(None, parts))


def _sentences(repeat: Repeat, folder: str) -> str:
    name = what(repeat.expected, repeat).rpartition(f", {repeat.expected.metric}")[0]
    if repeat.verdict == MISSING:
        return f"{name} was not measured: {repeat.why_not.rstrip('.')}."
    if repeat.verdict == FASTER:
        return f"{name} is faster than published: are the model and the lengths the same?"
    if repeat.verdict == INSIDE:
        return ""
    if not repeat.causes:
        return f"{name} is slower: no recorded fact explains it. Next: nixwulf explain {folder}"
    lines = [
        f"{'Likely cause' if first else 'Also'}: {cause.what}. Next: {cause.command}"
        for first, cause in zip((True, *[False] * _MOST_CAUSES), repeat.causes, strict=False)
    ]
    return "\n  ".join([f"{name} is slower.", *lines])


def list_repeatable(found: Iterable[tuple[Record, Plan | str]], cluster: str) -> None:
    """Print the published records that a cluster could repeat, and how many not, by reason."""
    console = output()
    rows, reasons = [], dict[str, int]()
    for record, plan in found:
        if isinstance(plan, str):
            reasons[plan] = reasons.get(plan, 0) + 1
            continue
        best = record["metrics"][0]
        number = f"{format_significant(best['value'])} {best['unit']}"
        rows.append([record["id"], str(record["case"]["nodes"]), best["name"], number])
    if rows:
        columns = (Column("record", whole=True), Column("nodes", number=True), "metric",
                   Column("published", number=True))  # fmt: skip
        console.print(rich_table(Table(columns, rows)))
    for reason, count in sorted(reasons.items(), key=lambda one: -one[1]):
        say(console, f"{plural(count, 'record')} of these machines left out: {reason.rstrip('.')}.")
    if rows:
        say(console, f"Repeat one by 'nixwulf reproduce RECORD --cluster {cluster}'.")
    else:
        say(console, "No published record is of this cluster's machines.")
