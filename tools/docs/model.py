"""The performance model: the models that it knows, and its constants."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from markdown import code, link, number, table

_DATA = resources.files("nixwulf") / "data" / "model"
_SHARES = ("weights", "cache", "compute", "attention")
_WHOLE = 100
_TIMES = ("layer_us", "hop_us", "sync_us")
_CONSTANTS = """# Constants of the performance model

Fitted to the published numbers by `tools/fit_model.py`; [model.md](../model.md) says what each
part is. Shares are of the memory's bandwidth (weights, cache) and of the nominal compute
(compute, attention), times are microseconds of the host. In brackets is the standard deviation of
the logarithm (0.1: about 10 %). With no cases the values are what other engines and devices have.
A line with a back end or kernels (int4, nvfp4, mxfp4, or about how many bits a weight has) is of
those alone.

"""
_SPREADS = """
What constants leave: the standard deviation of the logarithm of a speed whose source had no part in
the fit, and what is added in squares where the chip, or the model on that engine, had none, or
where at most one published configuration of the engine, chip, split and kernels had.
`driver/nixwulf/data/model/constants.toml` names those that had.

"""
_RESULTS = Path(__file__).parents[2] / "results" / "model"
_SCORES = """# Scores of the performance model

What `tools/score_model.py` printed; [model.md](../model.md) says how to read it. Each source is
left out of constants and intervals in turn. [Every point](points.md).
"""
_POINTS = """# Predicted against measured

Every published speed that the model can be asked for, beside what the shipped constants say of it
(tok/s, the 80 % interval in brackets). They had a part in those constants; [scores.md](scores.md)
has what is said of sources that had none.

"""
_MODELS = """# Models with known facts

`predict --model NAME --quant Q4_K_M` and `tune --facts-of NAME` take these, and names that
contain an alias. Keys: [models-file.md](models-file.md).

"""


def pages() -> dict[str, str]:
    """The pages of constants, of models and of scores."""
    return {
        "scores.md": _scores(),
        "points.md": _POINTS + table(["case", "measured", "predicted", "", "source"], _points()),
        "constants.md": _CONSTANTS
        + table(["engine", "device", "of", "cases", *_SHARES, *_TIMES], _constants())
        + _SPREADS
        + table(["", "source", "chip", "model", "few published"], _spreads()),
        "models.md": _MODELS
        + table(["model", "layers", "parameters", "active", "experts", "source"], _models()),
    }


def _scores() -> str:
    output = (_RESULTS / "score.txt").read_text(encoding="utf-8")
    known = tomllib.loads((_RESULTS / "known.toml").read_text(encoding="utf-8"))
    parts = [_SCORES, f"```text\n{output.rstrip()}\n```\n"]
    parts += ["## Where it is wrong, and what fact is missing\n"]
    parts += [table(["published", "off", "missing"], known["wrong"])]
    parts += ["## What was tried and did not help\n"]
    parts += [table(["tried", "why not"], known["tried"])]
    return "\n".join(parts)


def _constants() -> Iterator[list[str]]:
    for engine, devices in _toml("constants.toml")["engines"].items():
        for device, values in devices.items():
            for part, own in {"": values, **values.get("variants", {})}.items():
                if part and not own["cases"]:
                    continue
                shown = [_constant(own, name) for name in (*_SHARES, *_TIMES)]
                yield [engine, device, part, str(own["cases"]), *shown]


def _points() -> Iterator[list[str]]:
    with (_RESULTS / "points.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            interval = f"({row['low']} to {row['high']})"
            inside = float(row["low"]) <= float(row["measured"]) <= float(row["high"])
            said = f"{row['predicted']} {interval}"
            outside = "" if inside else "outside"
            yield [row["case"], row["measured"], said, outside, link(row["source"])]


def _spreads() -> Iterator[list[str]]:
    for name, parts in _toml("constants.toml")["spread"].items():
        yield [name.replace("_", ", "), *(f"{one:.2f}" for one in parts.values())]


def _constant(values: dict[str, Any], name: str) -> str:
    if name not in values:
        return ""
    deviation = values[name].get("deviation")
    value = values[name]["value"]
    shown = f"{value:.0f}" if value >= _WHOLE else f"{value:.3g}"
    return shown + (f" ({deviation:.2f})" if deviation is not None else "")


def _models() -> Iterator[list[str]]:
    for one in _toml("models.toml")["models"]:
        experts = f"{one['experts_used']} of {one['experts']}" if "experts" in one else ""
        active = f"{number(one['active_b'])}e9" if "active_b" in one else ""
        source = link(one.get("source", ""))
        yield [
            code(one["name"]),
            str(one["layers"]),
            f"{number(one['parameters_b'])}e9",
            active,
            experts,
            source,
        ]


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_DATA / name).read_text("utf-8"))
