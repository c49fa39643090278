"""llama-bench: prompt and decode of llama.cpp, as the benchmark of that name measures them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from nixwulf.outputs import llama_bench as parser
from nixwulf.outputs.importers import Found, Nodes, Tool, exactly, metric, told_apart
from nixwulf.outputs.last_words import last_words
from nixwulf.outputs.llama_bench import LlamaBenchRow

# Columns of its table by the keys that its JSON has for them.
_KEYS = {
    "threads": "n_threads",
    "ngl": "n_gpu_layers",
    "fa": "flash_attn",
    "sm": "split_mode",
    "mg": "main_gpu",
    "ts": "tensor_split",
    "nkvo": "no_kv_offload",
    "mmap": "use_mmap",
    "dio": "use_direct_io",
    "embd": "embeddings",
    "ncmoe": "n_cpu_moe",
}
# What the benchmark of this driver has as conditions, and what speeds depend on as much.
_ALWAYS = ("n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "flash_attn")
# No settings: of the machine, the build, the model and the result.
_NO_SETTING = re.compile(
    r"build_.*|.*_info|backends?|model.*|size|params|test.*|t/s|dev|devices|n_(prompt|gen|depth)"
    r"|(avg|stddev|samples)_.*"
)
# 'qwen3moe 235B.A22B Q2_K - Medium': architecture, size, weights.
_DESCRIPTION = re.compile(r"(?P<architecture>\S+) \S+ (?P<weights>.+)")
_BACKTRACE = re.compile(r"^#\d+ +0x[0-9a-f]+ in ", re.MULTILINE)
_PARALLELISM = {"layer": "pipeline", "row": "tensor", "tensor": "tensor"}


def _read(text: str) -> list[Found]:
    groups: dict[tuple[Any, ...], list[LlamaBenchRow]] = {}
    for row in parser.parse(text):
        file = row.details.get("model_filename")
        split = _settings(row).get("split_mode", "layer")
        key = (row.model, file, row.backend, row.rpc_servers, split, row.build_commit)
        groups.setdefault(key, []).append(row)
    warnings = _warnings(text)
    return [_case(rows, warnings) for rows in groups.values()]


TOOL = Tool("llama-bench", parser, _read)


def _warnings(text: str) -> tuple[str, ...]:
    """What was printed whole before a crash is kept, with a warning."""
    failure, lines = last_words(text), text.splitlines()
    if failure != ".":
        return (f"The output tells of a failure{failure}",)
    crashed = _BACKTRACE.search(text) or ("[" in lines and "]" not in lines)
    return ("llama-bench ended before its end, after these results.",) if crashed else ()


def _case(rows: Sequence[LlamaBenchRow], warnings: tuple[str, ...]) -> Found:
    first = rows[0]
    split = str(_settings(first).get("split_mode", "layer"))
    reported = [_settings(row) for row in rows]
    differing = {key for one in reported for key in one if len({o.get(key) for o in reported}) > 1}
    # A table has a column for what was not left at its default; JSON has all there is.
    shown = {*_ALWAYS, *differing} if "model_filename" in first.details else None
    return Found(
        "llama-bench",
        told_apart(_metric(row, shown) for row in rows),
        nodes=_nodes(first),
        engine=_engine(first),
        model=_model(first),
        parallelism=_PARALLELISM.get(split),
        warnings=warnings,
    )


def _nodes(row: LlamaBenchRow) -> Nodes:
    """The head and a node for each RPC server, one of which the head may run itself."""
    if row.rpc_servers is None:
        return Nodes(why="its build has RPC, and no line names a server")
    if row.rpc_servers == 0:
        return exactly(1, f"the backend {row.backend} and no RPC server")
    servers = row.rpc_servers
    if row.backend == "RPC":
        why = f"{servers} RPC servers and no device of its own: the head may run one of them"
        return Nodes(None, servers, servers + 1, why)
    return Nodes(servers + 1, max(2, servers), servers + 1, f"{servers} RPC servers and the head")


def _metric(row: LlamaBenchRow, shown: set[str] | None) -> Mapping[str, Any]:
    settings = _settings(row)
    sizes = {"n_prompt": row.n_prompt, "n_gen": row.n_gen, "n_depth": row.n_depth}
    kept = {key: value for key, value in settings.items() if shown is None or key in shown}
    return metric(
        row.metric,
        "tok/s",
        row.mean,
        samples=row.samples,
        stddev=row.deviation,
        conditions=sizes | {key: value for key, value in kept.items() if key != "split_mode"},
    )


def _settings(row: LlamaBenchRow) -> dict[str, Any]:
    return {
        _KEYS.get(key, key): _plain(value)
        for key, value in row.details.items()
        if not _NO_SETTING.fullmatch(key) and isinstance(value, int | float | str)
    }


def _plain(value: Any) -> Any:
    """Numbers as such: a table and CSV have texts, and JSON has true for a table's 1."""
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value) else value


def _engine(row: LlamaBenchRow) -> dict[str, Any]:
    commit = row.build_commit if row.build_commit != "unknown" else ""
    version = f"b{row.build_number}" if row.build_number else ""
    return {
        "name": "llama.cpp",
        "version": version,
        "build_commit": commit,
        "backends": row.backend,
    }


def _model(row: LlamaBenchRow) -> dict[str, Any]:
    described = _DESCRIPTION.fullmatch(row.model)
    file = str(row.details.get("model_filename", "")).replace("\\", "/")
    exact = {"bytes": "model_size", "parameters": "model_n_params"}
    counts = {key: _plain(row.details.get(name)) for key, name in exact.items()}
    return {
        "name": row.model,
        "file": PurePosixPath(file).name,
        **{key: n for key, n in counts.items() if isinstance(n, int) and n > 0},
        **(described.groupdict() if described else {}),
    }
