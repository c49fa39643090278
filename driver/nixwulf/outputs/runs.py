"""The runs in an output: each is read alone, and a result that no run has is named by its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from nixwulf.core.files import DATA, read_toml
from nixwulf.outputs import Found, ParseError, Tool, ToolFailed

# An object that begins a line, also as the first of a list.
_OBJECT = re.compile(r"^(?:\[\s*+)?(?=\{)", re.MULTILINE)
# With a key and what it holds: no word of a log in braces.
_OF_JSON = re.compile(r'\{\s*+"[^"\n]{1,80}+"\s*+:')
_NEXT = re.compile(r"[\s,]*+(?=\{)")
_DECODER = json.JSONDecoder()
_PATTERNS = read_toml(DATA / "outputs_runs.toml")
_LINE = re.compile(r"\bline (\d{1,9})")


# From, to, and two results of which a run has one.
_Span = tuple[int, int, tuple[int, int] | None]


@dataclass(frozen=True)
class _Run:
    """A part of a text with the results of one run, and the line in which it begins, from 1 on.

    problem: why it cannot be read.
    """

    line: int
    text: str
    problem: str = ""


def read_runs(tool: Tool, text: str) -> tuple[list[Found], list[str]]:
    """The cases of all runs, each with its line, and a sentence for each run that has none.

    Raises ParseError where no run can be read.
    """
    found: list[Found] = []
    unread: list[str] = []
    if ignored := _marks(tool.name).get("ignored"):
        text = ignored.sub(lambda part: "\n" * part[0].count("\n"), text)
    parts = [_Run(1, text)] if tool.reads_all else runs(tool, text)
    for run in parts:
        cases: Sequence[Found] = ()
        try:
            cases = [] if run.problem else tool.read(run.text)
        except ParseError as error:
            problem = _moved(error.format_message(), run.line - 1)
            if isinstance(error, ToolFailed) and tool.failed and tool.recognises(run.text):
                cases = [replace(tool.failed, failure=problem)]
            else:
                run = replace(run, problem=problem)  # noqa: PLW2901
        found += [replace(case, line=case.line + run.line - 1) for case in cases]
        if run.problem:
            unread.append(run.problem)
            if len(parts) > 1:
                unread[-1] = f"the run that begins in line {run.line} is left out: {unread[-1]}"
    if not found:
        more = f" ({len(unread) - 1} more runs cannot be read.)" if len(unread) > 1 else ""
        raise ParseError(f"{unread[0]}{more}")
    return found, unread


def _moved(sentence: str, lines: int) -> str:
    """The first line that it names is then one of the file."""
    return _LINE.sub(lambda found: f"line {int(found[1]) + lines}", sentence, count=1)


def runs(tool: Tool, text: str) -> list[_Run]:
    """The parts of a text, at least one: JSON objects of the tool, and between them its text."""
    spans: list[_Span] = []
    position = 0
    cut: list[int] = []
    for begin, end, whole in _objects(text):
        if tool.recognises(text[begin:end]):
            own = True
        else:
            own = not (whole or any(_texts(tool, text, begin, end)))
            own = own and bool(_OF_JSON.match(text, begin))
            cut += [begin] if own else []
        if own:
            spans += [*_texts(tool, text, position, begin), (begin, end, None)]
            position = end
    spans += _texts(tool, text, position, len(text))
    found, line, position = [], 1, 0
    for begin, end, twice in spans or [(0, len(text), None)]:
        line += text.count("\n", position, begin)
        position, problem = begin, ""
        if begin in cut:
            problem = f"line {line} begins an object of JSON that has no end."
        elif twice:
            lines = [line + text.count("\n", begin, result) for result in twice]
            problem = (
                f"lines {lines[0]} and {lines[1]} are of two runs, and no line between them shows "
                "where the second begins; give each a file of its own."
            )
        found.append(_Run(line, text[begin:end], problem))
    return found


def _objects(text: str) -> Iterator[tuple[int, int, bool]]:
    """Where the objects of a text lie, whole or, up to the next that begins a line, broken."""
    whole, position = True, 0
    while begin := _OBJECT.search(text, position):
        start: int | None = begin.end()
        while start is not None:
            end = _end_of_object(text, start) if whole else None
            ended = True
            if end is None:
                # Only once to the end of the text: there may be many that never end.
                whole = False
                after = _OBJECT.search(text, start + 1)
                limit = after.start() if after else len(text)
                length = _end_of_object(text[start:limit], 0)
                ended = length is not None
                end = start + length if length is not None else limit
            yield start, end, ended
            position = end
            more = _NEXT.match(text, end)
            start = more.end() if more else None


def _end_of_object(text: str, start: int) -> int | None:
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _texts(tool: Tool, text: str, begin: int, end: int) -> Iterator[_Span]:
    """Of a part of the text its runs with a result: what is before the first head is the first's.

    A head begins a run where there is a result since the last. One whose pattern has a group is a
    line of results too, and begins one only after an end: a result whose pattern has a group, which
    a run has once. So does one that is there again, where only such are between the two.
    """
    patterns = _marks(tool.name)
    if not patterns:
        if text[begin:end].strip() and tool.recognises(text[begin:end]):
            yield begin, end, None
        return
    marks = [(mark.start(), False, mark) for mark in patterns["heads"].finditer(text, begin, end)]
    marks += [(mark.start(), True, mark) for mark in patterns["results"].finditer(text, begin, end)]
    run = _Marks()
    for position, is_result, mark in sorted(marks, key=lambda each: each[:2]):
        key = mark.groups() if any(group is not None for group in mark.groups()) else None
        if run.ended_by(key, is_result=is_result):
            yield begin, position, run.twice
            begin, run = position, _Marks()
        if is_result:
            run.take(key, position)
    if run.has_result:
        yield begin, end, run.twice


@cache
def _marks(tool: str) -> Mapping[str, re.Pattern[str]]:
    """The patterns of the lines of a tool's runs; none where its runs are objects."""
    own = _PATTERNS.get(tool, {})
    own = _PATTERNS[own["like"]] if "like" in own else own
    return {key: re.compile(pattern, re.MULTILINE) for key, pattern in own.items()}


@dataclass
class _Marks:
    """The results of a run: ends by what they are; twice: where one is that is there again."""

    has_result: bool = False
    rows: bool = False
    ends: dict[tuple[str | None, ...], int] = field(default_factory=dict)
    twice: tuple[int, int] | None = None

    def ended_by(self, key: tuple[str | None, ...] | None, *, is_result: bool) -> bool:
        """Whether a line begins the next run."""
        if not is_result:
            return bool(self.ends) or (self.has_result and key is None)
        return key in self.ends and not self.rows and not self.twice

    def take(self, key: tuple[str | None, ...] | None, position: int) -> None:
        """A line of results; key: what a run has once, None: it has many."""
        self.has_result, self.rows = True, key is None and bool(self.ends)
        if key in self.ends:
            self.twice = self.twice or (self.ends[key], position)
        elif key is not None:
            self.ends[key] = position
