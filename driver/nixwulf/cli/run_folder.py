"""The folder of a run: new, or that of a run that goes on, and one driver's at a time."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nixwulf.core.errors import EXIT_INTERRUPTED, InputError, NixwulfError
from nixwulf.core.text import as_typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nixwulf.inventory.cluster import Cluster
    from nixwulf.sweep.plan import Plan
    from nixwulf.sweep.recording import TerminalProgress


def new_folder(name: str, cluster: Cluster) -> Path:
    """Where a run that begins now goes unless --out says else."""
    return Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}-{cluster.name}"


def run(
    plan: Plan,
    folder: Path,
    verb: str,
    beside: Callable[[TerminalProgress], None],
    *,
    new: bool,
    own_cluster: bool,
    allow_secrets: tuple[str, ...],
    allow_url: tuple[str, ...],
    fetch: bool,
    quiet: bool,
) -> NixwulfError | None:
    """Run what is missing of a plan that its user consents to; gives what ended it early.

    verb: the command, for how to go on. beside: is called while the nodes are brought up. new:
    whether the run begins. own_cluster: whether the user named the cluster file now.

    Raises:
        InputError: it takes what was not allowed.
        Exit: it was interrupted.
    """
    from nixwulf.core import web
    from nixwulf.plugins.meters import complaints
    from nixwulf.sweep import consent
    from nixwulf.sweep.plan import resuming
    from nixwulf.sweep.recording import make_progress
    from nixwulf.sweep.session import record_path, run_plan

    allowed = consent.Consent(frozenset(allow_secrets), frozenset(allow_url))
    own = own_cluster or consent.is_own(folder / "plan.json")
    consent.require(plan, allowed, own_cluster=own)
    look = (f"look at this: {line}" for line in consent.active(plan))
    in_clear = map(web.warning, consent.in_clear(plan.cases))
    for sentence in (*look, *in_clear, *complaints(plan.cluster.nodes)):
        click.echo(sentence, err=True)
    try:
        with own_folder(folder, plan if new else None), make_progress(quiet=quiet) as progress:
            return run_plan(plan, folder, progress, lambda: beside(progress), fetch=fetch)
    except KeyboardInterrupt:
        done = sum(record_path(folder, *one).exists() for one in plan.runs())
        planned = plan.sweep.repetitions * len(plan.cases)
        click.echo(
            f"Interrupted: {done} of {planned} runs are kept; go on with "
            f"'{resuming(plan, folder, verb)}{allowed.options()}'.",
            err=True,
        )
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def own_folder(folder: Path, new: Plan | None) -> Iterator[None]:
    """The folder of a run, for this driver alone while the block lasts.

    Raises InputError: the folder of a run that begins is not new, or another driver has it.
    """
    from nixwulf.results.store import only_driver
    from nixwulf.sweep.consent import remember
    from nixwulf.sweep.plan import save_plan

    with only_driver(folder):
        if new is not None:
            check_new(folder)
            save_plan(new, folder / "plan.json")
            remember(folder / "plan.json")
        yield


def check_new(folder: Path) -> None:
    """Raises InputError for a folder that holds something; of a run, with how to go on."""
    from nixwulf.results.store import LOCK

    if (folder / "plan.json").exists():
        raise InputError(
            f"{str(folder)!r} holds a run; go on by {as_typed('bench', '--resume', folder)}, or "
            "choose another folder with --out."
        )
    if folder.exists() and (
        not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())
    ):
        raise InputError(f"{str(folder)!r} is not empty and not a run; choose another with --out.")
