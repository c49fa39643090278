"""Numbers of an output that its reader used: those that change the answer when they change.

One rule for all tools, whose readers know nothing of it. What no answer depends on, in the lines
that hold a result and right around them, is left out, and an import names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nixwulf.core.query import grouped
from nixwulf.outputs import ParseError

# No part of a word, an address, a version, a date or a path; a unit may follow.
_NUMBER = re.compile(
    r"(?<![\w./@#+-])(?<![^\"]:)(?<!\d,)\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
    r"(?=(?:[kKMGT]?(?:iB|B|b|s|m|u|n|us|ms|ns|%)?(?:/\w+)?)(?![\w:/@]|[.,]\d|-[A-Za-z\d]))"
)
_KEY = re.compile(r'"([\w. -]{1,60})"\s*:\s*[\[{\s]*(?:[^"{}:]*)$')
# A label with a number, a heading between such, or a line that is indented below a result.
_GOES_ON = re.compile(
    r"\s*[^\W\d][^:=|\n]{0,60}[:=] *(?:[\d.,]+ ?[%\w/]{0,12})?\s*|\W*[^\W\d][^\d\n]*"
    r"|[ \t]+[^\W\d][^\n]{0,40}(?::|=)[ \t]*[^\n]*|[ \t]+\|.*|\[[A-Za-z ]{1,24}\][^\n]{0,24}:.*"
)
_LONG_LINE = 600
_MOST_TEXT = 60_000
_READ = 2_000_000  # characters that are read again at most
_GAP = 24
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
    near = _near({one.line for alike in used for one in alike}, cut.split("\n"))
    left = [one for alike in kinds if alike not in used for one in alike if one.line in near]
    named = [
        (one.line, one.label, _part(read, cut, one, whole) if explain else "") for one, *_ in used
    ]
    rest = tuple((one.line, one.label, one.text) for one in left)
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
        text = text[: token.start] + _other(token.text) + text[token.end :]
    try:
        return read(text)
    except ParseError:
        return None


def _other(number: str) -> str:
    """Change the first digit, so that no rounding hides it."""
    at = next((index for index, char in enumerate(number) if char in "123456789"), 0)
    return f"{number[:at]}{int(number[at]) % 9 + 1}{number[at + 1 :]}"


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
        shape = "" if len(line) > _LONG_LINE else _NUMBER.sub("#", line)
        shape = re.sub(r"\d+", "0", " ".join(shape.split()))
        for index, match in enumerate(_NUMBER.finditer(line)):
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
            if columns[1] and not _NUMBER.search(line):
                heads[columns] = [cell.strip(" #\"'*") for cell in line.split(separator)]
        position += len(line) + 1


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
    """The lines of results, those between them, one on each side, and more labels that go on.

    used: the numbers of lines, from 1 on.
    """
    found: set[int] = set()
    before = 0
    for line in sorted(used):
        begin = before if before and line - before <= _GAP else line - 1
        found |= set(range(max(1, begin), min(len(lines), line + 1) + 1))
        before = line
    for number, text in enumerate(lines, 1):
        if number - 1 in found and _GOES_ON.fullmatch(text):
            found.add(number)
    return found


def by_label(left_out: Iterable[tuple[int, str, str]]) -> list[str]:
    """Each label once, with the first line that has it: 'line 9: Peak requests (5 and 2 more)'."""
    labels = grouped((label, (line, number)) for line, label, number in left_out)
    return [
        f"line {alike[0][0]}: {label} ({alike[0][1]}"
        + (f" and {len(alike) - 1} more)" if len(alike) > 1 else ")")
        for label, alike in labels.items()
    ]
