"""nixwulf bench and reproduce: plan, run, record, report; and the folder of a run.

It is new, or that of a run that goes on, and one driver's at a time.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli import options
from nixwulf.core import errors
from nixwulf.core.errors import EXIT_GATE, EXIT_OK, EXIT_RUN_FAILED, InputError, NixwulfError
from nixwulf.core.text import as_typed, did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nixwulf.inventory.cluster import Cluster
    from nixwulf.results.compare.comparison import Comparison
    from nixwulf.results.record import Record
    from nixwulf.sweep.plan import Plan, Sweep
    from nixwulf.sweep.recording import TerminalProgress


@click.command()
@click.argument("sweep", required=False, type=options.SWEEP)
@options.cluster("The cluster to run on (default: the lab).")
@click.option(
    "--only", metavar="EXPR", default="", help="Run only cases such as 'nodes=2 model=tiny*'."
)
@options.json_format("Of a dry run's plan: JSON has every point that is left out.")
@options.running
@click.option(
    "--baseline",
    metavar="DIR|QUERY",
    help="End with a comparison: with this run folder, or of the sweep's other cases with these.",
)
@options.fail_below(
    "Exit with 1 when it is shown to be below this share of the baseline, such as 0.95."
)
def bench(
    sweep: str | None,
    cluster: str | None,
    out: Path | None,
    only: str,
    dry_run: bool,
    form: str,
    resume: Path | None,
    allow_commands: bool,
    waive: tuple[str, ...],
    baseline: str | None,
    limit: float | None,
    **running: Any,
) -> None:
    """Run a sweep on a cluster, or on the lab, and report on it.

    SWEEP is a YAML file or the name of one in sweeps/ (default: lab/demo in a lab, else smoke).
    The plan is saved before the first case runs; every run leaves a record, whatever its outcome.

    \b
    Examples:
      nixwulf bench
      nixwulf bench sweeps/smoke.yaml --only 'nodes<=2 parallelism!=tensor'
      nixwulf bench smoke --cluster clusters/mine.toml --out runs/first
      nixwulf bench --resume runs/first
      nixwulf bench mine --out runs/second --baseline runs/first --fail-below 0.95
      nixwulf bench both --baseline toolbox=old --fail-below 0.95
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.plugins.engines import engines_without_run
    from nixwulf.report import load
    from nixwulf.sweep.plan import make_plan, plan_to_resume
    from nixwulf.sweep.recording import print_plan
    from nixwulf.sweep.session import builds

    _require_companions(click.get_current_context().params)
    named = None
    if resume is None or sweep or cluster or only or waive:
        machines = load_cluster(cluster or "lab")
        name = sweep or ("lab/demo" if machines.is_lab else "smoke")
        named = make_plan(_loaded(name, machines, hold=not dry_run), machines, only, waive)
    if resume is not None or named is None:
        folder = resume or Path()
        plan = plan_to_resume(folder, named, allow_commands=allow_commands)
    else:
        folder = out or new_folder(named.sweep.name, named.cluster)
        plan = named
        check_new(folder)
    for name in engines_without_run(c.engine for c in plan.cases if form != "json"):
        click.echo(f"{name}: described, never run by Nixwulf itself; doubt the first results.")
    compared = None if baseline is None else _baseline(baseline, plan)
    if dry_run:
        options.print_json(plan.document()) if form == "json" else print_plan(plan)
        return
    beside = _show_while_building if builds(plan) else lambda _: load()
    mine = named is not None
    stopped = run(plan, folder, "bench", beside, new=resume is None, own_cluster=mine, **running)
    options.end(_report(folder, stopped, compared, limit))


def _report(
    folder: Path,
    stopped: NixwulfError | None,
    compared: Callable[[str, Sequence[Record]], Comparison] | None,
    limit: float | None,
) -> int:
    """Report on what was measured; gives the exit code, or raises NixwulfError."""
    from nixwulf.report import render, summary_of, write

    if stopped:
        stopped.show()
    try:
        summary = summary_of(folder)
        page = write(summary)
    except NixwulfError as error:
        if not stopped:
            raise
        error.show()
        return stopped.exit_code
    render.to_terminal(summary)
    click.echo(f"Report: {page}")
    records = summary.folder.records
    code = EXIT_OK if compared is None else _compare(partial(compared, str(folder), records), limit)
    if stopped:
        return stopped.exit_code
    failures = [record["failure"]["phase"] for record in records if record["outcome"] != "ok"]
    if failures:
        return EXIT_GATE if all(phase == "gates" for phase in failures) else EXIT_RUN_FAILED
    return code


def _show_while_building(progress: TerminalProgress) -> None:
    """Show speeds before there is one of this run, and load the report as beside other runs."""
    from nixwulf.report import load
    from nixwulf.report.lines import to_rich

    progress.show(to_rich())
    load()


def _loaded(name: str, cluster: Cluster, *, hold: bool) -> Sweep:
    """A sweep; hold: tags of toolboxes that have no digest yet are held to that of today."""
    from nixwulf.ops.engines import install
    from nixwulf.sweep.plan import load_sweep

    sweep = load_sweep(name)
    options.tell(*install.hold(sweep.toolboxes if hold else (), cluster.source))
    return sweep


def _require_companions(given: Mapping[str, object]) -> None:
    """Raises InputError for options that need another one, or exclude it."""
    if given["resume"] is not None and given["out"] is not None:
        raise InputError("--resume names the folder of the run; leave out --out.")
    if given["allow_commands"] and given["resume"] is None:
        raise InputError("--allow-commands is for a plan that --resume goes on with; leave it out.")
    if given["form"] == "json" and not given["dry_run"]:
        raise InputError(
            "--format json is of --dry-run; of a run it is 'nixwulf report FOLDER --format json'."
        )
    if given["limit"] is not None and given["baseline"] is None:
        raise InputError("--fail-below needs something to compare with; name it with --baseline.")


def _baseline(baseline: str, plan: Plan) -> Callable[[str, Sequence[Record]], Comparison]:
    """Read a run's baseline before anything runs: a run folder, or a query of its own cases."""
    from nixwulf.core.query import is_query
    from nixwulf.results.compare.comparison import compare, read_side, side_of, split

    if is_query(baseline) and not Path(baseline).exists():
        cases = plan.baseline(baseline)
        return lambda _, records: compare(*split(records, cases.ids, baseline), cases.over)
    before = read_side(baseline, Path("results"))
    return lambda name, records: compare(before, side_of(name, records))


def _compare(comparing: Callable[[], Comparison], limit: float | None) -> int:
    """Print how the run compares with its baseline; gives the exit code."""
    from nixwulf.results.compare import render

    try:
        comparison = comparing()
    except InputError as error:
        if limit is not None:
            raise
        options.tell(error.format_message())
        return EXIT_OK
    render.to_terminal(comparison, limit)
    return EXIT_OK if limit is None else comparison.exit_code(limit)


_SEEDS, _SUFFIX = "sweeps/seeds", ".yaml"


@click.command()
@click.argument("target", metavar="[SYSTEM|RECORD|RUN]", required=False)
@options.cluster("The cluster to repeat it on.")
@click.option("--model", default="", metavar="PATH|ID", help="Of a RECORD: the model on the nodes.")
@options.json_format("Of what could be repeated, of a dry run, and of the outcome.")
@options.running
def reproduce(
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
            options.print_json([record for record, plan in could if not isinstance(plan, str)])
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
        options.print_json([outcome.document(repeat) for repeat in repeats(plan, ())])
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
        options.print_json([outcome.document(repeat) for repeat in found])
    else:
        outcome.to_terminal(found, str(folder))
    if stopped:
        options.end(stopped.exit_code)
    good = all(repeat.verdict in {INSIDE, FASTER} for repeat in found)
    options.end(EXIT_OK if good else EXIT_RUN_FAILED)


def _sweep(target: str, cluster: Cluster, model: str) -> tuple[Sweep, str]:
    """The sweep of a seed, a run or a published record, and a run's --only; raises InputError."""
    from nixwulf.core.files import find_input, known_inputs
    from nixwulf.results.store import read_folder
    from nixwulf.sweep.plan import load_sweep
    from nixwulf.sweep.reproduce import conditions

    path = Path(target)
    if path.is_dir():
        folder = read_folder(path)
        return conditions.sweep_of_run(folder), folder.plan.get("only", "") if folder.plan else ""
    target = path.stem if path.suffix == ".json" else target
    listing = f"by {as_typed('reproduce', '--cluster', cluster.source)}"
    if target in conditions.published():
        (record,) = conditions.reference(target, "reproduce")
        try:
            return conditions.sweep_of_record(record, cluster, model), ""
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
        meant = did_you_mean(target, known if nearest(target, known) else conditions.published())
        raise InputError(
            f"{target!r} is neither a system ({', '.join(known)}) nor the id of a published "
            f"record; {meant} List what {cluster.name!r} can repeat {listing}."
        ) from None
    return conditions.fitted(load_sweep(file), cluster), ""


def new_folder(name: str, cluster: Cluster) -> Path:
    """Return the folder of a run that begins now, unless --out says else."""
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
    options.tell(*look, *in_clear, *complaints(plan.cluster.nodes))
    try:
        with own_folder(folder, plan if new else None), make_progress(quiet=quiet) as progress:
            return run_plan(plan, folder, progress, lambda: beside(progress), fetch=fetch)
    except KeyboardInterrupt:
        done = sum(record_path(folder, *one).exists() for one in plan.runs())
        planned = plan.sweep.repetitions * len(plan.cases)
        options.tell(
            f"Interrupted: {done} of {planned} runs are kept; go on with "
            f"'{resuming(plan, folder, verb)}{allowed.options()}'."
        )
        raise click.exceptions.Exit(errors.EXIT_INTERRUPTED) from None


@contextmanager
def own_folder(folder: Path, new: Plan | None) -> Iterator[None]:
    """Hold a run's folder for this driver alone; raises InputError: it is not new, or is held."""
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
