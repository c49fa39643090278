"""nixwulf validate: whether files are what they claim to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from nixwulf.cli.options import FilePath, require_none
from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import read_json, read_toml
from nixwulf.core.text import plural
from nixwulf.results.store import PLAN, Identities, record_paths


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=FilePath())
def validate(paths: tuple[Path, ...]) -> None:
    """Check records, run folders, sweeps (.yaml), clusters, platforms and models (.toml).

    \b
    Examples:
      nixwulf validate clusters/mine.toml sweeps/mine.yaml
      nixwulf validate runs/first
    """
    counts: Counter[str] = Counter()
    problems: list[str] = []
    known = Identities()
    for path in _files(paths, problems):
        try:
            counts[_check(path, known)] += 1
        except InputError as error:
            problems.append(error.format_message())
    require_none(problems)
    valid = ", ".join(plural(count, kind) for kind, count in sorted(counts.items()))
    click.echo(f"{valid}: valid.")


def _files(paths: Iterable[Path], problems: list[str]) -> Iterable[Path]:
    for path in paths:
        try:
            if path.is_dir():
                yield from path.glob(PLAN)
            yield from record_paths(path)
        except InputError as error:
            problems.append(error.format_message())
        except OSError as error:
            problems.append(f"{quoted(str(path))}: {error.strerror}.")


def _check(path: Path, known: Identities) -> str:
    """The kind of a valid file; raises InputError."""
    if path.suffix == ".json":
        return _json(path, known)
    kinds = {".toml": _toml, ".yaml": _sweep, ".yml": _sweep}
    if path.suffix not in kinds:
        raise InputError(
            f"{str(path)!r} is not a .json, .toml or .yaml file; name a record, a run folder, a "
            "cluster, a platform, facts of models or a sweep."
        )
    return kinds[path.suffix](path)


def _json(path: Path, known: Identities) -> str:
    from nixwulf.results import record
    from nixwulf.results.store import read_plan

    document: Any = read_json(path)
    if isinstance(document, dict) and "cases" in document:
        read_plan(path)
        return "plan"
    record.validate(document, str(path))
    known.add(path, document)
    return "record"


def _toml(path: Path) -> str:
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.inventory.platforms import load_platform
    from nixwulf.llm.catalog import table
    from nixwulf.plugins import meters, switches

    document = read_toml(path)
    if "system" in document:
        load_platform(path)
        return "platform"
    if isinstance(document.get("models"), list):
        table(path)
        return "models file"
    cluster = load_cluster(path)
    meters.require_known(cluster)
    switches.require_known(cluster)
    return "cluster"


def _sweep(path: Path) -> str:
    from nixwulf.sweep.plan import load_sweep
    from nixwulf.sweep.reproduce.conditions import expectations

    sweep = load_sweep(path)
    if sweep.expect:
        expectations(sweep)
    return "sweep"
