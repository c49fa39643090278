"""Where a time goes: a bar of letters, one for each part of a prediction."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

LETTERS: Mapping[str, tuple[str, str]] = {
    "weights": ("W", "reading weights from memory"),
    "cache": ("K", "reading the KV cache"),
    "compute": ("C", "computing"),
    "attention": ("A", "comparing a prompt's tokens with those before"),
    "activations": ("M", "memory for what a prompt's kernels hand on"),
    "dispatch": ("D", "the host starting kernels"),
    "hops": ("H", "the host handing over to the next node"),
    "sync": ("S", "the collective's own time"),
    "latency": ("L", "round trips of the link"),
    "transfer": ("T", "bytes over the link"),
}
"""By part: its letter, and what it is."""
COLOURS = {
    "weights": "bright_blue",
    "cache": "cyan",
    "compute": "green",
    "attention": "bright_green",
    "activations": "blue",
    "dispatch": "yellow",
    "hops": "magenta",
    "sync": "bright_magenta",
    "latency": "red",
    "transfer": "bright_red",
}
_SMALL = 0.01


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    """Of the whole, from 0 to 1, in the order of LETTERS."""
    whole = sum(parts.values())
    return {name: parts.get(name, 0.0) / whole for name in LETTERS}


def cells(parts: Mapping[str, float], width: int) -> dict[str, int]:
    """How many of width characters each part has: they add up, by largest remainders."""
    exact = {name: share * width for name, share in shares(parts).items()}
    found = {name: int(value) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: found[name] - exact[name])
    for name in rest[: width - sum(found.values())]:
        found[name] += 1
    return found


def rich_bar(parts: Mapping[str, float], width: int) -> Text:
    """The bar of width characters, on a terminal with colours in them."""
    bar = Text(no_wrap=True)
    for name, count in cells(parts, width).items():
        bar.append(LETTERS[name][0] * count, style=f"{COLOURS[name]} reverse")
    return bar


def percentages(parts: Mapping[str, float]) -> str:
    """'weights 84 %, hops 9 %, dispatch 7 %': from the largest; without what is below 1 %."""
    ordered = sorted(shares(parts).items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in ordered
                     if share >= _SMALL)  # fmt: skip


def legend(parts: Mapping[str, float]) -> list[str]:
    """What the letters of the parts that take time stand for, a line each."""
    return [f"{LETTERS[name][0]} {name}: {LETTERS[name][1]}" for name in LETTERS if parts.get(name)]
