"""nixwulf bench: plan, run, record, report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli.options import SWEEP, ClusterOption, fail_below, json_format, print_json, running
from nixwulf.cli.run_folder import check_new, new_folder, run
from nixwulf.core.errors import EXIT_GATE, EXIT_OK, EXIT_RUN_FAILED, InputError, NixwulfError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nixwulf.inventory.cluster import Cluster
    from nixwulf.results.compare.comparison import Comparison
    from nixwulf.results.record import Record
    from nixwulf.sweep.plan import Plan, Sweep
    from nixwulf.sweep.recording import TerminalProgress


@click.command()
@click.argument("sweep", required=False, type=SWEEP)
@click.option("--cluster", cls=ClusterOption, help="The cluster to run on (default: the lab).")
@click.option(
    "--only", metavar="EXPR", default="", help="Cases to run, e.g. 'nodes=2 model=tiny*'."
)
@json_format("Of a dry run's plan: JSON has every point that is left out.")
@running
@click.option(
    "--baseline",
    metavar="DIR|QUERY",
    help="End with a comparison: with this run folder, or of the sweep's other cases with these.",
)
@fail_below("Exit with 1 when it is shown to be below this share of the baseline, such as 0.95.")
@click.pass_context
def bench(
    ctx: click.Context,
    /,
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

    _require_companions(ctx.params)
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
        print_json(plan.document()) if form == "json" else print_plan(plan)
        return
    beside = _show_while_building if builds(plan) else lambda _: load()
    mine = named is not None
    stopped = run(plan, folder, "bench", beside, new=resume is None, own_cluster=mine, **running)
    ctx.exit(_report(folder, stopped, compared, limit))


def _report(
    folder: Path,
    stopped: NixwulfError | None,
    compared: Callable[[str, Sequence[Record]], Comparison] | None,
    limit: float | None,
) -> int:
    """Report on what was measured; gives the exit code.

    Raises NixwulfError: the report cannot be written.
    """
    from nixwulf.report import summary_of, text, write

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
    text.to_terminal(summary)
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
    from nixwulf.report.published import to_rich

    progress.show(to_rich())
    load()


def _loaded(name: str, cluster: Cluster, *, hold: bool) -> Sweep:
    """A sweep; hold: tags of toolboxes that have no digest yet are held to that of today."""
    from nixwulf.ops.engines import install
    from nixwulf.sweep.plan import load_sweep

    sweep = load_sweep(name)
    for sentence in install.hold(sweep.toolboxes if hold else (), cluster.source):
        click.echo(sentence, err=True)
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
    """What compares a run with its baseline: a run folder, or a query of the plan's own cases.

    Both are read before anything runs.
    """
    from nixwulf.core.query import is_query
    from nixwulf.results.compare.comparison import compare
    from nixwulf.results.compare.pairs import read_side, side_of, split

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
        click.echo(error.format_message(), err=True)
        return EXIT_OK
    render.to_terminal(comparison, limit)
    return EXIT_OK if limit is None else comparison.exit_code(limit)
