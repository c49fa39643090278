"""Results in the forms in which others post theirs: llama-benchy's table and Spark Arena's CSV.

Only runs that ended ok are in them, and a cell of which a record has no number stays empty. Rows of
`llama-benchy` have what it printed. Of `serve`, with one request at a time, decode and the time to
the first token mean the same, and of `llama-bench` both speeds: these get tables of their own.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nixwulf.core.errors import InputError
from nixwulf.core.query import grouped
from nixwulf.core.text import case_name, clean, link_name
from nixwulf.outputs.llama_benchy import COLUMNS, column
from nixwulf.results.identity import canonical, case_id, one_name, record_setting
from nixwulf.results.record import Record, RecordedMetric

_TOOL = "llama-benchy"
# By benchmark, which of its metrics mean what a column of llama-benchy does.
_SHARED = {"serve": {"decode", "ttft"}, "llama-bench": {"prompt", "decode"}}
_WORK = ("depth", "n_prompt", "n_gen", "concurrency")
_OF_ALL = {"t/s (total)": "t/s (req)", "peak t/s (req)": "peak t/s"}
_NOT_OF_ONE = ("t/s (req)", "peak t/s (req)")
# llama-benchy's CSV, which is the benchmark.csv of a submission to Spark Arena
# (https://github.com/spark-arena/sparkrun/blob/0041b8f/src/sparkrun/benchmarking/llama_benchy.py).
_CSV = ("t_s", "t_s_req", "peak_ts", "peak_ts_req", "ttfr", "est_ppt", "e2e_ttft")


class _Test(NamedTuple):
    """A row, as rows are ordered: whether it loads the depth, whether it is of answers, sizes.

    What an answer follows is a size of it too, though its name does not have it.
    """

    depth: int
    inference: bool
    generation: bool
    n_prompt: int
    n_gen: int
    concurrency: int
    others: str

    def name(self, *, several: bool) -> str:
        """The name as llama-benchy writes it: 'pp512 @ d4096 (c2)'."""
        kind, tokens = ("tg", self.n_gen) if self.generation else ("pp", self.n_prompt)
        name = f"{kind}{tokens}" if self.inference else f"ctx_{kind}"
        depth = f" @ d{self.depth}" if self.depth else ""
        return f"{name}{depth} (c{self.concurrency})" if several else f"{name}{depth}"


Numbers = tuple[float, float | None]
"""A mean and its standard deviation; None: it is not known."""


@dataclass(frozen=True)
class Posted:
    """The tests of one configuration: its name, the model's, and of each test its columns."""

    benchmark: str
    name: str
    model: str
    tests: Mapping[_Test, Mapping[str, Numbers]]
    version: str

    @property
    def several(self) -> bool:
        """Tell whether some have several requests at once."""
        return any(test.concurrency > 1 for test in self.tests)


def posted(records: Iterable[Record]) -> list[Posted]:
    """The configurations in which llama-benchy's tests were measured, as records have them."""
    groups = grouped(
        (canonical(_configuration(record)), record)
        for record in records
        if record["outcome"] == "ok" and record["case"]["benchmark"] in {_TOOL, *_SHARED}
    )
    found = [_posted(group, _varying(group, groups.values())) for group in groups.values()]
    return sorted((one for one in found if one.tests), key=lambda one: (one.benchmark, one.name))


def to_table(records: Iterable[Record], source: str) -> str:
    """Write llama-benchy's Markdown, a table a configuration; raises InputError for no test."""
    return "".join(f"{line}\n" for one in _some(posted(records), source) for line in _lines(one))


def to_csv(records: Iterable[Record], source: str) -> str:
    """The benchmark.csv of a submission to Spark Arena: llama-benchy's CSV of records of a source.

    Raises InputError: they have no run of llama-benchy, or several configurations.
    """
    found = [one for one in posted(records) if one.benchmark == _TOOL]
    one, *others = _some(found, source)
    if others:
        names = "; ".join(each.name for each in (one, *others))
        raise InputError(
            f"{source!r} has {len(found)} configurations ({names}), and a submission to Spark "
            "Arena is of one; give each a run folder of its own with 'nixwulf bench --out'."
        )
    heads = [f"{name}_{part}" for name in _CSV for part in ("mean", "std")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "test_name", *heads])
    for test, columns in sorted(one.tests.items()):
        cells = [columns.get(name, ("", None)) for name in COLUMNS]
        numbers = ["" if part is None else part for cell in cells for part in cell]
        writer.writerow([one.model, test.name(several=one.several), *numbers])
    return text.getvalue()


def _some(found: list[Posted], source: str) -> list[Posted]:
    if not found:
        raise InputError(
            f"{source!r} has no run of {_TOOL} that ended ok; 'nixwulf bench' makes one with "
            f"benchmark: [{_TOOL}], and --format md shows what there is."
        )
    return found


def _configuration(record: Record) -> dict[str, object]:
    """The configuration that all tests of one table share: a case without its amount of work."""
    case = dict(record["case"])
    left_out = {"id", "seed", "samples", "warm_up", "parameters"}
    kept = {key: value for key, value in case.items() if key not in left_out}
    inner = {k: v for k, v in case["parameters"].items() if k not in (*_WORK, "requests")}
    engine = {key: record.get("engine", {}).get(key) for key in ("name", "version")}
    return {**kept, "parameters": inner, "setting": record_setting(record), "built": engine}


def _varying(group: Sequence[Record], groups: Iterable[Sequence[Record]]) -> set[str]:
    """The parameters of which not all groups of a benchmark have the same value."""
    cases = [one[0]["case"] for one in groups]
    every = [c["parameters"] for c in cases if c["benchmark"] == group[0]["case"]["benchmark"]]
    keys = {key for one in every for key in one if key not in (*_WORK, "requests")}
    return {key for key in keys if len({str(one.get(key)) for one in every}) > 1}


def _posted(records: Sequence[Record], varying: Collection[str]) -> Posted:
    case = records[0]["case"]
    samples: dict[_Test, dict[str, list[float]]] = {}
    given: dict[_Test, dict[str, Numbers]] = {}
    versions: set[str] = set()
    for record in records:
        for test, name, metric in _metrics(record):
            if kept := metric.get("samples"):
                samples.setdefault(test, {}).setdefault(name, []).extend(kept)
            else:
                given.setdefault(test, {})[name] = (metric["value"], metric.get("stddev"))
            versions |= {str(metric.get("observed", {}).get("llama_benchy", ""))} - {""}
    # llama-benchy's own deviation divides by the number of samples (numpy.std).
    pooled = {
        test: {name: (statistics.fmean(all_), statistics.pstdev(all_)) for name, all_ in of.items()}
        for test, of in samples.items()
    }
    tests = {test: {**given.get(test, {}), **pooled.get(test, {})} for test in given | pooled}
    several = [key for key in ("engine", "model") if case.get(key)]
    link = link_name(case.get("fabric", ""), case.get("transport", ""))
    nodes = case_name(case["nodes"], case.get("parallelism", ""), link)
    options = [f"{k} {v}" for k, v in case["parameters"].items() if k in varying and v != ""]
    parts = [record_setting(records[0]).name(several), nodes, *options]
    return Posted(
        case["benchmark"],
        clean(", ".join(parts)),
        _cell(case.get("model") or "unknown"),
        {test: _as_of_one(test, columns) for test, columns in tests.items()},
        ", ".join(sorted(versions)),
    )


def _as_of_one(test: _Test, columns: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
    """Take one request's speed for that of all, where requests come one at a time."""
    if test.concurrency > 1:
        return columns
    same = {one: columns[other] for one, other in _OF_ALL.items() if other in columns}
    return {**columns, **same}


def _metrics(record: Record) -> Iterator[tuple[_Test, str, RecordedMetric]]:
    case = record["case"]
    for metric in record["metrics"]:
        known = one_name(case["parameters"], metric["conditions"])
        slots = known.get("concurrency", 1)
        if case["benchmark"] != _TOOL and (
            metric["name"] not in _SHARED[case["benchmark"]]
            or slots != 1
            or {"counted_by", "prompt_words"} & known.keys()
        ):
            continue
        inference = known.get("context") is not True
        for kind, size in (("pp", "n_prompt"), ("tg", "n_gen")):
            name = column(kind, metric["name"])
            if name is None or (inference and not known.get(size)):
                continue
            others = {k: v for k, v in metric["conditions"].items() if k == "pass"}
            others |= {} if "samples" in metric else {"case": case_id(record)}
            of_case = {**known, **case["parameters"]}
            test = _Test(
                int(known.get("depth") or 0),
                inference,
                kind == "tg",
                int(of_case.get("n_prompt") or 0),
                int(of_case.get("n_gen") or 0) if kind == "tg" else 0,
                int(slots),
                canonical(others),
            )
            yield test, name, metric


def _lines(one: Posted) -> Iterator[str]:
    shown = {name: name for name in COLUMNS}
    if not one.several:
        shown = {k: "t/s" if k == "t/s (total)" else k for k in COLUMNS if k not in _NOT_OF_ONE}
    heads = ["model", "test", *shown.values()]
    rows = [
        [one.model, test.name(several=one.several), *(_text(columns.get(k)) for k in shown)]
        for test, columns in sorted(one.tests.items())
    ]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    rules = [":" + "-" * (widths[0] + 1), *("-" * (width + 1) + ":" for width in widths[1:])]
    yield from (f"### {one.name}", "")
    yield _pipes(heads, widths)
    yield "|" + "|".join(rules) + "|"
    yield from (_pipes(row, widths) for row in rows)
    yield ""
    if one.benchmark != _TOOL:
        yield from (f"Measured by {one.benchmark}, not by {_TOOL}.", "")
    elif one.version:
        yield from (f"{_TOOL} ({one.version})", "")


def _pipes(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]
    return f"| {' | '.join(texts)} |"


def _text(numbers: Numbers | None) -> str:
    if numbers is None:
        return ""
    mean, deviation = numbers
    if deviation is None or not math.isfinite(deviation):
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {deviation:.2f}"


def _cell(text: str) -> str:
    """A text that neither a table nor a spreadsheet takes for more than a text."""
    text = " ".join(clean(text).replace("|", "/").split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
