"""Figures of what was measured: quality.txt, and cpu-reference.txt of two back ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nixwulf.sweep.references import CPU_LIMIT, FACTOR, LEAST_LIMIT, MOST_LIMIT

FIGURES = Path(__file__).parents[2] / "results" / "figures"
Row = dict[str, Any]


def report(rows: Sequence[Row]) -> None:
    """Write those of which there are rows."""
    compared = [row for row in rows if row["part"] in {"backends", "damaged backends"}]
    if compared:
        _write("cpu-reference.txt", _cpu_reference(compared))
    if len(compared) < len(rows):
        _write("quality.txt", _quality(rows))


def _write(name: str, lines: Sequence[str]) -> None:
    (FIGURES / name).write_text("\n".join(lines).rstrip() + "\n")
    print("\n".join(lines))


def _quality(rows: Sequence[Row]) -> list[str]:
    honest = [row for row in rows if row["part"] == "honest"]
    damages = [row for row in rows if row["part"] == "damages"]
    return [
        "How far apart texts are that are right, and texts that are wrong",
        f"measured {datetime.now(UTC):%Y-%m-%d}, tests/quality; mean divergence of a prompt, nats",
        "llama.cpp on the CPU of one machine, nodes over loopback; no vLLM, no MLX, no GPU;",
        "random weights by the driver's recipe, sharp ones attend to few tokens.",
        "",
        f"Limit: {LEAST_LIMIT:g}, or {FACTOR:g} times the floor where that is more, "
        f"up to {MOST_LIMIT:g}.",
        "",
        *_honest(honest),
        "",
        *_damages(damages),
        "",
        *_speed(rows),
    ]


def _cpu_reference(rows: Sequence[Row]) -> list[str]:
    """One back end beside the CPU of the same build: honest, by the cache's type, and damaged."""
    honest = [row for row in rows if row["part"] == "backends"]
    damaged = [row for row in rows if row["part"] == "damaged backends"]
    found = sum(row["mean_divergence"] > CPU_LIMIT for row in damaged)
    lines = [
        "How far apart the text of a back end is from that of the CPU of the same build",
        f"measured {datetime.now(UTC):%Y-%m-%d}, tests/quality; mean divergence after 64 tokens,",
        "nats; no GPU but Mesa's llvmpipe; the models of quality.txt, three seeds. Weights in f32",
        "are the same values, with which the CPU does not quantize what they are multiplied by.",
        "",
        f"Limit: {CPU_LIMIT:g}; caches of less than 8 bits are not held against the CPU.",
        "",
        f"{'run':36} {'runs':>5} {'median':>8} {'largest':>8} {'position':>9}  the largest",
    ]
    for (what,) in sorted(_values(honest, "what")):
        some = [row for row in honest if row["what"] == what]
        worst = max(some, key=lambda row: row["mean_divergence"])
        lines.append(
            f"{what:36} {len(some):5} {_median(some):8.1e} {worst['mean_divergence']:8.1e} "
            f"{max(row['largest_divergence'] for row in some):9.1e}  "
            f"{worst['kind']} {worst['weights']}"
        )
    lines += ["", f"Damages by Vulkan: {len(damaged)}; found: {found}.", ""]
    lines.append(f"{'damage of':22} {'runs':>5} {'found':>6} {'least':>8} {'median':>8}  the least")
    for (group,) in _values(damaged, "group"):
        some = [row for row in damaged if row["group"] == group]
        least = min(some, key=lambda row: row["mean_divergence"])
        lines.append(
            f"{group:22} {len(some):5} {sum(r['mean_divergence'] > CPU_LIMIT for r in some):6} "
            f"{least['mean_divergence']:8.1e} {_median(some):8.1e}  "
            f"{least['kind']} {least['weights']}, {least['what']}"
        )
    return lines


def _median(rows: Sequence[Row]) -> float:
    return statistics.median(row["mean_divergence"] for row in rows)


def _honest(rows: Sequence[Row]) -> list[str]:
    runs = {_run(row) for row in rows}
    wrong = {_run(row) for row in rows if row["wrong"]}
    parted = {_run(row) for row in rows if "first_difference" in row}
    lines = [
        f"Honest runs: {len(runs)}; called gibberish: {len(wrong)}.",
        f"Greedy tokens differ in {len(parted)} of them, which by tokens alone were gibberish.",
        "",
        f"{'weights':8} {'tokens':>7} {'runs':>5} {'largest mean':>13} {'one position':>13} "
        f"{'floor':>8}  run",
    ]
    for weights, tokens in _values(rows, "weights", "tokens"):
        some = [r for r in rows if (r["weights"], r["tokens"]) == (weights, tokens)]
        worst = max(some, key=lambda row: row["mean_divergence"])
        lines.append(
            f"{weights:8} {tokens:7} {len(some):5} {worst['mean_divergence']:13.1e} "
            f"{max(row['largest_divergence'] for row in some):13.1e} "
            f"{max(row['floor'] for row in some):8.1e}  {worst['kind']}, {worst['what']}"
        )
    return lines


def _damages(rows: Sequence[Row]) -> list[str]:
    found = sum(row["wrong"] for row in rows)
    lines = [
        f"Damages: {len(rows)}; found: {found}.",
        "",
        f"{'damage of':22} {'runs':>5} {'found':>6} {'least mean':>11} {'median':>8}  the least",
    ]
    for (group,) in _values(rows, "group"):
        some = [row for row in rows if row["group"] == group]
        least = min(some, key=lambda row: row["mean_divergence"])
        median = statistics.median(row["mean_divergence"] for row in some)
        lines.append(
            f"{group:22} {len(some):5} {sum(row['wrong'] for row in some):6} "
            f"{least['mean_divergence']:11.1e} {median:8.1e}  "
            f"{least['kind']} {least['weights']}, {least['what']}"
        )
    missed = [row for row in rows if not row["wrong"]]
    lines += [f"missed: {row['kind']} {row['weights']}, {row['what']}" for row in missed]
    return lines


def _speed(rows: Sequence[Row]) -> list[str]:
    return [
        f"A reference of {row['tokens']:,} tokens took {row['seconds']:.0f} s ({row['weights']}, "
        "one thread of a machine with other load)."
        for row in rows
        if row["part"] == "speed"
    ]


def _run(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("kind", "weights", "seed", "what"))


def _values(rows: Iterable[Row], *keys: str) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))
