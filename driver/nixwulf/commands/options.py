"""Options that several commands have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

table_format = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "json"]),
    default="table",
    show_default=True,
)


def fail_below(words: str) -> Callable[[Any], Any]:
    """The option --fail-below of a comparison, with its help."""
    return click.option(
        "--fail-below",
        "limit",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        metavar="RATIO",
        help=words,
    )


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """What a range of floats lets through: nothing is below what is no number."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value!r} is no ratio; give one such as 0.95.", ctx, parameter)
    return value
