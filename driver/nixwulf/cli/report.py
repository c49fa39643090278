"""nixwulf report: what a run folder holds, as a page, Markdown, a table or a plot."""

from __future__ import annotations

from pathlib import Path

import click

from nixwulf.cli.options import FilePath


@click.command()
@click.argument("folder", metavar="DIR", type=FilePath())
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "csv", "json", "svg"]),
    default="html",
    show_default=True,
    help="html (with Markdown beside it) is written into DIR; the others are printed, svg being "
    "the plot of decode against the measured round trip.",
)
def report(folder: Path, form: str) -> None:
    """Report on the runs in DIR, which 'nixwulf bench' wrote.

    \b
    Examples:
      nixwulf report runs/first
      nixwulf report runs/first --format md >issue.md
      nixwulf report runs/first --format svg >decode.svg
    """
    from nixwulf.report import panels, summary_of, text, write

    summary = summary_of(folder)
    if form == "html":
        click.echo(write(summary))
        return
    if form == "md":
        made = text.to_markdown(summary)
    elif form == "svg":
        made = panels.decode_by_rtt(summary)
    else:
        made = (text.to_csv if form == "csv" else text.to_json)(summary.folder.records)
    click.echo(made, nl=False)
