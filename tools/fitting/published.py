"""Rows of the table of published numbers as cases of the model, or why a row is none.

The columns are those of results/published/numbers.csv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from math import isfinite, nan
from pathlib import Path
from statistics import median
from typing import Any

from fitting.machines import fabric_of, machine_of, platforms_of
from fitting.reviewed import plain
from nixwulf.core.errors import InputError
from nixwulf.core.files import read_text
from nixwulf.llm.catalog import find, weights_of
from nixwulf.llm.model_facts import ModelFacts, Weights
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy, day_of
from nixwulf.perf.work import Configuration, decode_step, forward, tokens_a_step

COLUMNS = [
    "id",
    "platform",
    "nodes",
    "interconnect",
    "transport",
    "engine",
    "parallelism",
    "model",
    "quant",
    "model_size_gib",
    "metric",
    "value",
    "unit",
    "n_prompt",
    "n_gen",
    "note",
]
_ENGINES = (
    ("distributed-llama", "distributed-llama"),
    ("vllm", "vllm"),
    ("exo", "mlx"),
    ("mlx", "mlx"),
    ("MLX", "mlx"),
    ("llama.cpp", "llama.cpp"),
    ("ollama", "llama.cpp"),
)
_BACKENDS = ("vulkan", "rocm", "cuda", "metal")
# Of a measured bandwidth: the best row of one sequence reads 1.07 of it.
_MOST = 1.15
_NEWEST = date(2026, 9, 30)
_DECODE = {"tg", "tg128", "tpot_ms"}


@dataclass(frozen=True)
class Case:
    """Published rows of one configuration: their ids and values in tok/s, and the median.

    complete: whether its quantization and lengths are stated, so that the value can be judged.
    deviation: the standard deviation of its repetitions as a share of the value, if that is stated.
    sources: who measured its rows; versions: of the engine, as far as rows state them. age: years
    from its build or day to the newest that is known here; of one without either as if a year.
    """

    rows: tuple[tuple[str, float], ...]
    value: float
    machine: str
    platforms: tuple[PlatformFacts, ...]
    model: ModelFacts
    strategy: Strategy
    fabric: FabricFacts | None
    metric: str
    interconnect: str
    complete: bool
    deviation: float = 0.0
    sources: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    age: float = 1.0

    @property
    def ids(self) -> tuple[str, ...]:
        """Of its rows."""
        return tuple(one for one, _ in self.rows)

    @property
    def values(self) -> tuple[float, ...]:
        """Of its rows."""
        return tuple(value for _, value in self.rows)

    @property
    def nodes(self) -> int:
        """How many."""
        return len(self.platforms)

    @property
    def roofline(self) -> float:
        """Bandwidth over a token's bytes, for tensors times the nodes: tok/s of the batch."""
        single = replace(self.strategy, parallelism="single")
        alone = Configuration(self.platforms[:1], self.model, single, None)
        work = forward(alone, tokens=1, sequences=1, depth=0)
        nodes = self.nodes if self.strategy.parallelism == "tensor" else 1
        return nodes * tokens_a_step(self.strategy) / work.weights

    @property
    def label(self) -> str:
        """In a few words."""
        strategy = self.strategy
        extra = "".join(
            f" {name} {value}"
            for name, value, usual in (
                ("batch", strategy.batch, 1),
                ("depth", strategy.depth, 0),
                ("drafts", strategy.drafts, 0),
            )
            if value != usual
        )
        link = f" {self.fabric.transport}" if self.fabric else ""
        return (
            f"{self.machine} x{self.nodes}{link} {strategy.engine} {strategy.parallelism} "
            f"{self.model.name} {self.model.weights.routed_bits:.1f} bit {self.metric}{extra}"
        )


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV with the table's columns; raises InputError that names a column it lacks.

    Rows that say what another row says (same_as) are left out.
    """
    rows = list(csv.DictReader(read_text(path).splitlines()))
    missing = [column for column in COLUMNS if not rows or column not in rows[0]]
    if missing:
        raise InputError(
            f"{path}: lacks {', '.join(missing)}; expected the columns of "
            "results/published/numbers.csv."
        )
    return [plain(row) for row in rows if not row.get("same_as")]


def cases(rows: Iterable[Mapping[str, str]]) -> tuple[list[Case], dict[str, str]]:
    """Cases of the rows that are speeds of language models, and by id why other such are none."""
    found: dict[Any, list[tuple[str, float]]] = {}
    deviations: dict[Any, list[float]] = {}
    sources: dict[Any, set[str]] = {}
    versions: dict[Any, set[str]] = {}
    ages: dict[Any, list[float]] = {}
    left_out: dict[str, str] = {}
    for row in rows:
        if row["unit"] not in {"tok/s", "ms"} or row["metric"] == "ttft_ms":
            continue
        try:
            key, value = _parse(row)
            share = _number(row, "stddev") / _number(row, "value")
        except InputError as error:
            left_out[row["id"]] = error.message
        else:
            key = (*key, row.get("source", ""))
            found.setdefault(key, []).append((row["id"], value))
            deviations.setdefault(key, []).append(share)
            sources.setdefault(key, set()).add(row.get("source", ""))
            versions.setdefault(key, set()).add(row.get("engine_version", ""))
            ages.setdefault(key, []).append(_age(row))
    made = [
        replace(
            Case(tuple(seen), median(value for _, value in seen), *key[:-1]),
            deviation=median(deviations[key]),
            sources=frozenset(sources[key] - {""}),
            versions=frozenset(versions[key] - {""}),
            age=min(ages[key]),
        )
        for key, seen in found.items()
    ]
    return [replace(c, strategy=replace(c.strategy, age=c.age)) for c in made], left_out


def hpl_cases(
    rows: Iterable[Mapping[str, str]],
) -> list[tuple[str, PlatformFacts, int, FabricFacts, float]]:
    """Id, platform, nodes, link and Gflop/s of HPL on several nodes of machines that are known."""
    found = []
    for row in rows:
        if row["metric"] != "hpl_gflops":
            continue
        try:
            nodes = int(_number(row, "nodes", 1))
            machine = machine_of(row["platform"])
            platform = platforms_of(machine)[0]
            if nodes > 1 and platform.hpl_gflops and platform.memory_gib:
                link = fabric_of(row, machine)
                found.append((row["id"], platform, nodes, link, _number(row, "value")))
        except InputError:
            continue
    return found


def _parse(row: Mapping[str, str]) -> tuple[Any, float]:
    note, value = row["note"], _number(row, "value")
    machine = machine_of(row["platform"])
    engine = next((ours for word, ours in _ENGINES if word in row["engine"]), None)
    if engine is None:
        raise InputError(f"engine {row['engine']!r} has no model")
    known = platforms_of(machine)
    if "on CPU" in note and known[0].kind != "cpu":
        raise InputError("computed on the CPU of a machine whose GPU is what the facts are about")
    model = replace(find(row["model"]), assumptions=())
    size = _number(row, "model_size_gib")
    weights, complete = _weights(row, model, size)
    model = model.quantized(weights)
    metric, strategy = _way(row, engine)
    if value <= 0:
        raise InputError(f"its value {row['value']!r} is no speed")
    if row["unit"] == "ms":
        value = 1000 * strategy.batch / value
    nodes = int(_number(row, "nodes", 1))
    if engine == "distributed-llama" and "8 of 10" in row["engine"]:
        nodes = 8
    platforms = tuple(known) if len(known) > 1 else tuple(known * nodes)
    memory = sum(platform.memory_gib for platform in platforms)
    needed = model.weight_bytes / 2**30
    if all(platform.memory_gib for platform in platforms) and needed > memory:
        raise InputError(f"{needed:.0f} GiB of weights are more than {memory:.0f} GiB of memory")
    fabric = fabric_of(row, machine) if nodes > 1 else None
    # How many experts a batch touches is not known well enough to doubt its row.
    if complete and metric == "decode" and (strategy.batch == 1 or not model.routed):
        step = decode_step(Configuration(platforms, model, strategy, fabric))
        if value * (step.weights + step.cache) > _MOST * tokens_a_step(strategy):
            raise InputError("faster than its memory: its weights have fewer bits than it says")
    return (
        (
            machine["name"],
            platforms,
            model,
            strategy,
            fabric,
            metric,
            row["interconnect"],
            complete,
        ),
        value,
    )


def _age(row: Mapping[str, str]) -> float:
    """Years before _NEWEST; of a row without a build and a day as if one."""
    day = row_day(row)
    return max(0.0, (_NEWEST - day).days / 365) if day else 1.0


def row_day(row: Mapping[str, str]) -> date | None:
    """When its software was of."""
    return day_of(row.get("engine_version", ""), row.get("date", ""))


def _weights(row: Mapping[str, str], model: ModelFacts, size: float) -> tuple[Weights, bool]:
    """The weights, and whether the row says enough of it and of what it counts to be judged."""
    counts = "total" not in row["note"]
    if "not stated" not in row["quant"]:
        try:
            return weights_of(f"{row['quant']} {row['model']}", model, size), counts
        except InputError:
            if row["quant"]:
                raise
    # What is not stated is no fact: such rows only tell which of two ways is faster.
    return weights_of("Q8_0", model, size), False


def _number(row: Mapping[str, str], column: str, default: float = 0.0) -> float:
    text = row.get(column, "")
    try:
        number = float(text or default)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise InputError(f"its {column} {text!r} is no number")
    return number


def _way(row: Mapping[str, str], engine: str) -> tuple[str, Strategy]:
    """The metric and the way; raises InputError where a row does not say what the model needs."""
    note, name = row["note"], row["metric"]

    def number(pattern: str) -> float | None:
        found = re.search(pattern, note)
        return float(found[1]) if found else None

    n_prompt, n_gen = int(_number(row, "n_prompt")), int(_number(row, "n_gen"))
    batch = int(
        number(r"(?:batch=|concurrency |\bC=|max_num_seqs=)(\d+)") or number(r"\bc(\d+)\b") or 1
    )
    batch = min(batch, int(number(r"num_prompts=(\d+)") or batch))
    if name.startswith("pp"):
        metric = "prompt"
    elif name in _DECODE or (name == "tput_agg" and "total" not in note):
        metric = "serve" if "output tok/s" in note else "decode"
    elif name == "tput_agg":
        # Prompts of a chat's usual length, tokens of both counted: good for a direction only.
        metric, n_prompt, n_gen, batch = "serve", 256, 256, 64
    else:
        raise InputError(f"metric {name!r} is no speed that the model has")
    if name == "tput_agg" and n_prompt and not n_gen:
        metric = "serve"
    if metric == "serve" and not (n_prompt and n_gen):
        raise InputError("prompts or answers of unknown length are in its time")
    drafts, acceptance = 0, 0.0
    speculates = re.search(r"MTP|speculative|num_spec|spec$", f"{note}{row['quant']}")
    if speculates and "no spec" not in note and metric != "prompt":
        drafts = int(number(r"MTP ?(\d)") or number(r"num_spec=(\d+)") or 0)
        share = number(r"acceptance (\d+(?:\.\d+)?)%")
        if not drafts or share is None:
            raise InputError("it guesses tokens ahead, and how many were kept is not stated")
        acceptance = share / 100
    backend = next((b for b in _BACKENDS if b in row.get("backends", "").lower()), "")
    summed_by = re.search(r"\b(rccl)\b", f"{row['engine']} {note}", re.IGNORECASE)
    graphs = None
    if engine == "vllm" and (drafts or "graphs" in note or "eager" in note):
        graphs = "eager" not in note
    return metric, Strategy(
        engine,
        row["parallelism"] if _number(row, "nodes", 1) > 1 else "single",
        n_prompt=n_prompt if metric != "decode" else 0,
        n_gen=n_gen or 128,
        # llama-benchy and batched-bench decode behind a prompt.
        depth=int(number(r"depth=(\d+)") or (n_prompt if metric == "decode" else 0)),
        batch=batch,
        drafts=drafts,
        acceptance=acceptance,
        graphs=graphs,
        chunk=int(number(r"\bub=(\d+)") or 0),
        backend=backend if engine == "llama.cpp" and backend in _BACKENDS[:2] else "",
        collectives="rccl" if summed_by and engine == "llama.cpp" else "",
        version=row.get("engine_version", "") if engine == "distributed-llama" else "",
    )
