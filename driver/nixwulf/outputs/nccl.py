"""nccl-tests and rccl-tests: a row for each size, out of place and in place; a summary of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nixwulf.outputs import ParseError

_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*(?P<value>\d+(?:\.\d+)?)")
_OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(?P<count>\d+)\s+(?P<verdict>\w+)")
# size, count, type, redop, root, then time, algbw, busbw and #wrong twice.
_COLUMNS = 13
_SUMMARY = ["collective", "mode"]
_PAIR = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
# Not NCCL's own warnings: RCCL has some at every start, and goes on.
_ERROR = re.compile(r"Test (?:(?:NCCL|CUDA|HIP) )?failure")
# How a row begins; where NCCL logs to the same stdout, the rest of the row can come lines later.
_BEGINNING = re.compile(r"^ *\d+ +\d+ +[a-z]\w* +\w+ +-?\d")


@dataclass(frozen=True)
class NcclRow:
    """A size in bytes: microseconds and GB/s of the bus, out of place and in place."""

    bytes: int
    out_of_place_us: float
    out_of_place_gbs: float
    in_place_us: float
    in_place_gbs: float


@dataclass(frozen=True)
class NcclTable:
    """All rows; average_gbs is the tool's own mean of the bus bandwidth."""

    rows: tuple[NcclRow, ...]
    average_gbs: float


@dataclass(frozen=True)
class Times:
    """A line of a summary: microseconds of each repetition, out of place and in place."""

    collective: str
    mode: str
    repetitions: tuple[tuple[float, float], ...]


def parse(text: str) -> NcclTable:
    """The table of a test that ended well.

    Raises ParseError for an error of the test, a result that is wrong or was not checked (N/A), a
    row that is not whole, and a table without its end.
    """
    rows: list[NcclRow] = []
    average: float | None = None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if match := _AVERAGE.match(line):
            average = float(match["value"])
        elif (bounds := _OUT_OF_BOUNDS.match(line)) and bounds["verdict"] != "OK":
            raise ParseError(
                f"nccl-tests found {bounds['count']} values out of bounds in line {number}."
            )
        elif len(words) == _COLUMNS and words[0].isdecimal() and words[1].isdecimal():
            rows.append(_row(words, number))
        elif _BEGINNING.match(line):
            raise ParseError(
                f"nccl-tests has no whole row of {words[0]} bytes in line {number}: expected "
                f"{_COLUMNS} columns; NCCL_DEBUG_FILE keeps NCCL's log out of the table."
            )
        elif _ERROR.search(line):
            raise ParseError(f"nccl-tests failed in line {number}: {line.strip()[:200]}.")
    if not rows:
        raise ParseError(
            f"nccl-tests printed no size by line {len(text.splitlines())}, expected {_COLUMNS} "
            "columns."
        )
    if average is None:
        raise ParseError("nccl-tests printed no '# Avg bus bandwidth' after its last size.")
    if average == 0:
        raise ParseError(
            "nccl-tests moved nothing between ranks (bus bandwidth 0): each rank ran alone, so it "
            "was built without MPI."
        )
    return NcclTable(tuple(rows), average)


def failure(text: str) -> str | None:
    """The first line by which the test itself says that it failed, which has the reason."""
    return next((line.strip() for line in text.splitlines() if _ERROR.search(line)), None)


def parse_summary(text: str) -> list[Times]:
    """The lines of the summary that https://github.com/hellas-ai/thunderbolt-ibverbs publishes."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[:2] == _SUMMARY:
            continue
        pairs = [_PAIR.fullmatch(word) for word in words[2:]]
        if len(words) < 3 or not all(pairs):  # noqa: PLR2004 - collective, mode, one repetition
            raise ParseError(
                f"rccl's summary has {line[:80]!r} in line {number}, expected a collective, a mode "
                "and pairs of microseconds."
            )
        times = tuple((float(pair[1]), float(pair[2])) for pair in pairs if pair)
        found.append(Times(words[0], words[1], times))
    if not found:
        raise ParseError("rccl's summary has no line below its head in line 1.")
    return found


def recognises(text: str) -> bool:
    """The head of a table or of a summary, or the line that ends a table."""
    return any(
        _AVERAGE.match(line) or line.split()[:2] == _SUMMARY or line.startswith("# nccl-tests")
        for line in text.splitlines()
    )


def _row(words: Sequence[str], number: int) -> NcclRow:
    for wrong in (words[8], words[12]):
        if wrong != "0":
            raise ParseError(
                f"nccl-tests has {wrong} wrong values of {words[0]} bytes in line {number}, "
                "expected 0."
            )
    try:
        times = [float(words[place]) for place in (5, 7, 9, 11)]
    except ValueError:
        raise ParseError(f"nccl-tests has a word for a number in line {number}.") from None
    if not all(0 <= time < math.inf for time in times):
        raise ParseError(f"nccl-tests has a time or rate in line {number} that is none.")
    return NcclRow(int(words[0]), *times)
