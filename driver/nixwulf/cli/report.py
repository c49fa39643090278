"""nixwulf report: what a run folder holds, as a page, Markdown, a table or a plot."""

from __future__ import annotations

from pathlib import Path

import click

from nixwulf.cli.options import FilePath, formats


@click.command()
@click.argument("folder", metavar="DIR", type=FilePath())
@formats(
    *("html", "md", "csv", "json", "svg", "llama-benchy", "spark-arena"),
    words="html (with Markdown beside it) is written into DIR; the others are printed, svg being "
    "the plot of decode against the measured round trip, llama-benchy tables as that tool prints "
    "them, spark-arena the benchmark.csv of a submission there.",
)
def report(folder: Path, form: str) -> None:
    """Report on the runs in DIR, which 'nixwulf bench' wrote.

    \b
    Examples:
      nixwulf report runs/first
      nixwulf report runs/first --format md >issue.md
      nixwulf report runs/first --format svg >decode.svg
      nixwulf report runs/first --format llama-benchy >post.md
    """
    from nixwulf.report import panels, posted, summary_of, text, write

    summary = summary_of(folder)
    if form == "html":
        click.echo(write(summary))
        return
    if form == "md":
        made = text.to_markdown(summary)
    elif form == "svg":
        made = panels.decode_by_rtt(summary)
    elif form in ("llama-benchy", "spark-arena"):
        to_text = posted.to_table if form == "llama-benchy" else posted.to_csv
        made = to_text(summary.folder.records, str(folder))
    else:
        made = (text.to_csv if form == "csv" else text.to_json)(summary.folder.records)
    click.echo(made, nl=False)
