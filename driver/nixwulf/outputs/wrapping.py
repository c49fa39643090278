"""What stands around and inside an output where people post it; lines keep their numbers.

Quotes, fences, HTML, chat lines, colours, mpirun's prefixes, and numbers of other locales.
"""

from __future__ import annotations

import codecs
import csv
import html
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

from nixwulf.core.files import DATA, read_toml

_OF_HTML = re.compile(r"<(?:pre|code|td|th|tr|br|p|div|span|table)\b[^>\n]{0,400}>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b(?:(?!</?tr\b).)*+</tr>", re.IGNORECASE | re.DOTALL)
_CELL = re.compile(r"<t[dh]\b[^>]{0,400}>", re.IGNORECASE)
_BREAK = re.compile(
    r"<br ?/?>(?!\n)|(?<!\n)</?(?:p|div|pre|tr|table)\b[^>\n]{0,400}>(?!\n)", re.IGNORECASE
)
_TAG = re.compile(r"</?[a-z][a-z0-9]{0,15}\b(?: [^<>\n]{0,400})?/?>", re.IGNORECASE)
# Separators of thousands in Swiss and French. A plain blank may also stand between two numbers: it
# is one only inside a number that stands alone, in a text where such a number has decimals.
_BLANKS_APART = re.compile(
    r"(?<=[:=|(±])([ \t]{0,60}\d{1,3})((?: \d{3}){1,4}(?:[.,]\d{1,9})?)"
    r"(?= {0,60}(?:$|[|)±%]| [a-zA-Zµ]))",
    re.MULTILINE,
)
_WITH_DECIMALS = re.compile(r"\d \d{3}[.,]\d")
_LAST = re.compile(r"\d[\d.]*\Z")
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
_NUMBERS = re.compile(r"(?<![\w.])\d+(?:\.(\d+))?(?!\w)")
# Numbers that stand alone, so that no address, version, list or row of CSV is one.
_ALONE = r"(?<![^\s|(\[=~±•·]){}(?=[\s|)\]%±]|$|[a-zA-Z]{{1,4}}(?:/[a-z]{{1,5}})?(?![\w.]))"
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
def _steps(path: Path) -> Any:
    return read_toml(path)["steps"]


def rewritten(text: str, path: Path) -> str:
    """A text after the steps of a file of data: what stands for lines is there for each of them."""
    for one in _steps(path):
        if any(mark in text for mark in one["marks"]):
            new = partial(_each_line, one.get("instead", ""))
            text = re.sub(one["pattern"], new, text, flags=re.MULTILINE)
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
    text = rewritten(text, DATA / "blanks.toml")
    if _WITH_DECIMALS.search(text):
        text = _BLANKS_APART.sub(lambda one: one[1] + one[2].replace(" ", ""), text)
    if "<" in text and _OF_HTML.search(text):
        text = _ROW.sub(lambda row: " ".join(_CELL.sub(" | ", row[0]).split()), text)
        text = html.unescape(_TAG.sub("", _BREAK.sub("\n", text)))
    text = rewritten(text, DATA / "wrapping.toml")
    if saved := _SAVED.search(text):
        text = text[: saved.start()] + _piped(text[saved.start() :], saved[1])
    return _pointed(text) if _COMMA.search(text) else text


def _piped(text: str, apart: str) -> str:
    """A text whose lines with as many cells as its first are rows of a table with pipes."""
    lines = text.split("\n")
    try:
        rows = [next(csv.reader([line], delimiter=apart), []) for line in lines]
    except csv.Error:
        return text
    pairs = zip(lines, rows, strict=True)
    return "\n".join(
        f"| {' | '.join(row)} |" if len(row) == len(rows[0]) else line for line, row in pairs
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
    body = text.rstrip()
    if cut := _cut_number(body, whole=body != text):
        line = body.count("\n") + 1
        sentences.append(f"line {line} ends in {cut}, which is cut off: left out.")
        text = body.removesuffix(cut)
    return text, sentences


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
