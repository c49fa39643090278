"""Explanations in sentences: short, with numbers and their units."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.core.text import format_significant, plural
from nixwulf.perf.explain.explanation import Explained
from nixwulf.perf.explain.sensitivity import Help
from nixwulf.perf.scenarios.bar import LETTERS, shares
from nixwulf.perf.scenarios.text import percent, speed

NOTICED = "Noticed"
"""Begins what is odd in a record of a speed that is not low; once a case is enough."""


def case(told: Explained) -> str:
    """'tiny, 2 nodes, tensor, gbe5, tcp'."""
    one = told.case
    model, engine = one.get("model", "no model named"), one.get("engine", "no engine named")
    link = [one[key] for key in ("parallelism", "fabric", "transport") if key in one]
    several = one["nodes"] > 1
    nodes = plural(one["nodes"], "node")
    return f"{model} by {engine}, {', '.join([nodes, *link] if several else [nodes])}"


def measured(told: Explained) -> str:
    """'measured 46.0, predicted ~27.3 (14.3 to 52.2) tok/s: as predicted'."""
    runs = f" (mean of {told.runs} runs)" if told.runs > 1 else ""
    text = f"measured {format_significant(told.measured)}{runs}"
    if told.prediction is None:
        return f"{text} tok/s"
    return f"{text}, predicted {speed(told.prediction)} tok/s: {told.verdict}"


def sentences(told: Explained) -> Iterator[str]:
    """What there is to say beside the numbers."""
    if told.prediction is None:
        yield told.why_not
        yield from told.clues
        return
    yield from _flags(told)
    yield from advice(told)


def advice(told: Explained) -> Iterator[str]:
    """The bottleneck, what would help and what would not; nothing without a prediction."""
    if told.prediction is None:
        return
    parts = shares(told.prediction.parts)
    largest = max(parts, key=lambda name: parts[name])
    yield f"Bottleneck: {LETTERS[largest][1]}, {100 * parts[largest]:.0f} % of the predicted time."
    good = [one for one in told.helps if one.enough]
    yield f"Would help: {_list(good)}." if good else "None of these changes would help by 5 %:"
    useless = [one for one in told.helps if not one.enough]
    if useless:
        yield f"Would not: {_list(useless)}." if good else f"{_list(useless)}."


def _flags(told: Explained) -> Iterator[str]:
    prediction, clues = told.prediction, told.clues
    if prediction is None:
        return
    ratio = told.measured / prediction.value
    if told.verdict == "cannot be right":
        yield (
            f"Cannot be right: {format_significant(told.measured)} tok/s is above "
            f"{format_significant(told.roof or 0)}, what the hardware can at its nominal best: is "
            "the model, its quantization or the number of sequences another, or are tokens guessed "
            "ahead?"
        )
    elif told.measured < prediction.low:
        much = "half of the least that was predicted, or less" if told.measured <= (
            prediction.low / 2
        ) else "less than predicted"  # fmt: skip
        yield f"Slow: {100 * ratio:.0f} % of the prediction, {much}."
        if not clues and not any(one.enough for one in told.links):
            yield "Nothing in the record explains it."
    elif told.measured > prediction.high:
        where = "at" if told.roof and told.measured > told.roof else "below"
        roof = (
            f", and {where} {format_significant(told.roof)}, what the hardware can"
            if told.roof
            else ""
        )
        yield f"Fast: {format_significant(ratio)} times the prediction{roof}."
    for one in told.links:
        name = "Slow link" if one.enough else NOTICED
        yield f"{name}: {one.what}. Without that: {percent(one.factor)}."
    slow = told.measured < prediction.low
    for clue in clues:
        yield f"{'May explain it' if slow else NOTICED}: {clue}"


def _list(helps: list[Help]) -> str:
    return ", ".join(f"{one.what} {percent(one.factor)}" for one in helps)
