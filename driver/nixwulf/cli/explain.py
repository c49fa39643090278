"""nixwulf explain: why a measured speed is what it is, and what would help."""

from __future__ import annotations

from pathlib import Path

import click

from nixwulf.cli.options import FilePath, print_form, table_format


@click.command()
@click.argument("path", metavar="RECORD|RUN", type=FilePath())
@table_format
def explain(path: Path, form: str) -> None:
    """Explain records: measured beside predicted, the bottleneck, what would help.

    \b
    Examples:
      nixwulf explain runs/first
      nixwulf explain results/published/records/NAME.json
    """
    from nixwulf.core.files import find_results
    from nixwulf.perf.explain import text
    from nixwulf.perf.explain.explanation import explain as explain_path

    explained, rest = explain_path(find_results(path))
    print_form(form, text, explained, rest)
