"""nixwulf site: a static site of records."""

from __future__ import annotations

from pathlib import Path

import click

from nixwulf.cli.options import FilePath


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=FilePath())
@click.option(
    "--out",
    required=True,
    type=FilePath(),
    help="Folder of the site, which is replaced as a whole; it must be new, empty, or a site.",
)
def site(paths: tuple[Path, ...], out: Path) -> None:
    """Make a static site of all records in PATHs: files, run folders, folders of those.

    \b
    Examples:
      nixwulf site results/ --out site
      nixwulf site results/ runs/first --out site
    """
    from nixwulf.core.files import find_results
    from nixwulf.core.text import plural
    from nixwulf.report.site import make

    made = make(list(map(find_results, paths)), out)
    if made.unscrubbed:
        click.echo(
            f"{plural(made.unscrubbed, 'run')} in it may hold addresses and host names: before "
            "you put the site online, use what 'nixwulf publish' makes of them instead.",
            err=True,
        )
    click.echo(f"{plural(made.values, 'value')} of {plural(made.records, 'record')}.", err=True)
    click.echo(out / "index.html")
