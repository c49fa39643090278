"""The text of an output as people post it, and the runs in it: each is read alone.

Around and inside it stand quotes, fences, HTML, chat lines, colours, mpirun's prefixes, and numbers
of other locales; lines keep their numbers. A result that no run has is named by its line.
"""

from __future__ import annotations

import codecs
import csv
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from nixwulf.core.files import DATA, read_toml
from nixwulf.outputs import Found, ParseError, Tool, ToolFailed

_OF_HTML = re.compile(r"<(?:pre|code|td|th|tr|br|p|div|span|table)\b[^>\n]{0,400}>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b(?:(?!</?tr\b).)*</tr>", re.IGNORECASE | re.DOTALL)
_CELL = re.compile(r"<t[dh]\b[^>]{0,400}>", re.IGNORECASE)
_BREAK = re.compile(
    r"<br ?/?>(?!\n)|(?<!\n)</?(?:p|div|pre|tr|table)\b[^>\n]{0,400}>(?!\n)", re.IGNORECASE
)
_TAG = re.compile(r"</?[a-z][a-z0-9]{0,15}\b(?: [^<>\n]{0,400})?/?>", re.IGNORECASE)
# Not those that end a text of JSON, or a line.
_ENTITY = re.compile(
    r"&(?!quot;|bsol;|newline;|#)[a-z]\w{1,11};|&#(?:\d{3,5}|x[0-9a-f]{2,4});", re.I
)
# Separators of thousands in Swiss and French. A plain blank may also stand between two numbers: it
# is one only inside a number that stands alone, in a text where such a number has decimals.
_BLANKS_APART = re.compile(
    r"(?<=[:=|(±])([ \t]{0,60}\d{1,3})((?: \d{3}){1,4}(?:[.,]\d{1,9})?)"
    r"(?= {0,60}(?:$|[|)±%]| [a-zA-Zµ]))",
    re.MULTILINE,
)
_WITH_DECIMALS = re.compile(r"\d \d{3}[.,]\d")
_LAST = re.compile(r"(?:± *)?(?<![\w-])\d[\d.]*\Z")
_TABLE_ROW = re.compile(r"^ *\|(?:[^|\n]*\|)+[^|\n]*$", re.MULTILINE)
_LINES_BEFORE = 3
_FEWEST_ALIKE = 2
# The end of a number; and llama.cpp's and ollama's label of an answer, which is the end of a
# prompt's where the line below goes on with the prompt, or begins with the answer.
_FIRST = re.compile(
    r"[.,]\d[\d.,]*"
    r"|eval (time|count|duration|(rate))\b.*\n"
    r"(?=[ \t]+eval \1|.*\bprompt eval (?!\1)|(?(2)\W*eval count|(?!)))"
)
# The head of a printed table that a spreadsheet saved.
_SAVED = re.compile(
    r"^[^\n|]{1,400}([;,])[ \t]*\"?(?:test\"?\1[ \t]*\"?t/s|t/s\"?\1[ \t]*\"?test)\b", re.MULTILINE
)
# The head of CSV with keys that a spreadsheet saved where decimals have commas.
_KEYED = re.compile(r'(?m)^(?=.*\b(?:avg_ts|timestamp_utc)\b)"?\w+"?([;\t])[^\n,]+$')
_DECIMALS = re.compile(r"^(?:\d+|\d{1,3}(?:\.\d{3})+),\d+$")
_NUMBERS = re.compile(r"(?<![\w.])\d+(?:\.(\d+))?(?!\w)")
# Numbers that stand alone, so that no address, version, list or row of CSV is one; nor the list
# that is the value of an option.
_OPTIONS = "".join(rf"(?<!\s-[a-z-]{{{{{length}}}}}[ =])" for length in range(1, 24))
_ALONE = (
    rf"(?<![^\s|(\[=~±•·])(?=\d){_OPTIONS}{{}}"
    r"(?=[\s|)\]%±]|$|[a-zA-Z]{{1,4}}(?:/[a-z]{{1,5}})?(?![\w.]))"
)
_COMMA_DECIMALS = re.compile(
    _ALONE.format(r"(?:\d{1,3}(?:\.\d{3})+,\d+|\d+,(?:\d{1,2}|\d{4,}))"), re.MULTILINE
)
_POINT_DECIMALS = re.compile(_ALONE.format(r"\d+\.(?:\d{1,2}|\d{4,})"), re.MULTILINE)
_ANY_POINT = re.compile(_ALONE.format(r"\d[\d,]*\.\d+"), re.MULTILINE)
_EUROPEAN = re.compile(_ALONE.format(r"(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?"), re.MULTILINE)
_COMMA = re.compile(r"\d,\d")
_THOUSANDS = _ALONE.format(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_GROUPED = re.compile(_THOUSANDS, re.MULTILINE)
_GROUPED_COUNT = re.compile(
    _THOUSANDS + r"(?! ?(?:t/s|tok|ms\b|s\b|[GM]i?B\b|[GM]b))", re.MULTILINE
)


@cache
def _steps(path: Path) -> list[tuple[Sequence[str], str, str]]:
    steps = read_toml(path)["steps"]
    return [(one["marks"], one["pattern"], one.get("instead", "")) for one in steps]


def rewritten(text: str, path: Path) -> str:
    """A text after the steps of a file of data: what stands for lines is there for each of them."""
    for marks, pattern, instead in _steps(path):
        if any(mark in text for mark in marks):
            text = re.sub(pattern, partial(_each_line, instead), text, flags=re.MULTILINE)
    return text


def _each_line(instead: str, found: re.Match[str]) -> str:
    return found.expand(instead) * (found[0].count("\n") or 1)


def decoded(content: bytes) -> str:
    """The text of a file, with LF alone at the ends of lines; raises UnicodeDecodeError."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # of PowerShell's >
    text = content.decode("utf-16" if wide else "utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def plain(text: str) -> str:
    """An output alone, of a text with what people post around it."""
    if "<" in text and _OF_HTML.search(text):
        text = _ROW.sub(lambda row: " ".join(_CELL.sub(" | ", row[0]).split()), text)
        text = html.unescape(_TAG.sub("", _BREAK.sub("\n", text)))
    text = _ENTITY.sub(lambda one: html.unescape(one[0]), text) if "&" in text else text
    text = rewritten(text, DATA / "blanks.toml")
    if _WITH_DECIMALS.search(text):
        text = _BLANKS_APART.sub(lambda one: one[1] + one[2].replace(" ", ""), text)
    text = rewritten(text, DATA / "wrapping.toml")
    if saved := _SAVED.search(text):
        text = text[: saved.start()] + _joined(text[saved.start() :], saved[1], " | ")
    if saved := _KEYED.search(text):
        text = text[: saved.start()] + _joined(text[saved.start() :], saved[1], ",")
    return _pointed(text) if _COMMA.search(text) else text


def _joined(text: str, apart: str, between: str) -> str:
    """A text whose lines with as many cells as its first have another separator, and points."""
    lines = text.split("\n")
    try:
        rows = [next(csv.reader([line], delimiter=apart), []) for line in lines]
    except csv.Error:
        return text
    pairs = zip(lines, rows, strict=True)
    points = partial(_DECIMALS.sub, lambda one: one[0].replace(".", "").replace(",", "."))
    quote = (lambda one: f'"{one}"' if "," in one else one) if between == "," else str
    edge = between.strip(" ,")
    return "\n".join(
        f"{edge}{between.join(map(quote, map(points, row)))}{edge}"
        if len(row) == len(rows[0])
        else line
        for line, row in pairs
    )


def clipped(text: str) -> tuple[str, list[str]]:
    """A text without what touches the ends of a paste that begins or ends in the middle.

    With a sentence for each: the last number, where it has fewer decimals than those before it;
    a first number without its beginning; and a first label that can be the end of another one.
    """
    sentences = []
    if first := _FIRST.match(text):
        shown = first[0].rstrip("\n")
        sentences.append(f"line 1 begins in the middle, with {shown[:40]}: left out.")
        text = ("\n" if first[0].endswith("\n") else "") + text[first.end() :]
    row = _cut_row(text)
    body = text[:row].rstrip()
    if cut := _cut_number(body, whole=row is None and body != text):
        line = body.count("\n") + 1
        sentences.append(f"line {line} ends in {cut}, which is cut off: left out.")
        text = body.removesuffix(cut) + text[len(body) :]
    return text, sentences


def _cut_row(text: str) -> int | None:
    """The end of a table's last row, where it lacks the pipe that closes the row above."""
    rows = list(_TABLE_ROW.finditer(text))[-2:]
    last = rows[-1][0].rstrip() if rows else ""
    closed = len(rows) > 1 and rows[0][0].rstrip().endswith("|")
    return rows[-1].end() if closed and not last.endswith("|") else None


def _cut_number(text: str, *, whole: bool) -> str:
    """The last number of a text that ends in it, if it was cut; else nothing.

    whole: whether the line has its end, so that all numbers before it must agree.
    """
    last = _LAST.search(text)
    if last is None or '"' in text[text.rfind("\n") + 1 :]:  # JSON and CSV have readers that see it
        return ""
    lines = text[: last.start()].split("\n")[-1 - _LINES_BEFORE : -1]
    numbers = [one for line in lines for one in _NUMBERS.findall(line)[-1:]]
    numbers = numbers or _NUMBERS.findall(text[text.rfind("\n") + 1 : last.start()])
    decimals = [*map(len, numbers)]
    if last[0].endswith("."):
        return last[0]
    if whole and (len(decimals) < _FEWEST_ALIKE or len({*decimals}) > 1):
        return ""
    return last[0] if len(last[0].partition(".")[2]) < max(decimals, default=0) else ""


def _pointed(text: str) -> str:
    """Numbers with a point before their decimals and nothing between thousands.

    Where no other number shows which of the two a comma is, a speed of 261,786 stays as it is.
    """
    if _COMMA_DECIMALS.search(text) and not _POINT_DECIMALS.search(text):
        return _EUROPEAN.sub(lambda one: one[0].replace(".", "").replace(",", "."), text)
    grouped = _GROUPED if _ANY_POINT.search(text) else _GROUPED_COUNT
    return grouped.sub(lambda one: one[0].replace(",", ""), text)


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
    """A part of a text with one run's results; line: its first, from 1; problem: why unreadable."""

    line: int
    text: str
    problem: str = ""


def read_runs(tool: Tool, text: str) -> tuple[list[Found], list[str]]:
    """The cases of runs with their lines, a sentence for each run without; raises ParseError."""
    found: list[Found] = []
    unread: list[str] = []
    if ignored := _marks(tool.name).get("ignored"):
        for part in ignored.finditer(text):
            first, words = text.count("\n", 0, part.start()) + 1, part[0].strip().split("\n")[0]
            unread.append(f"line {first} begins {words[:40]!r}, which is left out: no result.")
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
    """Find the objects of a text, whole or, up to the next that begins a line, broken."""
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
    """Split a part of the text into runs with a result: text before the first head is the first's.

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
