"""llama-bench of llama.cpp: every form of its -o (md, csv, json, jsonl, sql), RPC or not.

Logs and other runs may stand between the rows, and the head of a table may be missing.
https://github.com/ggml-org/llama.cpp/tree/master/tools/llama-bench
"""

from __future__ import annotations

import bisect
import contextlib
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import PurePosixPath

from nixwulf import outputs
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import Metric
from nixwulf.outputs import Found, Nodes, ParseError, Tool, cells, failure
from nixwulf.outputs.llama_benchy import COLUMNS

ENGINE = "llama.cpp"
_DECODER = json.JSONDecoder()
_TEST = re.compile(
    r"(?=pp|tg)(?:pp ?(?P<prompt>[0-9]{1,9}))?\+?(?:tg ?(?P<gen>[0-9]{1,9}))?"
    r"(?: @ d(?P<depth>[0-9]{1,9}))?"
)
_COLUMNS = read_toml(DATA / "llama_bench_columns.toml")
_FIRST_COLUMNS = {name: re.compile(form) for name, form in _COLUMNS["first"].items()}
_KEYS: Mapping[str, str] = _COLUMNS["keys"]
# Typed by hand, the number may be in front or alone.
_BUILD = re.compile(
    r"build: (?!b[0-9]{1,5}\b)(?P<commit>\w+) \((?P<number>[0-9]{1,9})\)"
    r"|build: b(?P<first>[0-9]{1,6})(?: \((?P<behind>\w+)\))?$"
)
_MODEL_OPTION = re.compile(r"(?<!\S)(?:-m|--model|-hfr?|--hf-repo)\b")
_RPC_OPTION = re.compile(r"-rpc[ =](\S+)")
# An option with one value, by which a setting is known that has no column.
_OPTION = re.compile(r"(?<!\S)(--?[a-z][a-z-]*)[ =]+([\w./]+)(?!\S)")
# Newer builds name the device as well: RPC0[10.0.0.2:50052].
_RPC_BUFFER = re.compile(r"(RPC\d*)\[([^\]\s]+)\]")
_RPC_DEVICE = re.compile(r"RPC\d+")
_ENDPOINT = re.compile(r"[^\s,]+:\d+")
_INSERT = re.compile(r"INSERT INTO \w+ \(([^)]*)\) VALUES \((.*)\);?")
_CSV_HEAD = {"n_prompt", "n_gen", "avg_ts"}
# What the benchmark of this driver has as conditions, and what speeds depend on as much.
_ALWAYS = ("n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "flash_attn")
# Words of the program itself, with which a setting is not one that somebody chose.
_USUAL_WORDS: Mapping[str, Sequence[str]] = _COLUMNS["usual_words"]
# Columns of a spreadsheet: a unit in its head, and the deviation apart from the speed.
_UNITED, _SPREAD = re.compile(_COLUMNS["united"]), re.compile(_COLUMNS["spread"], re.IGNORECASE)
# No settings: of the machine, the build, the model and the result.
_NO_SETTING = re.compile(_COLUMNS["no_setting"])
# 'qwen3moe 235B.A22B Q2_K - Medium': architecture, size, weights.
_DESCRIPTION = re.compile(r"(?P<architecture>\S+) \S+ (?P<weights>.+)")
_SPEED = re.compile(outputs.NUMBER)
_SCALARS = (int, float, str)
_EXACT = {"bytes": "model_size", "parameters": "model_n_params"}
_HEAD = {"test", "t/s"}
_KEYED = ('"build_commit"', '"build_commit\\"')
# After it a process has printed its last row; one in JSON that is whole is not looked at.
_DIED = re.compile(_COLUMNS["died"])
_IK = re.compile(_COLUMNS["ik_llama"])
_PARALLELISM = {"layer": "pipeline", "row": "tensor", "tensor": "tensor"}


@dataclass(frozen=True)
class LlamaBenchRow:
    """One result: a speed in tokens per second.

    samples: every speed, only in json and jsonl; deviation: n-1, None where it is not printed.
    rpc_servers: how many took part; None where RPC was built in and no line shows it.
    build: commit and number; empty and None where no line shows them. line: from 1 on.
    details: the columns as the tool gave them.
    """

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
    line: int = 0
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The name of what was measured, as records have it."""
        if self.n_prompt and self.n_gen:
            return "prompt_and_decode"
        return "decode" if self.n_gen else "prompt"

    @cached_property
    def settings(self) -> dict[str, object]:
        """Return a run's settings, by the keys of its JSON; rows that agree share it."""
        found = self.details
        names = _settings_among(tuple(found))
        return _settings(tuple((n, found[n]) for n in names if isinstance(found[n], _SCALARS)))


def parse(text: str) -> tuple[LlamaBenchRow, ...]:
    """The results in the order in which they were printed; at least one."""
    keyed = [_json_rows, _csv_rows, _sql_rows] if "avg_ts" in text else []
    tables = [_table_rows] if "|" in text or "\t" in text else []
    rows = (*_commanded(text, (row for form in keyed for row in form(text))),)
    rows += tuple(row for form in tables for row in form(text))
    if not rows:
        raise outputs.without_result("llama-bench", "rows of a table, JSON, CSV or SQL", text)
    return rows


def recognises(text: str) -> bool:
    """Rows, the head of a table without any, or a backtrace of llama-bench."""
    if any(key in text for key in _KEYED) and "n_prompt" in text:
        return True
    for line in text.splitlines():
        found = cells(line)
        if _is_head(found) or (len(found) > 1 and _TEST.fullmatch(found[-2])):
            return True
        if re.search(r"\bllama[-_]bench\b", line) or _csv_head(line):
            return True
    return False


def read(text: str) -> list[Found]:
    """A case for each run, model, build, split and number of RPC servers, where the first begins.

    Lines of JSON do not show where a run ends: a test of them that is there again is a later pass.
    """
    rows = sorted(parse(text), key=lambda row: row.line)
    numbers = {row.line for row in rows}
    lines = ["" if n in numbers else line for n, line in enumerate(text.splitlines(), 1)]
    begins = _begins(lines, numbers)
    groups: dict[tuple[int, tuple[object, ...]], list[LlamaBenchRow]] = {}
    for row in rows:
        file = str(row.details.get("model_filename"))
        split = row.settings.get("split_mode", "layer")
        run = bisect.bisect(begins, row.line) - 1
        key = (row.model, *_sizes(row).values(), file, row.backend, row.rpc_servers, split)
        groups.setdefault((run, (*key, row.build_commit)), []).append(row)
    ends = [*(begin - 1 for begin in begins[1:]), len(lines)]
    warnings = {
        run: _warnings(lines[begins[run] - 1 : ends[run]], begins[run])
        for run in {run for run, _ in groups}
    }
    ordered = [row.line for row in rows]
    last = {
        run: ordered[bisect.bisect_left(ordered, line) - 1]
        for run, (line, _) in warnings.items()
        if bisect.bisect_left(ordered, line) > bisect.bisect_left(ordered, begins[run])
    }
    # A failure is of the case that has the last row before it, where there is one.
    return [
        _case(own, warnings[run][1] if last.get(run, 0) in (0, *(row.line for row in own)) else ())
        for (run, _), own in groups.items()
    ]


_FAILED = Found("llama-bench", (), engine={"name": ENGINE})
TOOL = Tool("llama-bench", recognises, read, reads_all=True, failed=_FAILED)


def _begins(lines: Sequence[str], rows: Set[int]) -> list[int]:
    """The lines, from 1 on, in which runs begin: after a command, a head, an end or a crash."""
    found, has_rows = [1], False
    for number, line in enumerate(lines, 1):
        if number in rows:
            has_rows = True
            continue
        stripped = line.strip()
        command = bool(_command(lines, number))
        head = (
            bool(_csv_head(line)) or line.startswith(("CREATE TABLE", "[")) or _is_head(cells(line))
        )
        if number != found[-1] and (command or (head and has_rows)):
            found.append(number)
            has_rows = False
        if line.rstrip() == "]" or _BUILD.match(stripped) or _DIED.search(line):
            found.append(number + 1)
            has_rows = False
    return found


def _command(lines: Sequence[str], number: int) -> str:
    """The options of a command with the lines that it goes on in, if one begins in a line."""
    found = lines[number - 1].partition("llama-bench")[2].partition(" ")[2].rstrip()
    while found.endswith("\\") and number < len(lines):
        found, number = f"{found[:-1]} {lines[number]}".rstrip(), number + 1
    return found if _MODEL_OPTION.search(found) else ""


def _stated(command: str) -> dict[str, str]:
    """The settings of a command's options by their columns, but for those with several values."""
    given = [(_COLUMNS["options"].get(name), value) for name, value in _OPTION.findall(command)]
    values = _COLUMNS["option_values"]
    alone = Counter(name for name, _ in given)
    return {name: values.get(one, one) for name, one in given if name and alone[name] == 1}


def metric(row: LlamaBenchRow, shown: Set[str] | None, state: str | None = None) -> Metric:
    """The speed of a row; shown: the settings that are conditions, by their keys, None: all."""
    sizes = {"n_prompt": row.n_prompt, "n_gen": row.n_gen, "n_depth": row.n_depth}
    kept = {key: value for key, value in row.settings.items() if shown is None or key in shown}
    mean, deviation = row.mean, row.deviation
    conditions = sizes | kept
    return Metric(row.metric, "tok/s", row.samples, state, conditions, value=mean, stddev=deviation)


def _commanded(text: str, rows: Iterable[LlamaBenchRow]) -> Iterator[LlamaBenchRow]:
    """Rows whose form shows no RPC server, with those that the command above them named."""
    lines = text.splitlines() if "rpc" in text else []
    commands = {n: one for n in range(1, len(lines) + 1) if (one := _command(lines, n))}
    for row in rows:
        above = next((one for n, one in reversed(commands.items()) if n < row.line), "")
        option = _RPC_OPTION.search(above) if row.rpc_servers is None else None
        yield replace(row, rpc_servers=len(set(option[1].split(",")))) if option else row


def _json_rows(text: str) -> Iterator[LlamaBenchRow]:
    """The objects that lines begin with, one a line or pretty; one cut short is left out.

    Each is read up to the next: every line is read once. Others put a row into an object of their
    own, or into a list of one line.
    """
    lines = text.splitlines(keepends=True)
    begins = [index for index, line in enumerate(lines) if line.lstrip().startswith(("{", "[{"))]
    for begin, end in pairwise((*begins, len(lines))):
        try:
            value, _ = _DECODER.raw_decode("".join(lines[begin:end]).lstrip())
        except (ValueError, RecursionError):
            continue
        for row in _within(value):
            yield _keyed_row(row, begin + 1)


def _within(value: object) -> Iterator[Mapping[str, object]]:
    """The rows in a value, however deep, in their order; also in texts that are JSON."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str) and '"avg_ts"' in one:
            with contextlib.suppress(ValueError, RecursionError):
                left.append(json.loads(one))
        elif isinstance(one, list):
            left += reversed(one)
        elif isinstance(one, dict) and "avg_ts" in one:
            if one.get("samples_ts", True):
                yield one
        elif isinstance(one, dict):
            left += reversed(one.values())


def _csv_head(line: str) -> list[str]:
    """The columns of a head of CSV, any of which a poster may have removed."""
    names = line.replace('"', "").split(",") if "avg_ts" in line else []
    return names if set(names) >= _CSV_HEAD else []


def _csv_rows(text: str) -> Iterator[LlamaBenchRow]:
    head: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if names := _csv_head(line):
            head = names
            continue
        values = _separated(line, '"') if head else []
        if head and len(values) == len(head):
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
        return next(csv.reader([line], quotechar=quote, skipinitialspace=True), [])
    except csv.Error:
        return []


def _keyed_row(values: Mapping[str, object], line: int) -> LlamaBenchRow:
    """A row of json, jsonl, csv or sql; their keys are the same."""
    endpoints = set(_ENDPOINT.findall(str(values.get("gpu_info", ""))))
    backend = str(values.get("backends", ""))
    samples = values.get("samples_ts", [])
    if not isinstance(samples, list):
        samples = [samples]
    number = str(values.get("build_number", ""))
    return LlamaBenchRow(
        n_prompt=_count(values, "n_prompt", line),
        n_gen=_count(values, "n_gen", line),
        n_depth=_count(values, "n_depth", line) if "n_depth" in values else 0,
        mean=_speed(values.get("avg_ts"), line),
        deviation=_speed(values["stddev_ts"], line) if "stddev_ts" in values else None,
        model=str(values.get("model_type", "")),
        backend=backend,
        samples=tuple(_speed(sample, line) for sample in samples),
        rpc_servers=_rpc_servers(backend, endpoints, None),
        build_commit=str(values.get("build_commit", "")),
        build_number=int(number) if re.fullmatch(r"[0-9]{1,9}", number) else None,
        line=line,
        details=dict(values),
    )


def _table_rows(text: str) -> Iterator[LlamaBenchRow]:
    """Rows of Markdown; what their run prints before and after them is added when it ends."""
    head: list[str] = []
    open_rows: list[LlamaBenchRow] = []
    endpoints: set[str] = set()
    named: set[str] | None = None
    stated: dict[str, str] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        found = cells(line)
        build = _BUILD.match(line.strip())
        if _is_head(found):
            # The first column of a paste whose beginning is cut off.
            head = ["model", *found[1:]] if "model".endswith(found[0]) else found
        elif _is_row(found, head):
            row = _table_row(found, head, number)
            open_rows.append(replace(row, details={**stated, **row.details}))
        elif command := _command(lines, number):
            yield from _ended(open_rows, endpoints, named, None)
            open_rows, endpoints, stated = [], set(), _stated(command)
            option = _RPC_OPTION.search(command)
            named = set(option[1].split(",")) if option else set()
        elif build:
            yield from _ended(open_rows, endpoints, named, build)
            open_rows, endpoints, named, stated = [], set(), None, {}
        elif option := _RPC_OPTION.search(line):  # of a sentence above the table
            yield from _ended(open_rows, endpoints, named, None)
            open_rows, named = [], set(option[1].rstrip(":.)`").split(","))
        else:
            endpoints |= {one[2] for one in _RPC_BUFFER.finditer(line)}
    yield from _ended(open_rows, endpoints, named, None)


def _is_head(found: Sequence[str]) -> bool:
    """Tell whether cells are its table's head, in any order; llama-benchy's has more of t/s."""
    return set(found) >= _HEAD and {*COLUMNS}.isdisjoint(found)


def _is_row(found: list[str], head: list[str]) -> bool:
    """Tell whether cells are a row of its table, and no head of somebody's own with pp512."""
    row = _columns(found, head)
    if not _TEST.fullmatch(row.get("test", "")):
        return False
    return (
        len(found) == len(head) or bool(outputs.mean_and_deviation(row["t/s"])) or "±" in row["t/s"]
    )


def _columns(found: list[str], head: list[str]) -> dict[str, str]:
    """The cells of a row by the names of its columns, also where its head is missing."""
    if len(head) == len(found):
        return dict(map(_plain_column, head, found))
    if len(found) <= len(_FIRST_COLUMNS):
        return {}
    known = {
        name: cell
        for name, form in _FIRST_COLUMNS.items()
        for cell in found[1:-2]
        if form.fullmatch(cell)
    }
    return {"model": found[0], **known, "test": found[-2], "t/s": found[-1]}


def _plain_column(name: str, cell: str) -> tuple[str, str]:
    """A column and its cell as the program's table has them: a spreadsheet's head has units."""
    united = _UNITED.fullmatch(name)
    if united and _SPEED.fullmatch(cell):
        return united[1], f"{cell} {united[2]}"
    return ("stddev_ts" if _SPREAD.fullmatch(name) else name), cell


def _table_row(found: list[str], head: list[str], number: int) -> LlamaBenchRow:
    details = _columns(found, head)
    test, speed = _TEST.fullmatch(details["test"]), outputs.mean_and_deviation(details["t/s"])
    if test is None or speed is None:
        raise ParseError(
            f"llama-bench, line {number}: {details['t/s']!r} is no speed, expected '55.73 ± 0.04'."
        )
    spread = details.get("stddev_ts")
    return LlamaBenchRow(
        n_prompt=int(test["prompt"] or 0),
        n_gen=int(test["gen"] or 0),
        n_depth=int(test["depth"] or 0),
        mean=speed[0],
        deviation=_speed(spread, number) if spread and speed[1] is None else speed[1],
        model=details.get("model", ""),
        backend=details.get("backend", ""),
        line=number,
        details=details,
    )


def _ended(
    rows: list[LlamaBenchRow],
    endpoints: set[str],
    named: set[str] | None,
    build: re.Match[str] | None,
) -> Iterator[LlamaBenchRow]:
    commit = (build["commit"] or build["behind"] or "") if build else ""
    number = int(build["number"] or build["first"]) if build else None
    for row in rows:
        devices = set(_RPC_DEVICE.findall(str(row.details.get("dev", ""))))
        servers = _rpc_servers(row.backend, devices or endpoints, named)
        yield replace(row, rpc_servers=servers, build_commit=commit, build_number=number)


def _rpc_servers(backend: str, endpoints: set[str], named: set[str] | None) -> int | None:
    """Return the servers that the command named or, where it is not known, the log."""
    if named is not None or endpoints:
        return len(endpoints if named is None else named)
    return 0 if backend and "RPC" not in backend else None


def _count(values: Mapping[str, object], key: str, line: int) -> int:
    text = str(values.get(key))
    if not (text.isascii() and text.isdecimal() and len(text) < len("1000000000")):
        raise ParseError(f"llama-bench, line {line}: {key} is {text[:40]!r}, expected a count.")
    return int(text)


def _speed(value: object, line: int) -> float:
    text = str(value)
    if not _SPEED.fullmatch(text):
        raise ParseError(f"llama-bench, line {line}: {text[:40]!r} is no speed, expected '55.73'.")
    return float(text)


def _warnings(lines: Sequence[str], first: int) -> tuple[int, tuple[str, ...]]:
    """Warn of a run that crashed, whose whole rows are kept; and its line."""
    line, words = failure(lines, first)
    if line:
        return line, (f"The output reports a failure{words}",)
    crashed = any(map(_DIED.search, lines)) or ("[" in lines and "]" not in lines)
    ended = ("llama-bench ended before its end, after these results.",)
    return first + len(lines), ended if crashed else ()


def _case(rows: Sequence[LlamaBenchRow], warnings: tuple[str, ...]) -> Found:
    first = rows[0]
    split = str(first.settings.get("split_mode", "layer"))
    reported = list({id(row.settings): row.settings for row in rows}.values())
    keys = {key for one in reported for key in one}
    differing = {key for key in keys if len({one.get(key) for one in reported}) > 1}
    # A table has a column for what was not left at its default; JSON has all there is.
    usual = _COLUMNS["defaults"]
    chosen = {key for one in reported for key in one if str(one[key]) != usual.get(key)}
    shown = {*_ALWAYS, *differing, *chosen} if "model_filename" in first.details else None
    return Found(
        "llama-bench",
        [metric(row, shown) for row in rows],
        nodes=_nodes(first),
        engine=_engine(first),
        model=_model(first),
        parallelism=_PARALLELISM.get(split),
        warnings=warnings,
        line=first.line,
    )


def _nodes(row: LlamaBenchRow) -> Nodes:
    """The head and a node for each RPC server, one of which the head may run itself."""
    if row.rpc_servers is None:
        seen = "its build has RPC, and no line names a server" if row.backend else "no backend"
        return Nodes(why=seen)
    if row.rpc_servers == 0:
        return outputs.exactly(1, f"the backend {row.backend} and no RPC server")
    servers = row.rpc_servers
    if row.backend == "RPC":
        why = f"{servers} RPC servers and no device of its own: the head may run one of them"
        return Nodes(None, servers, servers + 1, why)
    return Nodes(servers + 1, max(2, servers), servers + 1, f"{servers} RPC servers and the head")


@lru_cache(64)
def _settings_among(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if not _NO_SETTING.fullmatch(name))


@lru_cache(1024)
def _settings(values: tuple[tuple[str, object], ...]) -> dict[str, object]:
    found = {_KEYS.get(name, name): _plain(value) for name, value in values}
    return {key: one for key, one in found.items() if one not in _USUAL_WORDS.get(key, ())}


def _plain(value: object) -> object:
    """Numbers as such: a table and CSV have texts, and JSON has true for a table's 1."""
    if isinstance(value, bool):
        return int(value)
    return _of_text(value) if isinstance(value, str) else value


@lru_cache(4096)
def _of_text(value: str) -> int | str:
    number = re.fullmatch(r"-?[0-9]{1,15}", value)
    return int(value) if number else _RPC_BUFFER.sub(r"\1", value)


def _engine(row: LlamaBenchRow) -> dict[str, str]:
    commit = row.build_commit if row.build_commit != "unknown" else ""
    version = f"b{row.build_number}" if row.build_number else ""
    name = "ik_llama.cpp" if any(map(_IK.fullmatch, row.details)) else ENGINE
    return {"name": name, "version": version, "build_commit": commit, "backends": row.backend}


def _model(row: LlamaBenchRow) -> dict[str, object]:
    described = _DESCRIPTION.fullmatch(row.model)
    file = str(row.details.get("model_filename", "")).replace("\\", "/")
    counts = {key: _plain(row.details.get(name)) for key, name in _EXACT.items()}
    return {
        "name": row.model or PurePosixPath(file).stem,
        "file": PurePosixPath(file).name,
        **{key: n for key, n in counts.items() if isinstance(n, int) and n > 0},
        **_sizes(row),
        **(described.groupdict() if described else {}),
    }


def _sizes(row: LlamaBenchRow) -> dict[str, str]:
    """Bytes and parameters as its table has them: they tell models of one name apart."""
    size, params = (_plain(row.details.get(name)) for name in _EXACT.values())
    found = {key: str(row.details.get(key, "")) for key in ("size", "params")}
    if isinstance(size, int):
        gib = size >= 2**30
        found["size"] = f"{size / 2**30:.2f} GiB" if gib else f"{size / 2**20:.2f} MiB"
    if isinstance(params, int):
        many = params >= 10**9
        found["params"] = f"{params / 1e9:.2f} B" if many else f"{params / 1e6:.2f} M"
    return found
