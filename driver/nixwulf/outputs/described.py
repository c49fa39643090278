"""Tools that a table describes: their results are lines and rows, whatever stands around them.

data/outputs has a file a tool. In a pattern <name> is a number that is called so; a group of any
other text is written out, (?P<model>\\S+). What a name becomes, a metric, a condition or else
something observed beside the metrics of its line, is listed once a tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from nixwulf.core.files import read_toml
from nixwulf.core.metric import Metric
from nixwulf.outputs import ANY, ONE, PAIR, Found, ParseError, Tool, as_printed, model_of
from nixwulf.outputs.forms import NUMBER, cells, last_words, mean_and_deviation

_FOLDER = Path(str(resources.files("nixwulf"))) / "data" / "outputs"
_NODES = {"": ANY, "one": ONE, "pair": PAIR}
_PLACE = re.compile(r"(?<!\?P)<(\w+)>")
_SUBJECT = ("model", "file", "version", "build_commit", "note")
_WHOLE = re.compile(r"[0-9]{1,15}")


@dataclass
class _Run:
    """What the lines of one run gave so far.

    shared and observed: of all its metrics; section: of those that come after it.
    """

    line: int = 0
    subject: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    section: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)

    def finished(self) -> Iterator[Metric]:
        """Its metrics with what the other lines of the run have of all of them."""
        for one in self.metrics:
            yield Metric(
                one.name,
                one.unit,
                one.samples,
                conditions={**self.shared, **one.conditions},
                observed={**self.observed, **one.observed},
                value=one.value,
                stddev=one.stddev,
            )


class _Description:
    """A file of data/outputs, with its patterns compiled."""

    def __init__(self, path: Path) -> None:
        self.document = read_toml(path)
        self.name: str = self.document["name"]
        self.values: Mapping[str, Any] = self.document.get("metrics", {})
        self.sections = set(self.document.get("sections", ()))
        self.conditions = self.sections | set(self.document.get("conditions", ()))
        self.lines = [(self._pattern(one), False) for one in self.document.get("lines", ())]
        self.lines += [(self._pattern(one), True) for one in self.document.get("rows", ())]
        self.own = re.compile(self.document.get("own", r"(?!)"))
        self.begins = re.compile(self.document.get("begins", r"(?!)"))
        self.fails = re.compile(self.document.get("fails", r"(?!)"))
        self.tables: Sequence[Mapping[str, Any]] = self.document.get("tables", ())

    def _pattern(self, text: str) -> re.Pattern[str]:
        return re.compile(_PLACE.sub(rf"(?P<\1>{NUMBER})", text))

    def recognises(self, text: str) -> bool:
        """One of its marks, in a line that has a result or is the head of its results."""
        document = self.document
        if any(mark in text for mark in document.get("unless", ())):
            return False
        marks = [mark for mark in document["marks"] if mark in text]
        if not marks:
            return False
        known = [pattern for pattern, _ in self.lines] + [self.begins, self.fails]
        for line in text.splitlines():
            if any(mark in line for mark in marks):
                if any(one.search(line) for one in known) or self._head(line):
                    return True
        return False

    def _head(self, line: str) -> tuple[list[str], Mapping[str, Any]] | None:
        """The columns of a table that a line is the head of, and the table."""
        for table in self.tables:
            if all(name in line for name in table["head"]):
                names = cells(line) or re.findall(_words(tuple(table["columns"])), line.lstrip("# "))
                if set(table["head"]) <= set(names):
                    return names, table
        return None

    def read(self, text: str) -> list[Found]:
        """A case for each subject and each part of a text that others' lines do not divide."""
        groups: list[list[_Run]] = [[]]
        run, names, table, above = _Run(), list[str](), dict[str, Any](), dict[str, str]()
        for number, line in enumerate(text.splitlines(), 1):
            if head := self._head(line):
                names, table = head[0], dict(head[1])
                if run.metrics:
                    groups[-1].append(run)
                    run = _Run(number, dict(run.subject))
                run.line = run.line or number
                continue
            if self.begins.search(line) and run.metrics:
                groups[-1].append(run)
                run = _Run(number)
            row = _row(names, line) if names else {}
            if row:
                run.line = run.line or number
                for name in table.get("repeats", ()):
                    above[name] = row[name] = row[name] or above.get(name, "")
                run.metrics += self._row(row, table, number)
                continue
            taken = False
            for pattern, own in self.lines:
                for match in pattern.finditer(line):
                    taken = True
                    run = self._take(match, run, number, groups[-1], own=own)
            if not taken and line.strip() and not self.own.search(line) and run.metrics:
                groups[-1].append(run)
                groups.append([])
                run = _Run(number + 1, dict(run.subject), dict(run.shared))
        groups[-1].append(run)
        found = [case for group in groups for case in self._cases(group, text)]
        if not found:
            raise ParseError(
                f"{self.name}: no result in {len(text.splitlines())} lines, expected one such as "
                f"{self.document['example']!r}{last_words(text)}"
            )
        return found

    def _take(
        self, match: re.Match[str], run: _Run, line: int, done: list[_Run], *, own: bool
    ) -> _Run:
        """What one line gives; one that a run has once begins the next run.

        Args:
            done: gets the run that ends here.
            own: whether its conditions are of its own metrics alone.
        """
        values = {name: text for name, text in match.groupdict().items() if text is not None}
        given = [name for name in values if name in self.values]
        if not own and run.metrics and {one.name for one in run.metrics} & {
            self._name(name) for name in given
        }:
            done.append(run)
            run = _Run(line, dict(run.subject))
        run.line = run.line or line
        for key in _SUBJECT:
            if values.get(key):
                run.subject[key] = values[key]
        conditions = {k: _value(v) for k, v in values.items() if k in self.conditions}
        beside = {
            key: _value(text)
            for key, text in values.items()
            if key not in self.values and key not in self.conditions and key not in _SUBJECT
        }
        run.section |= {key: one for key, one in conditions.items() if key in self.sections}
        if not own:
            run.shared |= {key: conditions[key] for key in conditions.keys() - self.sections}
            run.observed |= {} if given else beside
        for name in given:
            # A server logs its speed also while it does nothing.
            if not (self.document.get("zeros") and float(values[name]) == 0):
                of_it = {**run.section, **(conditions if own else {})}
                run.metrics.append(self._metric(name, values[name], of_it, beside))
        return run

    def _name(self, value: str) -> str:
        return str(self.values[value].get("name", value))

    def _metric(
        self, value: str, text: str, conditions: Mapping[str, Any], observed: Mapping[str, Any]
    ) -> Metric:
        """A number, or a mean with its deviation, in the unit of records."""
        known = self.values[value]
        number = mean_and_deviation(text.rstrip("% "))
        if number is None:
            raise ParseError(f"{self.name}: {value} is {text[:40]!r}, expected a number.")
        times = known.get("times", 1)
        mean, deviation = (None if n is None else _rounded(n * times) for n in number)
        fixed = {**known.get("conditions", {}), **conditions}
        samples = () if deviation is not None or mean is None else (mean,)
        return Metric(
            self._name(value),
            known["unit"],
            samples,
            conditions=fixed,
            observed=observed,
            value=mean,
            stddev=deviation,
        )

    def _row(
        self, row: Mapping[str, str], table: Mapping[str, Any], line: int
    ) -> Iterator[Metric]:
        """The metrics of a row, by the names of its columns."""
        columns = table["columns"]
        called = {columns[name]: cell for name, cell in row.items() if name in columns and cell}
        conditions = {k: _value(v) for k, v in called.items() if k in self.conditions}
        beside = {
            key: _value(cell)
            for key, cell in called.items()
            if key not in self.values and key not in self.conditions
        }
        for value, text in called.items():
            if value not in self.values or conditions.get(self.values[value].get("of")) == 0:
                continue
            try:
                yield self._metric(value, text, conditions, beside)
            except ParseError:
                column = next(name for name in row if columns.get(name) == value)
                raise ParseError(
                    f"{self.name}, line {line}: {column} is {text[:40]!r}, expected a number."
                ) from None

    def _cases(self, runs: Sequence[_Run], text: str) -> Iterator[Found]:
        """One for each subject: metrics of the same conditions are its samples."""
        subjects: dict[str, list[_Run]] = {}
        for run in runs:
            if run.metrics:
                subjects.setdefault(json.dumps(run.subject, sort_keys=True), []).append(run)
        for own in subjects.values():
            alike: dict[str, list[Metric]] = {}
            for one in (metric for run in own for metric in run.finished()):
                key = json.dumps([one.name, one.conditions, one.observed], sort_keys=True)
                alike.setdefault(f"{key}{'' if one.samples else id(one)}", []).append(one)
            found = self._found(own[0], [_together(same) for same in alike.values()])
            ends = self.document.get("ends")
            yield replace(found, warnings=(f"It ends before {ends!r}.",)) if (
                ends and ends not in text
            ) else found

    def _found(self, run: _Run, metrics: Sequence[Metric]) -> Found:
        document, subject = self.document, run.subject
        engine = {"name": document["engine"]} if "engine" in document else {}
        about = {key: subject[key] for key in ("version", "build_commit") if key in subject}
        note = subject.get("note", "")
        if "version" in about and not engine:
            note = f"{self.name} {about['version']}"
        return Found(
            document.get("benchmark", self.name),
            as_printed(metrics),
            machines=document.get("machines", False),
            nodes=_NODES[document.get("nodes", "")],
            engine={**engine, **about} if engine else {},
            model=model_of(subject.get("model", subject.get("file", ""))),
            note=note,
            line=run.line,
        )


def _words(columns: tuple[str, ...]) -> str:
    """The columns of a head that blanks divide: known names have blanks in them."""
    known = sorted(columns, key=len, reverse=True)
    return "|".join((*(re.escape(name).replace(r"\ ", " +") for name in known), r"\S+"))


def _row(names: Sequence[str], line: str) -> dict[str, str]:
    """The cells of a line of a table by its columns; empty where it is no row of it."""
    found = cells(line) or line.split()
    if len(found) != len(names) or not any(re.match(r"[0-9]", cell) for cell in found):
        return {}
    return dict(zip(names, found, strict=True))


def _value(text: str) -> int | float | str:
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if re.fullmatch(NUMBER, text) else text


def _rounded(number: float) -> float:
    """Without what a product of two decimal numbers adds in its last places."""
    return float(f"{number:.12g}")


def _together(same: Sequence[Metric]) -> Metric:
    first = same[0]
    return Metric(
        first.name,
        first.unit,
        tuple(sample for one in same for sample in one.samples),
        conditions=first.conditions,
        observed=first.observed,
        value=first.value,
        stddev=first.stddev,
    )


def _tool(path: Path) -> Tool:
    known = _Description(path)
    return Tool(known.name, known.recognises, known.read, reads_all=True)


TOOL = tuple(_tool(path) for path in sorted(_FOLDER.glob("*.toml")))
