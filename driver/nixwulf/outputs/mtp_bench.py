"""mtp-bench's JSON: decode speed of llama-server by prompt, with or without drafted tokens.

https://github.com/kyuz0/amd-strix-halo-toolboxes/tree/main/benchmark
"""

from __future__ import annotations

from nixwulf.core.metric import Metric
from nixwulf.core.secrets import cut
from nixwulf.outputs import Found, ParseError, Tool, json_object, model_of

ENGINE = "llama.cpp"
_TOOL = "mtp-bench"
_HUGE = 1e300


def recognises(text: str) -> bool:
    """The keys that no other tool's JSON has together."""
    return '"spec_flags"' in text and '"predicted_per_second"' in text


def read(text: str) -> list[Found]:
    """Decode of the prompts, a sample each; mode: how tokens were drafted ('baseline': not)."""
    document = json_object(_TOOL, text)
    results = document.get("results")
    if not results or not isinstance(results, list) or {*map(type, results)} != {dict}:
        raise ParseError(f"{_TOOL}: no results, expected a list of prompts with their speeds.")

    def each(key: str) -> list[float]:
        return [_number(entry, key, index) for index, entry in enumerate(results)]

    keys = {"predicted": "predicted_n", "drafted": "draft_n", "accepted": "draft_n_accepted"}
    tokens = {name: sum(map(int, each(key))) for name, key in keys.items()}
    observed: dict[str, object] = {**tokens}
    if drafted := tokens["drafted"]:
        observed["acceptance"] = f"{100 * tokens['accepted'] / drafted:.1f} %"
    speeds = tuple(each("predicted_per_second"))
    observed["prompts"] = ", ".join(str(entry.get("name", "")) for entry in results)
    conditions = {"mode": str(document.get("mode", ""))}
    decode = Metric("decode", "tok/s", speeds, conditions=conditions, observed=observed)
    model = model_of(str(document.get("model", "")))
    return [Found(_TOOL, [decode], engine={"name": ENGINE}, model=model)]


TOOL = Tool(_TOOL, recognises, read)


def _number(entry: dict[str, object], key: str, index: int) -> float:
    value = entry.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _HUGE:
        raise ParseError(
            f"{_TOOL}: {key} of result {index} is {cut(str(value), 40)!r}, expected a number."
        )
    return float(value)
