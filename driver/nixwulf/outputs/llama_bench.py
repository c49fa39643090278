"""llama-bench of llama.cpp: every form of its -o (md, csv, json, jsonl, sql), RPC or not.

Logs may stand between the rows, several runs may follow each other (a document), and the head of
a table may be missing (-v cuts it off). Columns are found by name, so that builds may add some.
https://github.com/ggml-org/llama.cpp/tree/master/tools/llama-bench
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from nixwulf.outputs import ParseError
from nixwulf.outputs.last_words import last_words
from nixwulf.outputs.pipe_table import NUMBER, cells, mean_and_deviation

_TEST = re.compile(
    r"(?=pp|tg)(?:pp(?P<prompt>[0-9]{1,9}))?\+?(?:tg(?P<gen>[0-9]{1,9}))?"
    r"(?: @ d(?P<depth>[0-9]{1,9}))?"
)
_FIRST_COLUMNS = ("model", "size", "params", "backend")  # the same in every build
_BUILD = re.compile(r"build: (\w+) \(([0-9]{1,9})\)")
_MODEL_OPTION = re.compile(r"-m\b")
_RPC_OPTION = re.compile(r"--rpc[ =](\S+)")
# Newer builds name the device as well: RPC0[10.0.0.2:50052].
_RPC_BUFFER = re.compile(r"RPC\d*\[([^\]\s]+)\]")
_RPC_DEVICE = re.compile(r"RPC\d+")
_ENDPOINT = re.compile(r"[^\s,]+:\d+")
_INSERT = re.compile(r"INSERT INTO \w+ \(([^)]*)\) VALUES \((.*)\);?")
_CSV_HEAD = "build_commit,"


@dataclass(frozen=True)
class LlamaBenchRow:
    """One result: a speed in tokens per second.

    test: as llama-bench names it: 'pp512', 'tg128', 'pp512 @ d32768', 'pp512+tg128'.
    samples: every speed, only in json and jsonl; deviation: n-1, None where it is not printed.
    rpc_servers: how many took part; None where RPC was built in and no line tells.
    build: commit and number; empty and None where no line tells.
    details: the columns as the tool gave them.
    """

    test: str
    n_prompt: int
    n_gen: int
    n_depth: int
    mean: float
    deviation: float | None
    model: str
    backend: str
    samples: tuple[float, ...] = ()
    rpc_servers: int | None = None
    build_commit: str = ""
    build_number: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The name of what was measured, as records have it."""
        if self.n_prompt and self.n_gen:
            return "prompt_and_decode"
        return "decode" if self.n_gen else "prompt"


def parse(text: str) -> tuple[LlamaBenchRow, ...]:
    """The results in the order in which they were printed; at least one."""
    rows = (*_json_rows(text), *_csv_rows(text), *_sql_rows(text), *_table_rows(text))
    if not rows:
        raise ParseError(
            f"llama-bench: no result row in {len(text.splitlines())} lines, expected a table, "
            f"JSON, CSV or SQL of results{last_words(text)}"
        )
    return rows


def recognises(text: str) -> bool:
    """Rows, the head of a table without any, or a backtrace of llama-bench."""
    for line in text.splitlines():
        found = cells(line)
        if found[-2:] == ["test", "t/s"] or (len(found) > 1 and _TEST.fullmatch(found[-2])):
            return True
        if re.search(r"\bllama[-_]bench\b", line) or line.startswith(_CSV_HEAD):
            return True
    return '"build_commit"' in text and '"n_prompt"' in text


def _json_rows(text: str) -> Iterator[LlamaBenchRow]:
    """The objects that lines begin with, one a line or pretty; one cut short is left out.

    A row has no object inside, so each is read up to the next: every line is read once.
    """
    lines = text.splitlines(keepends=True)
    begins = [index for index, line in enumerate(lines) if line.lstrip().startswith("{")]
    for begin, end in pairwise((*begins, len(lines))):
        try:
            value, _ = json.JSONDecoder().raw_decode("".join(lines[begin:end]).lstrip())
        except (ValueError, RecursionError):
            continue
        if "avg_ts" in value and value.get("samples_ts", True):
            yield _keyed_row(value, begin + 1)


def _csv_rows(text: str) -> Iterator[LlamaBenchRow]:
    lines = text.splitlines()
    heads = [index for index, line in enumerate(lines) if line.startswith(_CSV_HEAD)]
    if not heads:
        return
    head = lines[heads[0]].split(",")
    for number, line in enumerate(lines[heads[0] + 1 :], heads[0] + 2):
        values = _separated(line, '"')
        if len(values) == len(head):
            yield _keyed_row(dict(zip(head, values, strict=True)), number)


def _sql_rows(text: str) -> Iterator[LlamaBenchRow]:
    for number, line in enumerate(text.splitlines(), 1):
        found = _INSERT.match(line)
        if found:
            names, values = _separated(found[1], '"'), _separated(found[2], "'")
            if len(names) == len(values):
                yield _keyed_row(dict(zip(names, values, strict=True)), number)


def _separated(line: str, quote: str) -> list[str]:
    try:
        rows = list(csv.reader(io.StringIO(line), quotechar=quote, skipinitialspace=True))
    except csv.Error:
        return []
    return rows[0] if rows else []


def _keyed_row(values: Mapping[str, Any], line: int) -> LlamaBenchRow:
    """A row of json, jsonl, csv or sql; their keys are the same."""
    prompt, gen = _count(values, "n_prompt", line), _count(values, "n_gen", line)
    depth = _count(values, "n_depth", line) if "n_depth" in values else 0
    endpoints = set(_ENDPOINT.findall(str(values.get("gpu_info", ""))))
    backend = str(values.get("backends", ""))
    samples = values.get("samples_ts", [])
    if not isinstance(samples, list):
        samples = [samples]
    number = str(values.get("build_number", ""))
    return LlamaBenchRow(
        test=_test_name(prompt, gen, depth),
        n_prompt=prompt,
        n_gen=gen,
        n_depth=depth,
        mean=_speed(values.get("avg_ts"), line),
        deviation=_speed(values["stddev_ts"], line) if "stddev_ts" in values else None,
        model=str(values.get("model_type", "")),
        backend=backend,
        samples=tuple(_speed(sample, line) for sample in samples),
        rpc_servers=_rpc_servers(backend, endpoints, None),
        build_commit=str(values.get("build_commit", "")),
        build_number=int(number) if re.fullmatch(r"[0-9]{1,9}", number) else None,
        details=dict(values),
    )


def _table_rows(text: str) -> Iterator[LlamaBenchRow]:
    """Rows of Markdown; what their run says before and after them is added when it ends."""
    head: list[str] = []
    open_rows: list[LlamaBenchRow] = []
    endpoints: set[str] = set()
    named: set[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        found = cells(line)
        build = _BUILD.match(line.strip())
        if found[-2:] == ["test", "t/s"]:
            head = found
        elif len(found) > len(_FIRST_COLUMNS) and _TEST.fullmatch(found[-2]):
            open_rows.append(_table_row(found, head, number))
        elif _MODEL_OPTION.search(line.partition("llama-bench ")[2]):
            yield from _ended(open_rows, endpoints, named, None)
            open_rows, endpoints = [], set()
            option = _RPC_OPTION.search(line)
            named = set(option[1].split(",")) if option else set()
        elif build:
            yield from _ended(open_rows, endpoints, named, build)
            open_rows, endpoints, named = [], set(), None
        else:
            endpoints |= set(_RPC_BUFFER.findall(line))
    yield from _ended(open_rows, endpoints, named, None)


def _table_row(found: list[str], head: list[str], number: int) -> LlamaBenchRow:
    names = head if len(head) == len(found) else list(_FIRST_COLUMNS)
    details = dict(zip(names, found, strict=False))
    test = _TEST.fullmatch(found[-2])
    speed = mean_and_deviation(found[-1])
    if test is None or speed is None:
        raise ParseError(
            f"llama-bench, line {number}: {found[-1]!r} is no speed, expected '55.73 ± 0.04'."
        )
    return LlamaBenchRow(
        test=found[-2],
        n_prompt=int(test["prompt"] or 0),
        n_gen=int(test["gen"] or 0),
        n_depth=int(test["depth"] or 0),
        mean=speed[0],
        deviation=speed[1],
        model=found[0],
        backend=found[3],
        details=details,
    )


def _ended(
    rows: list[LlamaBenchRow],
    endpoints: set[str],
    named: set[str] | None,
    build: re.Match[str] | None,
) -> Iterator[LlamaBenchRow]:
    commit_and_number = (build[1], int(build[2])) if build else ("", None)
    for row in rows:
        devices = set(_RPC_DEVICE.findall(str(row.details.get("dev", ""))))
        servers = _rpc_servers(row.backend, devices or endpoints, named)
        yield replace(
            row,
            rpc_servers=servers,
            build_commit=commit_and_number[0],
            build_number=commit_and_number[1],
        )


def _rpc_servers(backend: str, endpoints: set[str], named: set[str] | None) -> int | None:
    """Those that the command named or, where it is not known, those that the log names."""
    if named is not None or endpoints:
        return len(endpoints if named is None else named)
    return None if "RPC" in backend else 0


def _test_name(prompt: int, gen: int, depth: int) -> str:
    parts = [f"pp{prompt}"] if prompt else []
    parts += [f"tg{gen}"] if gen else []
    return "+".join(parts) + (f" @ d{depth}" if depth else "")


def _count(values: Mapping[str, Any], key: str, line: int) -> int:
    text = str(values.get(key))
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ParseError(f"llama-bench, line {line}: {key} is {text[:40]!r}, expected a count.")
    return int(text)


def _speed(value: Any, line: int) -> float:
    text = str(value)
    if not re.fullmatch(NUMBER, text):
        raise ParseError(f"llama-bench, line {line}: {text[:40]!r} is no speed, expected '55.73'.")
    return float(text)
