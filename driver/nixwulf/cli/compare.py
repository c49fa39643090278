"""nixwulf compare: whether B is faster or slower than A, under equal conditions."""

from __future__ import annotations

from pathlib import Path

import click

from nixwulf.cli.options import FilePath, fail_below, print_form, table_format


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--in",
    "folder",
    metavar="DIR",
    type=FilePath(),
    default="results",
    show_default=True,
    help="Where queries choose from.",
)
@click.option(
    "--over",
    multiple=True,
    metavar="KEY",
    help="Dimension to compare across: fabric, model, depth, ...; repeatable.",
)
@fail_below("Exit with 1 when B is shown to be below this share of A, such as 0.95, or failed.")
@table_format
@click.pass_context
def compare(
    ctx: click.Context,
    a: str,
    b: str,
    folder: Path,
    over: tuple[str, ...],
    limit: float | None,
    form: str,
) -> None:
    """Compare B with A where all conditions are equal.

    A and B are records, run folders, folders of those, or queries.

    \b
    Examples:
      nixwulf compare runs/before runs/after
      nixwulf compare runs/before runs/after --fail-below 0.95
      nixwulf compare fabric=lan fabric=cable --in runs/first --over fabric
      nixwulf compare platform=dgx-spark platform=framework-desktop --over platform
    """
    from nixwulf.results.compare import comparison, render
    from nixwulf.results.compare.pairs import read_side

    compared = comparison.compare(read_side(a, folder), read_side(b, folder), over)
    print_form(form, render, compared, limit)
    if limit is not None:
        ctx.exit(compared.exit_code(limit))
