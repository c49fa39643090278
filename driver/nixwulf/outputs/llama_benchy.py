"""llama-benchy: llama-bench's tests against an OpenAI-compatible endpoint, at concurrencies.

https://github.com/eugr/llama-benchy
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nixwulf.core.metric import Metric
from nixwulf.outputs import Found, ParseError, Tool, model_of
from nixwulf.outputs.forms import cells, last_words, mean_and_deviation

_TEST = re.compile(
    r"(?P<context>ctx_)?(?P<kind>pp|tg)(?P<tokens>[0-9]{1,9})?(?: @ d(?P<depth>[0-9]{1,9}))?"
    r"(?: \(c(?P<concurrency>[0-9]{1,6})\))?"
)
_VERSION = re.compile(r"llama-benchy \(([^)\s]+)\)")
_TIMES = {"ttfr (ms)": "ttfr", "est_ppt (ms)": "prompt_time", "e2e_ttft (ms)": "ttft"}
# By what a test measures: of all requests together, and of each.
_SPEEDS = {
    "pp": {
        "t/s (total)": "prompt_throughput",
        "t/s (req)": "prompt",
        "t/s": "prompt",
        "peak t/s": "peak_prompt_throughput",
        "peak t/s (req)": "peak_prompt",
    },
    "tg": {
        "t/s (total)": "throughput",
        "t/s (req)": "decode",
        "t/s": "decode",
        "peak t/s": "peak_throughput",
        "peak t/s (req)": "peak_decode",
    },
}


def recognises(text: str) -> bool:
    """The head of its table, or its name with a version."""
    return bool(_VERSION.search(text)) or any(_is_head(cells(line)) for line in text.splitlines())


def read(text: str) -> list[Found]:
    """A case a model, of the rows of its tables."""
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
        raise ParseError(
            f"llama-benchy: no result row in {len(text.splitlines())} lines, expected a table with "
            f"the columns model, test, t/s and ttfr (ms){last_words(text)}"
        )
    version = _VERSION.search(text)
    note = f"llama-benchy {version[1]}" if version else ""
    return [
        Found("llama-benchy", metrics, model=model_of(model), note=note)
        for model, metrics in models.items()
    ]


TOOL = Tool(
    "llama-benchy",
    recognises,
    read,
    heads=re.compile(r"^[ \t]*\| *model *\| *test *\|", re.MULTILINE),
    results=re.compile(r"^[ \t]*\|[^|\n]+\| *(?:ctx_)?(?:pp|tg)", re.MULTILINE),
)


def _is_head(found: list[str]) -> bool:
    return found[:2] == ["model", "test"] and "ttfr (ms)" in found


def _metrics(row: Mapping[str, str], line: int) -> Iterator[Metric]:
    """Of one test, such as 'tg128 @ d4096 (c2)'."""
    columns = {}
    for name, cell in row.items():
        if name not in {"model", "test"} and cell:
            mean = mean_and_deviation(cell)
            if mean is None:
                raise ParseError(
                    f"llama-benchy, line {line}: {name} is {cell[:40]!r}, expected '46.47 ± 0.35'."
                )
            columns[name] = mean
    test = _TEST.fullmatch(row["test"])
    if test is None or not {"t/s (total)", "t/s"} & columns.keys():
        raise ParseError(
            f"llama-benchy, line {line}: test {row['test'][:40]!r} without a speed, expected "
            "one such as 'pp1024 (c1)' with its t/s."
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
