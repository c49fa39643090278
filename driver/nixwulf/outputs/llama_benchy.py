"""llama-benchy: llama-bench's tests against an OpenAI-compatible endpoint, at concurrencies.

https://github.com/eugr/llama-benchy
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from nixwulf import outputs
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import Metric
from nixwulf.core.secrets import cut
from nixwulf.outputs import Found, ParseError, Tool, cells, json_object, model_of

_TEST = re.compile(
    r"(?P<context>ctx_)?(?P<kind>pp|tg)(?P<tokens>[0-9]{1,9})?(?: @ d(?P<depth>[0-9]{1,9}))?"
    r"(?: \(c(?P<concurrency>[0-9]{1,6})\))?"
)
_VERSION = re.compile(r"llama-benchy \(([^)\s]+)\)")
_DATA = read_toml(DATA / "llama_benchy.toml")
_TIMES: Mapping[str, str] = _DATA["times"]
_SPEEDS: Mapping[str, Mapping[str, str]] = _DATA["speeds"]
_KEYS: Mapping[str, Mapping[str, str]] = _DATA["keys"]
COLUMNS = ("t/s (total)", "t/s (req)", "peak t/s", "peak t/s (req)", *_TIMES)
"""Those of its table with several requests at once that have numbers."""
_OF_ONE = {"t/s (req)": "t/s", "t/s (total)": "", "peak t/s (req)": ""}
_MOST_TOKENS = 10**9
_HUGE = 10**300


def column(kind: str, metric: str) -> str | None:
    """Return the column of COLUMNS with a metric of a test, 'pp' or 'tg', or None."""
    names = {**_SPEEDS[kind], **(_TIMES if kind == "pp" else {})}
    return next((one for one in COLUMNS if names.get(one) == metric), None)


def recognises(text: str) -> bool:
    """The head of its table, its name with a version, or a key that its JSON alone has."""
    known = '"is_context_prefill_phase"' in text or _VERSION.search(text)
    return bool(known) or any(_is_head(cells(line)) for line in text.splitlines())


def read(text: str) -> list[Found]:
    """A case a model, of the rows of its tables or of its JSON."""
    if '"is_context_prefill_phase"' in text:
        return [_found(report_in(text))]
    head: list[str] = []
    models: dict[str, list[Metric]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = cells(line)
        if _is_head(found):
            head = found
        elif head and len(found) == len(head):
            row = dict(zip(head, found, strict=True))
            models.setdefault(row["model"], []).extend(_metrics(row, number))
    if not models:
        raise outputs.without_result(
            "llama-benchy", "a table with model, test, t/s and ttfr (ms)", text
        )
    version = _VERSION.search(text)
    note = f"llama-benchy {version[1]}" if version else ""
    return [
        Found("llama-benchy", metrics, model=model_of(model), note=note)
        for model, metrics in models.items()
    ]


TOOL = Tool("llama-benchy", recognises, read, failed=Found("llama-benchy", ()))


def report_in(text: str) -> dict[str, object]:
    """The JSON of a whole output, whose other lines are its progress; raises ParseError."""
    begin = 0 if text.startswith("{") else text.find("\n{") + 1
    end = text.rfind("\n}") + 2 if text.find("\n}") >= begin else len(text)
    return json_object("llama-benchy", text[begin:end])


def metrics_of(report: Mapping[str, object]) -> list[Metric]:
    """The metrics of its JSON, a sample a run or, of requests, a request; raises ParseError."""
    tests = report.get("benchmarks")
    if not isinstance(tests, list) or not all(isinstance(one, dict) for one in tests):
        raise ParseError(f"llama-benchy: benchmarks is {cut(str(tests), 40)!r}, expected objects.")
    return [metric for test in tests for kind in _KEYS for metric in _of_test(test, kind)]


def _found(report: Mapping[str, object]) -> Found:
    found = metrics_of(report)
    if not found:
        raise ParseError("llama-benchy: no result in its benchmarks, expected tests with speeds.")
    version, model = (report.get(key) for key in ("version", "model"))
    note = f"llama-benchy {version[:40]}" if isinstance(version, str) else ""
    name = model_of(model) if isinstance(model, str) else {}
    return Found("llama-benchy", found, model=name, note=note)


def _of_test(test: Mapping[str, object], kind: str) -> Iterator[Metric]:
    """Read the prompt (pp) or the generation (tg) of an object of its JSON.

    Of one request at a time each speed is there twice, of the request and of all.
    """
    context = test.get("is_context_prefill_phase") is True
    slots = _count(test, "concurrency")
    size = "prompt_size" if kind == "pp" else "response_size"
    conditions = {
        "n_prompt" if kind == "pp" else "n_gen": None if context else _count(test, size),
        "n_depth": _count(test, "context_size"),
        "concurrency": slots,
        "context": True if context else None,
    }
    for key, shown in _KEYS[kind].items():
        block = test.get(key)
        name = _OF_ONE.get(shown, shown) if slots == 1 else shown
        if block is None or not name:
            continue
        numbers = block.get("values") if isinstance(block, dict) else None
        whole = isinstance(numbers, list) and all(
            type(one) in (int, float) and abs(one) < _HUGE for one in numbers
        )
        if not numbers or not whole:
            raise ParseError(
                f"llama-benchy: {key} is {cut(json.dumps(block), 40)!r}, expected its mean, std "
                "and values."
            )
        unit = "ms" if shown in _TIMES else "tok/s"
        metric = {**_SPEEDS[kind], **_TIMES}[name]
        yield Metric(metric, unit, tuple(map(float, numbers)), conditions=conditions)


def _count(test: Mapping[str, object], key: str) -> int:
    value = test.get(key)
    if type(value) is not int or not 0 <= value < _MOST_TOKENS:
        raise ParseError(
            f"llama-benchy: {key} is {cut(str(value), 40)!r}, expected a number of them."
        )
    return value


def _is_head(found: list[str]) -> bool:
    return {"model", "test"} <= {*found} and not {*COLUMNS}.isdisjoint(found)


def _metrics(row: Mapping[str, str], line: int) -> Iterator[Metric]:
    """Return the metrics of one test, such as 'tg128 @ d4096 (c2)'."""
    columns = {}
    for name, cell in row.items():
        if name not in {"model", "test"} and cell:
            mean = outputs.mean_and_deviation(cell)
            if mean is None:
                raise ParseError(
                    f"llama-benchy, line {line}: {name} is {cell[:40]!r}, expected '46.47 ± 0.35'."
                )
            columns[name] = mean
    test = _TEST.fullmatch(row["test"])
    if test is None or not columns:
        raise ParseError(
            f"llama-benchy, line {line}: test {row['test'][:40]!r} without a number, "
            "expected one such as 'pp1024 (c1)' with its t/s."
        )
    conditions = {
        "n_prompt" if test["kind"] == "pp" else "n_gen": int(test["tokens"])
        if test["tokens"]
        else None,
        "n_depth": int(test["depth"] or 0),
        "concurrency": int(test["concurrency"] or 1),
        "context": True if test["context"] else None,
    }
    names = {**_SPEEDS[test["kind"]], **_TIMES}
    for column, (value, stddev) in columns.items():
        if column in names:
            unit = "ms" if column in _TIMES else "tok/s"
            yield Metric(names[column], unit, value=value, stddev=stddev, conditions=conditions)
