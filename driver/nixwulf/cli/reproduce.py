"""nixwulf reproduce: published numbers and earlier runs repeated, and what slows a repeat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli.options import ClusterOption, json_format, print_json, running
from nixwulf.cli.run_folder import new_folder, run
from nixwulf.core.errors import EXIT_OK, EXIT_RUN_FAILED, InputError
from nixwulf.core.text import as_typed, did_you_mean, nearest

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster
    from nixwulf.sweep.plan import Sweep

_SEEDS, _SUFFIX = "sweeps/seeds", ".yaml"


@click.command()
@click.argument("target", metavar="[SYSTEM|RECORD|RUN]", required=False)
@click.option("--cluster", cls=ClusterOption, help="The cluster to repeat it on.")
@click.option("--model", default="", metavar="PATH|ID", help="Of a RECORD: the model on the nodes.")
@json_format("Of what could be repeated, of a dry run, and of the outcome.")
@running
@click.pass_context
def reproduce(
    ctx: click.Context,
    /,
    target: str | None,
    cluster: str | None,
    model: str,
    form: str,
    out: Path | None,
    dry_run: bool,
    resume: Path | None,
    allow_commands: bool,
    waive: tuple[str, ...],
    **running: Any,
) -> None:
    """Repeat published numbers, or an earlier run, and say what makes a repeat slow.

    SYSTEM is one of sweeps/seeds; RECORD the id of a published record, whose model is taken from
    --model; RUN a folder of 'nixwulf bench'. With --cluster alone it lists the published records
    that this cluster could repeat. It ends with the measured beside the published and predicted
    numbers; exit 1: one is slower than its tolerance allows, or was not measured.

    \b
    Examples:
      nixwulf reproduce --cluster framework-4
      nixwulf reproduce framework-4 --cluster mine.toml --dry-run
      nixwulf reproduce runs/first --cluster mine.toml
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.report import load, summary_of, write
    from nixwulf.results.store import read_folder
    from nixwulf.sweep.plan import make_plan, plan_to_resume
    from nixwulf.sweep.recording import print_plan
    from nixwulf.sweep.reproduce import outcome
    from nixwulf.sweep.reproduce.conditions import expectations, repeatable
    from nixwulf.sweep.reproduce.outcome import FASTER, INSIDE, repeats

    if resume is not None:
        folder = resume
        plan = plan_to_resume(folder, None, allow_commands=allow_commands, verb="reproduce")
    elif cluster is None:
        raise InputError("No cluster to repeat anything on; name it with --cluster.")
    elif target is None:
        could = repeatable(load_cluster(cluster))
        if form == "json":
            print_json([record for record, plan in could if not isinstance(plan, str)])
        else:
            outcome.list_repeatable(could, cluster)
        return
    else:
        machines = load_cluster(cluster)
        sweep, only = _sweep(target, machines, model)
        plan = make_plan(sweep, machines, only, waive)
        folder = out or new_folder(plan.sweep.name, machines)
    expectations(plan.sweep)  # a record that is not there is found before anything runs
    if dry_run and form == "json":
        print_json([outcome.document(repeat) for repeat in repeats(plan, ())])
        return
    if dry_run:
        print_plan(plan)
        outcome.expected(repeats(plan, ()), plan)
        return
    new = resume is None
    stopped = run(plan, folder, "reproduce", lambda _: load(), new=new, own_cluster=new, **running)
    if stopped:
        stopped.show()
    click.echo(f"Report: {write(summary_of(folder))}", err=form == "json")
    found = repeats(plan, read_folder(folder).records)
    if form == "json":
        print_json([outcome.document(repeat) for repeat in found])
    else:
        outcome.to_terminal(found, str(folder))
    if stopped:
        ctx.exit(stopped.exit_code)
    good = all(repeat.verdict in {INSIDE, FASTER} for repeat in found)
    ctx.exit(EXIT_OK if good else EXIT_RUN_FAILED)


def _sweep(target: str, cluster: Cluster, model: str) -> tuple[Sweep, str]:
    """The sweep of a seed, a run or a published record, and a run's --only; raises InputError."""
    from nixwulf.core.files import find_input, known_inputs
    from nixwulf.results.store import read_folder
    from nixwulf.sweep.plan import load_sweep
    from nixwulf.sweep.reproduce.conditions import (
        fitted,
        published,
        reference,
        sweep_of_record,
        sweep_of_run,
    )

    path = Path(target)
    if path.is_dir():
        folder = read_folder(path)
        return sweep_of_run(folder), folder.plan.get("only", "") if folder.plan else ""
    target = path.stem if path.suffix == ".json" else target
    listing = f"by {as_typed('reproduce', '--cluster', cluster.source)}"
    if target in published():
        (record,) = reference(target, "reproduce")
        try:
            return sweep_of_record(record, cluster, model), ""
        except InputError as error:
            raise InputError(
                f"{target!r} cannot be repeated on {cluster.name!r}: {error.message}; list what "
                f"can {listing}."
            ) from None
    try:
        file = find_input(target, _SEEDS, _SUFFIX)
    except InputError:
        if path.suffix == _SUFFIX:
            raise
        known = known_inputs(_SEEDS, _SUFFIX)
        meant = did_you_mean(target, known if nearest(target, known) else published())
        raise InputError(
            f"{target!r} is neither a system ({', '.join(known)}) nor the id of a published "
            f"record; {meant} List what {cluster.name!r} can repeat {listing}."
        ) from None
    return fitted(load_sweep(file), cluster), ""
