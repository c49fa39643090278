"""mtp-bench's JSON: decode speed of llama-server by prompt, with or without drafted tokens.

https://github.com/kyuz0/amd-strix-halo-toolboxes/tree/main/benchmark
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from nixwulf.outputs import ParseError
from nixwulf.outputs.json_text import json_object

_TOOL = "mtp-bench"
_HUGE = 1e300


@dataclass(frozen=True)
class Prompt:
    """One prompt: tokens predicted and drafted, decode in tokens per second, wall in seconds."""

    name: str
    predicted: int
    decode: float
    wall_s: float
    drafted: int
    accepted: int


@dataclass(frozen=True)
class MtpBenchOutput:
    """One output: the model, how tokens were drafted ('baseline': not), and each prompt."""

    model: str
    mode: str
    prompts: tuple[Prompt, ...]

    @property
    def decode(self) -> float:
        """Mean over the prompts, tokens per second."""
        return statistics.fmean(prompt.decode for prompt in self.prompts)


def parse(text: str) -> MtpBenchOutput:
    """The prompts with their speeds; at least one."""
    document = json_object(_TOOL, text)
    results = document.get("results")
    if not isinstance(results, list) or not results:
        raise ParseError(f"{_TOOL}: no results, expected a list of prompts with their speeds.")
    prompts = tuple(_prompt(entry, index) for index, entry in enumerate(results))
    return MtpBenchOutput(str(document.get("model", "")), str(document.get("mode", "")), prompts)


def recognises(text: str) -> bool:
    """The keys that no other tool's JSON has together."""
    return '"spec_flags"' in text and '"predicted_per_second"' in text


def _prompt(entry: Any, index: int) -> Prompt:
    if not isinstance(entry, dict):
        raise ParseError(f"{_TOOL}: result {index} is {str(entry)[:40]!r}, expected an object.")
    return Prompt(
        name=str(entry.get("name", "")),
        predicted=int(_number(entry, "predicted_n", index)),
        decode=_number(entry, "predicted_per_second", index),
        wall_s=_number(entry, "wall_s", index),
        drafted=int(_number(entry, "draft_n", index)),
        accepted=int(_number(entry, "draft_n_accepted", index)),
    )


def _number(entry: dict[str, Any], key: str, index: int) -> float:
    value = entry.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _HUGE:
        raise ParseError(
            f"{_TOOL}: {key} of result {index} is {str(value)[:40]!r}, expected a number."
        )
    return float(value)
