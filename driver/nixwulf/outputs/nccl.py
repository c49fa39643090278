"""nccl-tests and rccl-tests: a row for each size, out of place and in place; a summary of them."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import Metric
from nixwulf.outputs import ANY, Found, ParseError, Tool, ToolFailed, as_printed, exactly

_AVERAGE = re.compile(r"^\s*# Avg bus bandwidth\s*:\s*(?P<value>\d+(?:\.\d+)?)")
_OUT_OF_BOUNDS = re.compile(r"^\s*# Out of bounds values\s*:\s*(?P<count>\d+)\s+(?P<verdict>\w+)")
_TABLES = read_toml(DATA / "nccl_tests.toml")
_COLUMNS: Sequence[str] = _TABLES["columns"]
_METRICS: Mapping[str, tuple[str, str, int]] = _TABLES["metrics"]
_USUAL: Mapping[str, Sequence[str]] = _TABLES["usual"]
_SUMMARY = ["collective", "mode"]
_STARTING = re.compile(
    r"^[ \t]*# Collective test (?:starting|concluded): (\w+?)(?:_perf)?$|\b(\w+)_perf +-",
    re.MULTILINE,
)
_RANK = re.compile(r"^[ \t]*#\s+Rank\s+(\d+) .*?\bon\s+(\S+) device", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*# ([nr]ccl-tests) version (\d[\w.]*)", re.MULTILINE)
_WARM_UP = re.compile(r"warmup iters: (\d{1,9})")
_PLACEMENTS = ("out-of-place", "in-place")
_BITS = 8
_DIGITS = 6
_ROUNDED = 0.005  # rows have two decimals
_UNCHECKED = "nccl-tests did not check its values (N/A)."
_PAIR = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
# Not NCCL's own warnings: RCCL has some at every start, and goes on.
_ERROR = re.compile(r"Test (?:(?:NCCL|CUDA|HIP) )?failure")
# How a row begins; where NCCL logs to the same stdout, the rest of the row can come lines later.
_BEGINNING = re.compile(r"^ *\d+ +\d+ +[a-z]\w* +\w+ +-?\d")


@dataclass(frozen=True)
class NcclRow:
    """A size in bytes; by placement time (us), algbw and busbw (GB/s), as far as it has them.

    unusual: another type, redop or root than the program has without options.
    """

    bytes: int
    placed: Mapping[str, Mapping[str, float]]
    unusual: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NcclTable:
    """All rows, how many the tool left unchecked, and its mean of the bus bandwidth; None: cut."""

    rows: tuple[NcclRow, ...]
    average_gbs: float | None
    unchecked: int = 0


def parse(text: str, *, checked: bool = True) -> NcclTable:
    """The table of a test that ended well.

    checked: whether values that were not checked (N/A) are refused, and a table without its end.

    Raises ParseError for an error of the test, a result that is wrong, and a row that is not whole.
    """
    rows, unchecked, average = [], 0, None
    names: Sequence[str] = _COLUMNS
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        words = line.split()
        names = _names(line) or names
        if (
            len(words) == len(names)
            and dict(zip(names, words, strict=True)).get("size", words[0]).isdecimal()
        ):
            rows.append(_row(names, words, number))
            unchecked += "N/A" in words
        elif match := _AVERAGE.match(line):
            average = float(match["value"])
        elif checked or number < len(lines):
            _require_no_problem(line, len(names), number)
    if not rows:
        raise ParseError(
            f"nccl-tests printed no size by line {len(lines)}, expected {len(names)} columns."
        )
    if checked and unchecked:
        raise ParseError(f"nccl-tests has N/A wrong values in {unchecked} rows, expected 0.")
    if checked and average is None:
        raise ParseError("nccl-tests printed no '# Avg bus bandwidth' after its last size.")
    if average == 0:
        raise ToolFailed(
            "nccl-tests moved nothing between ranks (bus bandwidth 0): each rank ran alone, so it "
            "was built without MPI."
        )
    return NcclTable(tuple(rows), average, unchecked)


def _names(line: str) -> list[str]:
    """The columns of a head; '# wrong' and '#wrong', and in tables before 2.11 'error', are one."""
    if "size" not in line or not set(_METRICS) & set(line.split()):
        return []
    return re.sub(r"(?<=\w) +# wrong|(?<=\w) +error\b", " #wrong", line).lstrip("# ").split()


def _require_no_problem(line: str, columns: int, number: int) -> None:
    """Raise ParseError for a line that reports a failure, and for one with a part of a row."""
    if (bounds := _OUT_OF_BOUNDS.match(line)) and bounds["verdict"] != "OK":
        raise ToolFailed(
            f"nccl-tests found {bounds['count']} values out of bounds in line {number}."
        )
    if begun := _BEGINNING.match(line):
        raise ParseError(
            f"nccl-tests has no whole row of {begun[0].split()[0]} bytes in line {number}: "
            f"expected {columns} columns; NCCL_DEBUG_FILE keeps NCCL's log out of the table."
        )
    if _ERROR.search(line):
        raise ToolFailed(f"nccl-tests failed in line {number}: {line.strip()[:200]}.")


def failure(text: str) -> str | None:
    """The first line in which the test itself reports that it failed, with the reason."""
    return next((line.strip() for line in text.splitlines() if _ERROR.search(line)), None)


def read(text: str) -> list[Found]:
    """One case of the machines, of a table or of a summary."""
    if any(_is_summary(line) for line in text.splitlines()):
        return [Found("collectives", _of_summary(text), machines=True)]
    table = parse(text, checked=False)
    end = text.rstrip().splitlines()[-1]
    if _is_cut(table, end):
        table = replace(table, average_gbs=None)
    cut = table.average_gbs is None
    lost = "" if end.split()[0] == str(table.rows[-1].bytes) else ": left out"
    collective = _STARTING.search(text)
    ranks = set(_RANK.findall(text))
    hosts = len({host for _, host in ranks})
    version = _VERSION.search(text)
    warm_up = _WARM_UP.search(text)
    state = ("warm" if int(warm_up[1]) else "cold") if warm_up else None
    # NCCL's own words, where they are of one only.
    ways = {how for mark, how in (("NET/IB", "rdma"), ("NET/Socket", "tcp")) if mark in text}
    # The end of an output alone does not show what it measured.
    called = next(filter(None, collective.groups())) if collective else "collective"
    found = metrics([table], called, state)
    return [
        Found(
            "collectives",
            as_printed(found),
            machines=True,
            nodes=exactly(hosts, f"ranks on {hosts} hosts") if hosts else ANY,
            parameters={"ranks": len(ranks)} if ranks else {},
            note=" ".join(version.groups()) if version else "",
            transport=ways.pop() if len(ways) == 1 and hosts != 1 else None,
            warnings=(
                *([_UNCHECKED] if table.unchecked else ()),
                *([f"The table is cut off at its end, {end.strip()!r}{lost}."] if cut else ()),
            ),
        )
    ]


def _is_cut(table: NcclTable, end: str) -> bool:
    """Tell whether the average ends the text with fewer digits than %g has, and is no row."""
    match = _AVERAGE.fullmatch(end.rstrip())
    rates = [one["busbw"] for row in table.rows for one in row.placed.values() if "busbw" in one]
    digits = len(match["value"].replace(".", "").lstrip("0")) if match else _DIGITS
    if not match or not rates or digits >= _DIGITS:
        return False
    off = abs(float(match["value"]) - statistics.fmean(rates))
    return off > (_ROUNDED if digits >= _DIGITS - 2 else 0)


def metrics(tables: Sequence[NcclTable], collective: str, state: str | None) -> list[Metric]:
    """Time and both bandwidths by size and placement, and the tools' own mean of the bus's.

    tables: at least one, all of the same sizes; each is a sample. collective: as the program is
    called: all_reduce, alltoall. state: warm, cold, or None where it is not known.
    """
    name = _name(collective)
    found = []
    for rows in zip(*(table.rows for table in tables), strict=True):
        for placement in _PLACEMENTS:
            conditions = {"bytes": rows[0].bytes, "placement": placement, **rows[0].unusual}
            for column in rows[0].placed.get(placement, ()):
                what, unit, times = _METRICS[column]
                samples = tuple(row.placed[placement][column] * times for row in rows)
                found.append(Metric(f"{name}_{what}", unit, samples, state, conditions))
    averages = tuple(one.average_gbs * _BITS for one in tables if one.average_gbs is not None)
    whole = [Metric(f"{name}_average_bandwidth", "Gbit/s", averages, state)] if averages else []
    return [*found, *whole]


def _name(collective: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", collective.lower()).strip("_")
    return str(_TABLES["names"].get(name, name)) or "collective"


def _is_summary(line: str) -> bool:
    return line.split()[:2] == _SUMMARY


def _of_summary(text: str) -> list[Metric]:
    """The lines of the summary that https://github.com/hellas-ai/thunderbolt-ibverbs publishes."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0] == "#" or _is_summary(line):
            continue
        pairs = [_PAIR.fullmatch(word) for word in words[2:]]
        if len(words) < 3 or not all(pairs):  # noqa: PLR2004 - collective, mode, one repetition
            raise ParseError(
                f"rccl's summary has {line[:80]!r} in line {number}, expected a collective, a mode "
                "and pairs of microseconds."
            )
        for group, placement in enumerate(_PLACEMENTS, 1):
            times = tuple(float(pair[group]) for pair in pairs if pair)
            conditions = {"mode": words[1], "placement": placement}
            found.append(Metric(f"{_name(words[0])}_time", "us", times, conditions=conditions))
    if not found:
        raise ParseError("rccl's summary has no line below its head in line 1.")
    return found


def recognises(text: str) -> bool:
    """The head of a table or of a summary, or the line that ends a table."""
    begins = ("# nccl-tests", "# rccl-tests", "# Collective test starting")
    return any(
        _AVERAGE.match(line)
        or _is_summary(line)
        or "busbw" in _names(line)
        or line.lstrip().startswith(begins)
        for line in text.splitlines()
    )


TOOL = Tool("nccl-tests", recognises, read, failed=Found("collectives", (), machines=True))


def _row(names: Sequence[str], words: Sequence[str], number: int) -> NcclRow:
    """Read a row; of a name that is there twice, the first is out of place."""
    size = words[names.index("size")] if "size" in names else ""
    placed: dict[str, dict[str, float]] = {}
    seen: Counter[str] = Counter()
    for name, word in zip(names, words, strict=True):
        seen[name] += 1
        if name == "#wrong" and word not in ("0", "0e+00", "N/A"):
            raise ToolFailed(
                f"nccl-tests has {word} wrong values of {size} bytes in line {number}, expected 0."
            )
        if name in _METRICS and seen[name] <= len(_PLACEMENTS):
            try:
                value = float(word)
            except ValueError:
                raise ParseError(f"nccl-tests has a word for a number in line {number}.") from None
            if not 0 <= value < math.inf:
                raise ParseError(f"nccl-tests has a time or rate in line {number} that is none.")
            placed.setdefault(_PLACEMENTS[seen[name] - 1], {})[name] = value
    if not size.isdecimal():
        raise ParseError(f"nccl-tests has no size in line {number}, expected bytes.")
    named = dict(zip(names, words, strict=True))
    unusual = {key: named[key] for key in _USUAL.keys() & named if named[key] not in _USUAL[key]}
    return NcclRow(int(size), placed, dict(sorted(unusual.items())))
