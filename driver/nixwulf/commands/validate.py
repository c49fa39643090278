"""nixwulf validate: whether files are what they claim to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from nixwulf.errors import EXIT_USAGE, InputError
from nixwulf.files import read_json, read_toml
from nixwulf.report.words import plural


@click.command()
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def validate(paths: tuple[Path, ...]) -> None:
    """Check records, run folders, clusters (.toml), sweeps (.yaml) and platforms (.toml).

    \b
    Examples:
      nixwulf validate clusters/mine.toml sweeps/mine.yaml
      nixwulf validate runs/first
    """
    counts: Counter[str] = Counter()
    problems: list[str] = []
    for path in _files(paths, problems):
        try:
            counts[_check(path)] += 1
        except InputError as error:
            problems.append(error.format_message())
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(EXIT_USAGE)
    valid = ", ".join(plural(count, kind) for kind, count in sorted(counts.items()))
    click.echo(f"{valid}: valid.")


def _files(paths: Iterable[Path], problems: list[str]) -> Iterable[Path]:
    from nixwulf.report.folder import PLAN, record_paths

    for path in paths:
        if not path.exists():
            problems.append(f"{str(path)!r} does not exist; name a file or a run folder.")
        elif path.is_file():
            yield path
        else:
            found = [*path.glob(PLAN), *record_paths(path)]
            if not found:
                problems.append(f"{str(path)!r} holds no record (no file records/*.json).")
            yield from found


def _check(path: Path) -> str:
    """The kind of a valid file; raises InputError."""
    kinds = {".json": _json, ".toml": _toml, ".yaml": _sweep, ".yml": _sweep}
    if path.suffix not in kinds:
        raise InputError(
            f"{str(path)!r} is not a .json, .toml or .yaml file; name a record, a run folder, a "
            "cluster, a platform or a sweep."
        )
    return kinds[path.suffix](path)


def _json(path: Path) -> str:
    from nixwulf import record
    from nixwulf.plan import read_plan

    document: Any = read_json(path)
    if isinstance(document, dict) and "cases" in document:
        read_plan(path)
        return "plan"
    record.validate(document, str(path))
    return "record"


def _toml(path: Path) -> str:
    from nixwulf.cluster import load_cluster
    from nixwulf.platforms import load_platform

    if "system" in read_toml(path):
        load_platform(path)
        return "platform"
    load_cluster(path)
    return "cluster"


def _sweep(path: Path) -> str:
    from nixwulf.sweep import load_sweep

    load_sweep(path)
    return "sweep"
