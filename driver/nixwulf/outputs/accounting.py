"""Numbers of an output that its reader used: those that change the answer when they change.

One rule for all tools, whose readers know nothing of it. What no answer depends on is left out, and
an import names it: in the lines that hold a result, and around them as far as the program goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.query import grouped
from nixwulf.outputs import ParseError
from nixwulf.outputs.described import KINDS

_PATTERNS = {
    name: re.compile("|".join(some)) for name, some in read_toml(DATA / "output_lines.toml").items()
}
_KEY = re.compile(r'"([\w. -]{1,60})"\s*:\s*[\[{\s]*"?[^"{}:]*$')
_VALUES = re.compile(r"\(([^()]*)\) *VALUES *\(")  # of SQL, whose names stand in each line
_QUOTED = {"'": re.compile(r"'[^']*'"), '"': re.compile(r'"[^"]*"')}
_OPTION = re.compile(r"(?<!\S)--?([A-Za-z][\w-]*)[ =](?:\d[\d.]* )*\Z")
_NAMED = re.compile(r"(?<![^\s,;(|])([\w.%/-]*[A-Za-z][\w.%/-]*)=\[?\s*\Z")
_SHARE = re.compile(r"\b\d[\d.]*% ")  # of the name of a column
_BRACKETS = re.compile(r"\[[^][]*\]|\([^()]*\)")
# What stands between the words of two numbers: a number, but for a hash, or a mark.
_APART = re.compile(r"(?<![\w.])\d[\d.,]*+(?![\da-f]{4})|[|,;]+ *|=+ *(?=\S)")
_LISTED = re.compile(r"\s{0,2}[,/-]\s{0,2}")
_PART = re.compile(r"\d+(?:\.\d+)?")
_LONG_LINE = 600
_MOST_TEXT = 60_000
_READ = 6_000_000  # characters that are read again at most
_GAP = 48
_BEFORE, _AFTER = 3, 6  # lines around a result that may be of any form
_STRANGE = 3  # lines of others between those of a program
_FAR = 40
_MOST_LABEL = 40


@dataclass(frozen=True)
class _Token:
    """A number: line from 1 on, place, label, what is alike; named: by a key, column or option."""

    line: int
    start: int
    end: int
    text: str
    label: str
    kind: Hashable
    named: bool


@dataclass(frozen=True)
class Account:
    """Numbers of a text: line, label, and a text.

    used: of what the answer has, its label with the number, and the part that it gives, or empty;
    left_out: of the rest, in the lines of results, the number. whole: whether all was looked at.
    """

    used: tuple[tuple[int, str, str], ...]
    left_out: tuple[tuple[int, str, str], ...]
    whole: bool = True


def account(read: Callable[[str], dict[str, str]], text: str, *, explain: bool = False) -> Account:
    """Account for the numbers of a text after a reader.

    read: of a text its answer in parts by name, or ParseError; explain: find each number's part.
    """
    cut = text if len(text) <= _MOST_TEXT else text[: text.rfind("\n", 0, _MOST_TEXT) + 1]
    try:
        whole = read(cut)
    except ParseError:
        return Account((), (), whole=False)
    budget = _READ // max(len(cut), 1) // (1 if cut is text else 3)
    tokens = list(_tokens(cut))
    each = 2 * len(tokens) < budget  # each number is looked at alone, else those of a kind together
    kinds = [*grouped((one.start if each else one.kind, one) for one in tokens).values()]
    ends = [token for alike in kinds for token in (*alike[:1], *alike[1:][-1:])]
    unused, reads = _unused(lambda some: _answer(read, cut, some) == whole, ends, budget)
    # A 0 may be what makes a reader pass over a number: without it the answer is the same.
    zeros = [one for one in ends if one not in unused and not re.search("[1-9]", one.text)]
    unused += _unused(lambda some: _answer(read, cut, some, "x") == whole, zeros, budget)[0]
    idle = {token.start for token in unused}
    used = [alike for alike in kinds if not {alike[0].start, alike[-1].start} <= idle]
    lines = {one.line for alike in used for one in alike}
    beside = (one.start() for kind in KINDS for one in kind.pattern.finditer(cut))
    if not used:  # a run that failed, whose reason has no number
        lines = {one.line for one in unused}
    near = _near(lines | {cut.count("\n", 0, start) + 1 for start in beside}, cut.split("\n"))
    said = {(one.label, one.text) for alike in used for one in alike}
    unknown = (one for alike in kinds if alike not in used for one in alike)
    left = [one for one in unknown if one.line in near]
    left = [one for one in left if not one.named or (one.label, one.text) not in said]
    left.sort(key=lambda one: one.line not in lines)
    named = [
        (one.line, f"{one.label} ({one.text})", _part(read, cut, one, whole) if explain else "")
        for one, *_ in used
    ]
    rest = tuple((one.line, one.label, one.text) for one in left)
    hosts = (
        (cut.count("\n", 0, one.start()) + 1, one) for one in _PATTERNS["address"].finditer(cut)
    )
    rest += tuple((line, one[1], "an address") for line, one in hosts if line in near)
    return Account(tuple(named), rest, whole=cut is text and reads < budget)


def _answer(
    read: Callable[[str], dict[str, str]], text: str, changed: Iterable[_Token], word: str = ""
) -> dict[str, str] | None:
    """The answer to a text with other numbers, or a word for each; None where it is refused."""
    for token in sorted(changed, key=lambda one: -one.start):
        text = text[: token.start] + (word or _other(token.text, token.start)) + text[token.end :]
    try:
        return read(text)
    except ParseError:
        return None


def _other(number: str, place: int) -> str:
    """Change the first digit, so that no rounding hides it; by another step in another place."""
    at = next((index for index, char in enumerate(number) if char in "123456789"), 0)
    return f"{number[:at]}{(int(number[at]) + place % 8) % 9 + 1}{number[at + 1 :]}"


def _unused(
    same: Callable[[Sequence[_Token]], bool], tokens: Sequence[_Token], budget: int
) -> tuple[list[_Token], int]:
    """Find numbers that change nothing, by halves, and how often the text was read."""
    found: list[_Token] = []
    parts, reads = [list(tokens)], 0
    while parts and reads < budget:
        part = parts.pop()
        reads += 1
        if part and same(part):
            found += part
        elif len(part) > 1:
            parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    return found, reads


def _part(
    read: Callable[[str], dict[str, str]], text: str, token: _Token, whole: dict[str, str]
) -> str:
    other = _answer(read, text, [token])
    if other is None:
        return "a check"
    parts = [*dict.fromkeys(name.strip() for name in whole if other.get(name) != whole[name])]
    return ", ".join(parts[:3]) + (", ..." if len(parts) > 3 else "") or "a condition"  # noqa: PLR2004


def _tokens(text: str) -> Iterator[_Token]:
    """Numbers alike have the same words around them, or the same key, or the same column."""
    position, heads, above = 0, dict[tuple[str, int], list[str]](), [""]
    before_it = ("", 0)
    for number, line in enumerate(text.split("\n"), 1):
        separator = next((one for one in "|," if line.count(one) > 1), " ")
        values = _VALUES.search(line)
        bare = _QUOTED["'" if values else '"'].sub if separator == "," else lambda _, one: one
        columns = separator, bare("", line).count(separator) * (separator != " ")
        names = _cells(values[1], ",") if values else heads.get(columns, [])
        first = values[0].count(",") if values else 0
        shape = "" if len(line) > _LONG_LINE else _PATTERNS["number"].sub("#", line)
        shape = re.sub(r"\d+", "0", " ".join(shape.split()))
        pair = [cell for cell in _cells(line, "|") if cell] if separator == "|" else []
        label, end = "", 0
        for index, match in enumerate(_numbers(line)):
            before, after = line[: match.start()], line[match.end() :]
            key, option = _KEY.search(before[-_LONG_LINE:]), _OPTION.search(before)
            column = bare("", before).count(separator) - first
            if key or option:
                label = (key or option or match)[1]
            elif len(pair) == 2 and before.strip(" |").startswith(pair[0]):  # noqa: PLR2004
                label = pair[0]
            elif 0 <= column < len(names) and names[column]:
                label = names[column]
            elif not (index and _LISTED.fullmatch(line[end : match.start()])):
                label = _above(above, line, match.span()) or _words(before, after)
                label = label or f"column {len(before.split()) + 1}"
            end, indent = match.end(), len(line) - len(line.lstrip())
            kind = (label, indent) if key or names else (shape, index)
            place = position + match.start(), position + end
            yield _Token(number, *place, match[0], label, kind, bool(option or key or names))
        if re.search(r"[A-Za-z]", line) and not _PATTERNS["number"].search(_SHARE.sub("", line)):
            sentence = line.rstrip().endswith((":", ".")) or line.lstrip(" |>")[:1].isdigit()
            if columns[1] and columns != before_it and not sentence:
                heads[columns] = _cells(line, separator)
            above = above if sentence else [line, *above[:1]]
        before_it = columns
        position += len(line) + 1


def _numbers(line: str) -> list[re.Match[str]]:
    """Find the numbers of a line in their order, also those that are written as one word."""
    found = {one.start(): one for one in _PATTERNS["number"].finditer(line)}
    for word in _PATTERNS["joined"].finditer(line):
        found |= {one.start(): one for one in _PART.finditer(line, *word.span(word.lastindex or 0))}
    return [found[start] for start in sorted(found)]


def _cells(line: str, separator: str) -> list[str]:
    return [cell.strip(" #\"'*") for cell in line.split(separator)]


def _words(before: str, after: str) -> str:
    """The words in front of a number or, where there are none of its own, behind it."""
    if key := _NAMED.search(before):
        return key[1]
    front = " ".join(_APART.split(before)[-1].split())
    back = " ".join(re.split(r"[|,;\]]|(?<!\(s)\)|\d", after)[0].split())
    own = front.rpartition(": ")[2].strip(" :=/~*±([->")
    behind = front.endswith(("(", "/", "±", "[")) or len(front.strip(" :=*~#>")) < len("ms")
    label = (back or front) if behind else own or front
    label = label.strip(" :=/~*±([->'\"").lstrip("]) ")
    label = label or " ".join(re.findall(r"[^\W\d][\w-]*", before)[-3:])
    if re.search(r"[][()]", _BRACKETS.sub("", label)):
        label = " ".join(re.sub(r"[][()]", " ", label).split())
    return label if len(label) <= _MOST_LABEL else label[-_MOST_LABEL:].partition(" ")[2]


def _above(heads: Sequence[str], row: str, place: tuple[int, int]) -> str:
    """The name over a place of a row of numbers: of as many columns, else of what is above it."""
    words = row.split()
    share = sum(word[:1].isdigit() for word in words) / max(len(words), 1)
    if re.search("[:=]", row) or share < (1 / 3 if row.startswith("[") else 1 / 2):
        return ""
    for head in heads:
        line = head.replace("#", " ")
        for names in (re.split(r"\s{2,}|\t", line.strip()), line.split()):
            if len(names) == len(words):
                return names[len(row[: place[0]].split())]
    above = list(re.finditer(r"\S+", heads[0].expandtabs()))
    start, end = (len(row[:one].expandtabs()) for one in place)
    over = [one[0] for one in above if one.start() < end and start < one.end()]
    return (
        " ".join(re.findall(r"[^][:]+", over[0])) if over and len(above) > len(words) // 3 else ""
    )


def _near(used: Iterable[int], lines: Sequence[str]) -> set[int]:
    """The lines of results (from 1), those between, and on both sides the rest of the program's."""
    found = set(used)
    for line, after in pairwise(sorted(found)):
        found |= set(range(line, after)) if after - line <= _GAP else set()
    marks = {_mark(lines[line - 1]) for line in found}
    for line in sorted(found):
        for step, margin in ((-1, _BEFORE), (1, _AFTER)):
            place, strange, joined = line + step, 0, True
            while 0 < place <= len(lines) and place not in found and strange < _STRANGE:
                text, far = lines[place - 1], abs(place - line)
                joined = joined and bool(text.strip())
                if joined and far <= margin:
                    marks.add(_mark(text))
                if (joined and far <= margin) or _goes_on(text, far):
                    found.add(place)
                else:
                    strange += _mark(text) not in marks - {""}
                place += step
    return found | {line for line, text in enumerate(lines, 1) if _mark(text) in marks - {""}}


def _goes_on(text: str, far: int) -> bool:
    kinds = ("always", "goes_on") if far <= _FAR else ("always",)
    return any(_PATTERNS[kind].fullmatch(text) for kind in kinds)


def _mark(line: str) -> str:
    return found[1] if (found := _PATTERNS["mark"].match(line)) else ""


def by_label(left_out: Iterable[tuple[int, str, str]], *, each: bool = False) -> list[str]:
    """Each label with its first line, 'line 9: Requests (5 and 2 more)'; or each of its lines."""
    labels = grouped(((label, each and line), (line, number)) for line, label, number in left_out)
    return [
        f"line {alike[0][0]}: {label} ("
        + (", ".join(number for _, number in alike) if each else alike[0][1])
        + (f" and {len(alike) - 1} more)" if len(alike) > 1 and not each else ")")
        for (label, _), alike in labels.items()
    ]
