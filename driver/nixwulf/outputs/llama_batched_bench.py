"""llama-batched-bench of llama.cpp: speeds of 1, 2, 4, ... sequences at once.

https://github.com/ggml-org/llama.cpp/tree/master/tools/batched-bench
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nixwulf.core.metric import Metric
from nixwulf.outputs import Found, ParseError, Tool
from nixwulf.outputs.forms import NUMBER, cells, last_words

ENGINE = "llama.cpp"
_HEAD = ["PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"]
_COUNTS = 4
_OPTION = re.compile(r"\b(\w+) = (-?[0-9]{1,18})")


def recognises(text: str) -> bool:
    """The head of its table, or the line with its options."""
    return any("n_kv_max = " in line or cells(line) == _HEAD for line in text.splitlines())


def read(text: str) -> list[Found]:
    """A case a run, that is a table with at least one row, with the options that it states."""
    tables: list[tuple[int, list[Metric]]] = []
    options: dict[str, int] = {}
    conditions: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = cells(line)
        if "n_kv_max = " in line:
            options = {name: int(value) for name, value in _OPTION.findall(line)}
            options.pop("n_kv_max", None)
        elif found == _HEAD:
            tables.append((number, []))
            conditions, options = options, {}
        elif found and tables and len(found) == len(_HEAD):
            tables[-1][1].extend(_metrics(found, number, conditions))
    tables = [(line, table) for line, table in tables if table]
    if not tables:
        raise ParseError(
            f"llama-batched-bench: no result row in {len(text.splitlines())} lines, expected a "
            f"table with the columns {', '.join(_HEAD)}{last_words(text)}"
        )
    return [
        Found(
            "llama-batched-bench",
            table,
            engine={"name": ENGINE},
            parameters={"table": number} if len(tables) > 1 else {},
            line=line,
        )
        for number, (line, table) in enumerate(tables, 1)
    ]


TOOL = Tool("llama-batched-bench", recognises, read, reads_all=True)


def _metrics(found: list[str], line: int, options: Mapping[str, int]) -> Iterator[Metric]:
    """Of all sequences together: tokens of prompts, tokens generated, and both over all seconds."""
    for index, cell in enumerate(found):
        expected = "[0-9]{1,18}" if index < _COUNTS else NUMBER
        if not re.fullmatch(expected, cell):
            raise ParseError(
                f"llama-batched-bench, line {line}: {_HEAD[index]} is {cell[:40]!r}, expected a "
                f"{'count' if index < _COUNTS else 'number'}."
            )
    row = dict(zip(_HEAD, found, strict=True))
    sizes = {"n_prompt": int(row["PP"]), "n_gen": int(row["TG"]), "concurrency": int(row["B"])}
    for name, column, tokens in (
        ("prompt_throughput", "S_PP t/s", sizes["n_prompt"]),
        ("throughput", "S_TG t/s", sizes["n_gen"]),
        ("total_throughput", "S t/s", True),
    ):
        if tokens:
            speed = float(row[column])
            yield Metric(name, "tok/s", value=speed, conditions={**sizes, **options})
