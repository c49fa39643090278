"""Tools that a table describes: their results are lines and rows, whatever stands around them.

data/outputs has a file a tool. In a pattern <name> is a number that is called so; a group of any
other text is written out, (?P<model>\\S+). What a name becomes is listed once a tool: a metric, a
condition, or else something observed beside the metrics of its line.
data/outputs_without_result.toml has outputs that people have beside those of benchmarks.
"""

from __future__ import annotations

import csv
import json
import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from nixwulf import outputs
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import Metric
from nixwulf.core.text import plural

_FOLDER = DATA / "outputs"
_NODES = {"": outputs.ANY, "one": outputs.ONE, "pair": outputs.PAIR}
_PLACE = re.compile(r"(?<!\?P)<(\w+)>")
_SUBJECT = ("model", "version", "note", "fabric", "nodes", "parallelism", "transport")
_NEVER = r"(?!)"
# Conditions in which an engine has the numbers of GPUs that share a model, by the parallelism.
_SPLIT = {"tensor": "tensor_parallel", "pipeline": "pipeline_parallel"}
_SETTING = re.compile(r"\b(\w+) = (-?[0-9]{1,15})\b")
_WHOLE = re.compile(r"[0-9]{1,15}")
_LONGEST_LINE = 4096
_Values = dict[str, float | str]
# A text and the colon of a key, a bracket of either side, or a word; whole or not.
_JSON = re.compile(r'"([^"\\\n]*+(?:\\.[^"\\\n]*+)*)"(\s*:)?|([\[{])|([\]}])|([\w.+-]+)')


class _Said(NamedTuple):
    """A pattern's finds: of the run, all its metrics, its section, its own, and beside."""

    subject: dict[str, str]
    shared: _Values
    section: _Values
    own: _Values
    beside: _Values


class _Table(TypedDict):
    """A table of an output: names that its head has, and what its columns are.

    kinds: by a column and a pattern of its cell, what the column `value` is in that row.
    """

    head: Sequence[str]
    columns: Mapping[str, str]
    repeats: NotRequired[Sequence[str]]
    kinds: NotRequired[Mapping[str, Mapping[str, str]]]


@dataclass
class _Run:
    """A run as far as its lines gave it; line is the first of them.

    shared and observed: of all its metrics; section: of those that come after it; lasting: of the
    runs after it too, unless they say otherwise. names: columns of its table; called: of its
    metrics.
    """

    line: int = 0
    subject: dict[str, str] = field(default_factory=dict)
    shared: _Values = field(default_factory=dict)
    section: _Values = field(default_factory=dict)
    lasting: _Values = field(default_factory=dict)
    observed: _Values = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    table: _Table | None = None
    above: dict[str, str] = field(default_factory=dict)

    def next(self, line: int) -> _Run:
        return _Run(line, dict(self.subject), dict(self.lasting), lasting=self.lasting)

    def add(self, said: _Said, line: int, lasting: Set[str], unsure: Set[str]) -> None:
        """Add a line's facts; where two lines disagree, nothing shows which is right."""
        kept = {key: one for key, one in said.shared.items() if key in lasting}
        if lasting and kept.keys() == said.shared.keys() and not self.line:
            self.lasting |= kept
        else:
            self.line = self.line or line
        self.subject |= said.subject
        self.section |= said.section
        self.shared |= said.shared
        for key in (unsure - lasting) & self.shared.keys():
            del self.shared[key]

    def differing(self, subject: Mapping[str, str], shared: _Values) -> set[str]:
        """The keys that another line of the run has another value for."""
        both = ((self.subject, subject), (self.shared, shared))
        return {key for old, new in both for key in new if old.get(key, new[key]) != new[key]}

    def finished(self) -> list[Metric]:
        """Return the metrics, with what other lines have of all of them; equal ones are samples."""
        alike: dict[str, Metric] = {}
        samples: dict[str, list[float]] = {}
        for index, one in enumerate(self.metrics):
            conditions = {**self.shared, **one.conditions}
            observed = {**self.observed, **one.observed}
            key = json.dumps([one.name, conditions, observed, None if one.samples else index])
            if key not in alike:
                alike[key] = replace(one, conditions=conditions, observed=observed)
            samples.setdefault(key, []).extend(one.samples)
        return outputs.as_printed(
            replace(one, samples=tuple(samples[key])) for key, one in alike.items()
        )


class _Description:
    """A file of data/outputs, with its patterns compiled."""

    def __init__(self, path: Path) -> None:
        own = read_toml(path)
        known = {**read_toml(path.with_stem(own.get("like", path.stem))), **own}
        self.document = known
        self.name: str = known["name"]
        self.metrics: Mapping[str, Mapping[str, Any]] = known["metrics"]
        self.sections = set(known.get("sections", ()))
        self.lasting = set(known.get("lasting", ()))
        self.conditions = self.sections | set(known.get("conditions", ()))
        self.whole = set(known.get("whole", ()))
        parts: Mapping[str, str] = known.get("parts", {})
        self.lines = [
            (_pattern(one, parts), key == "rows")
            for key in ("lines", "rows")
            for one in known.get(key, ())
        ]
        self.begins = re.compile(known.get("begins", _NEVER))
        self.states = re.compile(known.get("states", _NEVER))
        self.settings: str = known.get("settings", "")
        self.sources = [re.compile(one) for one in known.get("sources", ())]
        self.unless = re.compile("|".join(known.get("unless", [_NEVER])), re.MULTILINE)
        self.tables: Sequence[_Table] = known.get("tables", ())

    def recognises(self, text: str) -> bool:
        """One of its marks, in a line with a result or their head, or its words for a failure."""
        if self.unless.search(text):
            return False
        if any(words in text for words in self.document.get("fails", ())):
            return True
        marks = [mark for mark in self.document["marks"] if mark in text]
        lines = text.splitlines() if marks else []
        lines = [line for line in lines if any(mark in line for mark in marks)]
        known = [*(pattern for pattern, _ in self.lines), self.begins]
        results = [one for one, _ in self.lines if self.metrics.keys() & one.groupindex.keys()]
        beside = self._beside(text) if marks else ()
        return any(one.search(line) for _, line in beside for one in results) or any(
            (self.settings and self.settings in line)
            or self._head(line)[0]
            or any(one.search(_short(line)) for one in known)
            for line in lines
        )

    def _beside(self, text: str) -> Iterator[tuple[int, str]]:
        """Lines made of the objects and the tables of a text, each with the one it begins in."""
        yield from _objects(text) if self.document.get("json") else ()
        yield from _grids(text, self.document["grids"]) if "grids" in self.document else ()

    def _head(self, line: str) -> tuple[list[str], _Table | None]:
        """The columns of a table that a line is the head of, and the table; else none."""
        for table in self.tables:
            if all(name in line for name in table["head"]) and len(line) < _LONGEST_LINE:
                names = outputs.cells(line) or re.findall(
                    _words(table["columns"]), line.lstrip("# ")
                )
                whole = [one for one in table["columns"] if one.endswith(names[0])]
                if whole and names[0] not in whole:  # the beginning of a paste is cut off
                    names[0] = whole[0]
                if set(table["head"]) <= set(names):
                    return names, table
        return [], None

    def read(self, text: str) -> list[outputs.Found]:
        """A case a run; raises ParseError where there is none."""
        streams = {"": [_Run()]}
        lines = enumerate(map(_short, text.splitlines()), 1)
        for number, line in sorted([*lines, *self._beside(text)], key=lambda one: one[0]):
            source = self._source(line)
            if source not in streams:
                streams[source] = [streams[""][-1].next(number)]
            self._line(number, line, streams[source])
        every = (run for runs in streams.values() for run in runs)
        kept = sorted((run for run in every if run.metrics), key=lambda run: run.line)
        tables = sum(bool(run.table) for run in kept)
        found = [
            self._found(run, {"table": number} if tables > 1 else {}, text)
            for number, run in enumerate(kept, 1)
        ]
        if not found:
            raise outputs.without_result(
                self.name, f"one such as {self.document['example']!r}", text
            )
        return found

    def _source(self, line: str) -> str:
        """The process, or its request, whose result a line has, of several in a log; or empty."""
        if not any(pattern.search(line) for pattern, _ in self.lines):
            return ""
        found = (one.search(line) for one in self.sources)
        return next((match[0] for match in found if match), "")

    def _line(self, number: int, line: str, runs: list[_Run]) -> None:
        """Give one line's numbers to the last of the runs, or to one that it begins."""
        names, table = self._head(line)
        begins = bool(self.begins.search(line))
        if runs[-1].metrics and (begins or (names and runs[-1].table)):
            runs.append(_Run() if self.document.get("alone") else runs[-1].next(number))
        run = runs[-1]
        run.line = run.line or (number if begins else 0)
        if names:
            run.names, run.table, run.line = names, table, run.line or number
        elif self.settings and self.settings in line:
            run.line = run.line or number
            for name, value in _SETTING.findall(line):
                (run.shared if name in self.conditions else run.observed)[name] = int(value)
        elif run.table and (row := _row(run.names, line)):
            for name in run.table.get("repeats", ()):
                run.above[name] = row[name] = row.get(name) or run.above.get(name, "")
            run.metrics += self._row(row, run.table, number)
            return
        for pattern, own in self.lines:
            for match in pattern.finditer(line):
                self._take(match, number, runs, own=own)
        if self.states.search(line):
            run = runs[-1]  # the line may have begun another
            run.lasting |= {key: one for key, one in run.shared.items() if key in self.lasting}

    def _take(self, match: re.Match[str], line: int, runs: list[_Run], *, own: bool) -> None:
        """Take what a pattern finds; a metric that a run has once begins the next one.

        own: whether its conditions are of its own metrics alone.
        """
        values = {name: text for name, text in match.groupdict().items() if text is not None}
        given = [name for name in values if name in self.metrics]
        names, there = set(map(self._name, given)), runs[-1].called
        said = self._said(values, own=own)
        differing = runs[-1].differing(said.subject, said.shared)
        if there and (differing or (not own and there & names)):
            runs.append(runs[-1].next(line))
        run = runs[-1]
        run.add(said, line, self.lasting, set() if there else differing)
        run.observed |= {} if given or own else said.beside
        run.called |= names
        # A server logs its speed also while it does nothing.
        idle = [one for one in given if self.document.get("zeros") and float(values[one]) == 0]
        of_it = {**run.section, **said.own}
        beside = said.beside | dict.fromkeys(map(self._name, idle), 0)
        for name in given:
            if name not in idle:
                run.metrics.append(self._metric(name, values[name], of_it, beside))

    def _said(self, values: Mapping[str, str], *, own: bool) -> _Said:
        conditions = {k: _value(v) for k, v in values.items() if k in self.conditions}
        for key in self.whole & conditions.keys():
            if not float(values[key]).is_integer():  # a mean of several lengths
                del conditions[key]
            else:
                conditions[key] = int(float(values[key]))
        metrics = [self.metrics[name] for name in values if name in self.metrics]
        known = self.metrics.keys() | self.conditions | set(_SUBJECT)
        return _Said(
            {key: values[key] for key in _SUBJECT if values.get(key)}
            | dict(pair for one in metrics for pair in one.items() if pair[0] == "transport"),
            {} if own else {k: v for k, v in conditions.items() if k not in self.sections},
            {key: one for key, one in conditions.items() if key in self.sections},
            conditions if own else {},
            {key: _value(text) for key, text in values.items() if key not in known},
        )

    def _name(self, value: str) -> str:
        return str(self.metrics[value].get("name", value))

    def _metric(self, value: str, text: str, conditions: _Values, observed: _Values) -> Metric:
        """A number, or a mean with its deviation, in the unit of records; raises ParseError."""
        known = self.metrics[value]
        numbers = outputs.mean_and_deviation(text.rstrip("% "))
        if numbers is None:
            raise outputs.ParseError(f"{value} is {text[:40]!r}, expected a number.")
        times = known.get("times", 1)
        over = float(observed[known["over"]]) if "over" in known else 1.0
        mean, deviation = _times(numbers[0] / (over or 1.0), times), numbers[1]
        name, slots = self._name(value), conditions.get("concurrency", 1)
        if "together" in known and not isinstance(slots, str) and slots > 1:
            name = known["together"]
        return Metric(
            name,
            known["unit"],
            (mean,) if deviation is None else (),
            conditions=conditions,
            observed=observed,
            value=mean,
            stddev=None if deviation is None else _times(deviation, times),
        )

    def _row(self, row: Mapping[str, str], table: _Table, line: int) -> Iterator[Metric]:
        columns = table["columns"]
        called = {columns[name]: cell for name, cell in row.items() if name in columns and cell}
        for column, kinds in table.get("kinds", {}).items():
            kind = next((kinds[one] for one in kinds if re.search(one, row.get(column, ""))), None)
            if kind and "value" in called:
                called[kind] = called.pop("value")
        conditions = {k: _value(v) for k, v in called.items() if k in self.conditions}
        times = self.document.get("beside", {})
        beside = {
            key: _value(cell, times.get(key, 1) if "value" in called else 1)
            for key, cell in called.items()
            if key not in self.metrics and key not in self.conditions
            if key not in times or cell[:1].isdigit()
        }
        for value, text in called.items():
            if value in self.metrics and self._counts(value, text, conditions):
                try:
                    yield self._metric(value, text, conditions, beside)
                except outputs.ParseError as error:
                    problem = error.format_message()
                    raise outputs.ParseError(f"{self.name}, line {line}: {problem}") from None

    def _counts(self, value: str, text: str, conditions: _Values) -> bool:
        """Whether a cell is a result: not one of nothing, nor more than its metric can be."""
        known, number = self.metrics[value], outputs.mean_and_deviation(text)
        if conditions.get(known.get("of", "")) == 0:
            return False
        return number is None or number[0] <= known.get("most", math.inf)

    def failed(self) -> outputs.Found:
        known = self.document
        return outputs.Found(
            known.get("benchmark", self.name),
            (),
            machines=known.get("machines", False),
            nodes=_NODES[known.get("nodes", "")],
            engine={"name": known["engine"]} if "engine" in known else {},
        )

    def _found(self, run: _Run, parameters: Mapping[str, object], text: str) -> outputs.Found:
        known, subject = self.document, run.subject
        version = subject.get("version", "")
        note = subject.get("note") or (f"{self.name} {version}" if version else "")
        ends, case = known.get("ends", ""), self.failed()
        whole = re.search(known.get("ended", re.escape(ends)), text, re.MULTILINE)
        alone = re.search(known.get("one_node", _NEVER), str(run.shared.get("label", "")))
        means = known.get("values", {})
        count = int(subject.get("nodes", 0))
        stated = outputs.exactly(count, plural(count, "node")) if count else case.nodes
        split = {name: int(run.shared[key]) for name, key in _SPLIT.items() if key in run.shared}
        if split and not count:
            gpus = math.prod(split.values())
            words = " and ".join(f"{key} parallelism {size}" for key, size in split.items())
            stated = outputs.Nodes(1 if gpus == 1 else None, 1, gpus, words)
        ways = [key for key, size in split.items() if size > 1]
        return replace(
            case,
            metrics=run.finished(),
            nodes=outputs.ONE if alone else stated,
            parallelism=ways[0] if len(ways) == 1 else means.get(subject.get("parallelism")),
            parameters=parameters,
            engine={**case.engine, "version": version} if case.engine else {},
            model=outputs.model_of(subject.get("model", "")),
            transport=means.get(subject.get("transport"), subject.get("transport")),
            fabric=subject.get("fabric"),
            note="" if version and "engine" in known else note,
            warnings=() if whole else (f"It ends before its line {ends!r}.",),
            line=run.line,
        )


def _short(line: str) -> str:
    """Both ends of a line: an answer of a server has its figures at the end."""
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} {line[-half:]}"


def _pattern(text: str, parts: Mapping[str, str]) -> re.Pattern[str]:
    """A pattern in which {name} is a part that several have, and <name> a number."""
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return re.compile(_PLACE.sub(rf"(?P<\1>(?<!\\d)(?<!\\d[.,]){outputs.NUMBER})", text))


def _words(columns: Mapping[str, str]) -> str:
    """The columns of a head that blanks divide: known names have blanks in them."""
    known = sorted(columns, key=len, reverse=True)
    return "|".join((*map(re.escape, known), r"\S+"))


def _row(names: Sequence[str], line: str) -> dict[str, str]:
    """The cells of a line of a table by its columns; empty where it is no row of it."""
    found = outputs.cells(line) if names else []
    words = line.split() if names and not found else []
    numbers = [word for word in words[1:] if word[:1].isdigit()]
    if line.lstrip()[:1].isdigit() or (len(numbers) > 1 and len(numbers) == len(words) - 1):
        found = found or words
    if not found or len(found) != len(names) or not any(cell[:1].isdigit() for cell in found):
        return {}
    return dict(zip(names, (cell.rstrip(":") for cell in found), strict=True))


def _objects(text: str) -> list[tuple[int, str]]:
    """The line of each object of JSON, whole or not, and its keys, sorted: 'jobs|a=1|read.iops=5|'.

    An object is part of the one around it, but for those of a list, whose name is in front.
    """
    inside: dict[str, str] = {}
    found, above, prefix, name = [(0, "", inside)], [(inside, "")], "", ""
    for token in _JSON.finditer(text):
        (words, colon, opens, closes, word), path = token.groups(), prefix + name
        if opens:
            above.append((inside, prefix))
            inside |= {path: "["} if name and opens == "[" else {}
            prefix = (f"{path}." if opens == "{" and name else path)[:_LONGEST_LINE]
            if not name or opens == "[":
                inside = {}
                found.append((token.start(), prefix, inside))
                prefix = prefix if opens == "[" else ""
        elif closes:
            inside, prefix = above.pop() if len(above) > 1 else above[0]
        elif name and not colon:
            if path in inside:
                inside = {}
                found.append((token.start(), "", inside))
            inside[path] = (words or word or "").replace("|", " ")[:_LONGEST_LINE]
        name = words if colon else ""
    ends = [one.start() for one in re.finditer("\n", text)]
    return [
        (bisect(ends, at) + 1, "|".join((label, *(f"{key}={own[key]}" for key in sorted(own)), "")))
        for at, label, own in found
        if own
    ]


def _grids(text: str, heads: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """The line of each row of a table or of CSV, and its cells, sorted: '1.2|Metric=TTFT|avg=5|'.

    In front are how often the table was there, and which row of it this is. heads: by the first
    name of a head how many lines it has; a cell without a blank is the end of the one before it.
    The text of a row without anything else goes on with that of the row above.
    """
    tables: Counter[tuple[str, ...]] = Counter()
    names: list[str] = []
    rows: list[tuple[int, str, list[str], list[str]]] = []
    missing = first = 0
    for number, line in enumerate(text.splitlines(), 1):
        found = _split(line)
        cells = [cell.strip() for cell in found]
        if not missing and cells[0] in heads and len(cells) > 1:
            names, missing, first = [""] * len(cells), heads[cells[0]], len(rows)
        if len(cells) != len(names):
            names = [] if any(map(str.isalnum, line)) else names
        elif missing:
            for index, cell in enumerate(found[1:], 1):
                cells[index] = cells[index] if cell else cells[index - 1]
            names = [" ".join(filter(None, pair)) for pair in zip(names, cells, strict=True)]
            missing -= 1
            tables[tuple(names)] += not missing
        elif len(rows) > first and cells[0] and not any(cells[1:]):
            rows[-1][3][0] += f" {cells[0]}"
        elif any(map(str.isdigit, line)):
            rows.append((number, f"{tables[tuple(names)]}.{len(rows) - first}", names, cells))
    for number, name, columns, cells in rows:
        pairs = sorted(zip(columns, cells, strict=True))
        yield number, "|".join((name, *(f"{key}={cell}" for key, cell in pairs), ""))


def _split(line: str) -> list[str]:
    """The cells of a line between strokes or, without any, commas."""
    line = re.sub("[│┃]", "|", line.strip())
    if "|" in line:
        return line.removeprefix("|").removesuffix("|" * line.startswith("|")).split("|")
    try:
        return next(csv.reader([line])) or [""]
    except (csv.Error, StopIteration):
        return [""]


def _value(text: str, times: int = 1) -> float | str:
    if times == 1 and _WHOLE.fullmatch(text):
        return int(text)
    return _times(float(text), times) if re.fullmatch(outputs.NUMBER, text) else text


def _times(number: float, factor: float) -> float:
    """A product without what binary fractions add in its last places."""
    return float(f"{number * factor:.12g}")


def _tool(path: Path) -> outputs.Tool:
    known = _Description(path)
    what, failed = known.document["what"], known.failed()
    return outputs.Tool(
        known.name, known.recognises, known.read, reads_all=True, what=what, failed=failed
    )


class Kind(NamedTuple):
    """An output without a benchmark's result: its name, what it holds, how it is recognised."""

    name: str
    what: str
    pattern: re.Pattern[str]


KINDS = tuple(
    Kind(name, one["what"], re.compile(one["pattern"], re.MULTILINE))
    for name, one in read_toml(DATA / "outputs_without_result.toml").items()
)


def kind_of(text: str) -> Kind | None:
    """Name the kind of a text, or None."""
    return next((kind for kind in KINDS if kind.pattern.search(text)), None)


TOOL = tuple(_tool(path) for path in sorted(_FOLDER.glob("*.toml")))
