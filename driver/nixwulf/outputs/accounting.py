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
_KEY = re.compile(r'"([\w. -]{1,60})"\s*:\s*[\[{\s]*(?:[^"{}:]*)$')
_PART = re.compile(r"\d+(?:\.\d+)?")
_LONG_LINE = 600
_MOST_TEXT = 60_000
_READ = 2_000_000  # characters that are read again at most
_GAP = 48
_BEFORE, _AFTER = 3, 6  # lines around a result that may be of any form
_STRANGE = 3  # lines of others between those of a program
_FAR = 40
_MOST_LABEL = 40


@dataclass(frozen=True)
class _Token:
    """A number: line from 1 on, where it is in the text, its label, and what is alike."""

    line: int
    start: int
    end: int
    text: str
    label: str
    kind: Hashable


@dataclass(frozen=True)
class Account:
    """Numbers of a text: line, label, and a text.

    used: of what the answer has, that text is the part that the number gives, or empty; left_out:
    of the rest, in the lines of results, the number. whole: whether all could be looked at.
    """

    used: tuple[tuple[int, str, str], ...]
    left_out: tuple[tuple[int, str, str], ...]
    whole: bool = True


def account(read: Callable[[str], dict[str, str]], text: str, *, explain: bool = False) -> Account:
    """Account for the numbers of a text after a reader.

    read: of a text its answer, in parts by what they are called; raises ParseError. explain:
    whether to find out which part each number gave.
    """
    cut = text if len(text) <= _MOST_TEXT else text[: text.rfind("\n", 0, _MOST_TEXT) + 1]
    try:
        whole = read(cut)
    except ParseError:
        return Account((), (), whole=False)
    budget = _READ // max(len(cut), 1) // (1 if cut is text else 3)
    kinds = _kinds(list(_tokens(cut)), budget)
    ends = [token for alike in kinds for token in (*alike[:1], *alike[1:][-1:])]
    unused, reads = _unused(lambda some: _answer(read, cut, some) == whole, ends, budget)
    idle = {token.start for token in unused}
    used = [alike for alike in kinds if not {alike[0].start, alike[-1].start} <= idle]
    lines = {one.line for alike in used for one in alike}
    beside = (one.start() for kind in KINDS for one in kind.pattern.finditer(cut))
    if not used:  # a run that failed, whose reason has no number
        lines = {one.line for one in unused}
    near = _near(lines | {cut.count("\n", 0, start) + 1 for start in beside}, cut.split("\n"))
    said = {(one.label, one.text) for alike in used for one in alike}
    unknown = (one for alike in kinds if alike not in used for one in alike)
    left = [one for one in unknown if one.line in near and (one.label, one.text) not in said]
    left.sort(key=lambda one: one.line not in lines)
    named = [
        (one.line, one.label, _part(read, cut, one, whole) if explain else "") for one, *_ in used
    ]
    rest = tuple((one.line, one.label, one.text) for one in left)
    hosts = (
        (cut.count("\n", 0, one.start()) + 1, one) for one in _PATTERNS["address"].finditer(cut)
    )
    rest += tuple((line, one[1], "an address") for line, one in hosts if line in near)
    return Account(tuple(named), rest, whole=cut is text and reads < budget)


def _kinds(tokens: Sequence[_Token], budget: int) -> list[list[_Token]]:
    """Group tokens of one kind or, where each can be looked at, each alone."""
    each = 2 * len(tokens) < budget
    kinds = grouped((token.start if each else token.kind, token) for token in tokens)
    return list(kinds.values())


def _answer(
    read: Callable[[str], dict[str, str]], text: str, changed: Iterable[_Token]
) -> dict[str, str] | None:
    """The answer to a text with other numbers; None where it is refused."""
    for token in sorted(changed, key=lambda one: -one.start):
        text = text[: token.start] + _other(token.text, token.start) + text[token.end :]
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
    """The parts of an answer that a number gives."""
    other = _answer(read, text, [token])
    if other is None:
        return "a check"
    parts = [*dict.fromkeys(name.strip() for name in whole if other.get(name) != whole[name])]
    return ", ".join(parts[:3]) + (", ..." if len(parts) > 3 else "") or "a condition"  # noqa: PLR2004


def _tokens(text: str) -> Iterator[_Token]:
    """Numbers alike have the same words around them, or the same key, or the same column."""
    position, heads, above = 0, dict[tuple[str, int], list[str]](), ""
    for number, line in enumerate(text.split("\n"), 1):
        separator = next((one for one in "|," if line.count(one) > 1), " ")
        columns = separator, line.count(separator) * (separator != " ")
        names = heads.get(columns, [])
        shape = "" if len(line) > _LONG_LINE else _PATTERNS["number"].sub("#", line)
        shape = re.sub(r"\d+", "0", " ".join(shape.split()))
        for index, match in enumerate(_numbers(line)):
            before = line[: match.start()]
            key, column = _KEY.search(before[-_LONG_LINE:]), before.count(separator)
            label = key[1] if key else names[column] if column < len(names) else ""
            label = label or _words(before, line[match.end() :]) or _above(above, line, before)
            indent = len(line) - len(line.lstrip())
            kind = (label, indent) if key or names else (shape, index)
            start = position + match.start()
            yield _Token(number, start, start + len(match[0]), match[0], label, kind)
        if re.search(r"[A-Za-z]", line):
            above = line
            if columns[1] and not _PATTERNS["number"].search(line):
                heads[columns] = [cell.strip(" #\"'*") for cell in line.split(separator)]
        position += len(line) + 1


def _numbers(line: str) -> list[re.Match[str]]:
    """Find the numbers of a line in their order, also those that are written as one word."""
    found = {one.start(): one for one in _PATTERNS["number"].finditer(line)}
    for word in _PATTERNS["joined"].finditer(line):
        found |= {one.start(): one for one in _PART.finditer(line, *word.span())}
    return [found[start] for start in sorted(found)]


def _words(before: str, after: str) -> str:
    """The words in front of a number or, where there are none of its own, behind it."""
    front = " ".join(re.split(r"(?<!\w)\d[\d.,]*|[|,;=]+ *(?=\S)", before)[-1].split())
    back = " ".join(re.split(r"[|,;)\]]|\d", after)[0].split())
    behind = front.endswith(("(", "/", "±", "[")) or len(front.strip(":= ")) < len("ms")
    label = (back or front) if behind else front.rpartition(": ")[2] or front
    label = label.strip(" :=/~*±([->") or " ".join(re.findall(r"[^\W\d][\w-]*", before + after))
    return label[-_MOST_LABEL:]


def _above(head: str, row: str, before: str) -> str:
    """The name over a place of a row whose columns blanks divide: some names have blanks."""
    names, place = re.split(r"\s{2,}|\t", head.strip()), len(before.split())
    names = names if len(names) == len(row.split()) else head.split()
    return names[place] if place < len(names) else f"column {place + 1}"


def _near(used: Iterable[int], lines: Sequence[str]) -> set[int]:
    """The lines of results, those between them, and on both sides the rest of the program's.

    used: the numbers of lines, from 1 on.
    """
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
    """Each label once, with the first line that has it: 'line 9: Peak requests (5 and 2 more)'.

    each: each line, with all its numbers.
    """
    labels = grouped(((label, each and line), (line, number)) for line, label, number in left_out)
    return [
        f"line {alike[0][0]}: {label} ("
        + (", ".join(number for _, number in alike) if each else alike[0][1])
        + (f" and {len(alike) - 1} more)" if len(alike) > 1 and not each else ")")
        for (label, _), alike in labels.items()
    ]
