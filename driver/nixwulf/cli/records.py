"""What is made of records: report, site, compare, explain, validate and publish."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli import options
from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import find_results, read_json, read_toml
from nixwulf.core.text import plural
from nixwulf.results.store import PLAN, Identities, RunFolder, read_folder, read_plan, record_paths

if TYPE_CHECKING:
    from nixwulf.results.publish.patterns import Unknown
    from nixwulf.results.publish.scrub import Publication, Replaced


@click.command()
@click.argument("folder", metavar="DIR", type=options.FilePath())
@options.formats(
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
    from nixwulf.report import panels, posted, render, summary_of, write

    summary = summary_of(folder)
    if form == "html":
        click.echo(write(summary))
        return
    if form == "md":
        made = render.to_markdown(summary)
    elif form == "svg":
        made = panels.decode_by_rtt(summary)
    elif form in ("llama-benchy", "spark-arena"):
        to_text = posted.to_table if form == "llama-benchy" else posted.to_csv
        made = to_text(summary.folder.records, str(folder))
    else:
        made = (render.to_csv if form == "csv" else render.to_json)(summary.folder.records)
    click.echo(made, nl=False)


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=options.FilePath())
@options.path(
    "--out",
    "Folder of the site, which is replaced as a whole; it must be new, empty, or a site.",
    required=True,
)
def site(paths: tuple[Path, ...], out: Path) -> None:
    """Make a static site of all records in PATHs: files, run folders, folders of those.

    \b
    Examples:
      nixwulf site results/ --out site
      nixwulf site results/ runs/first --out site
    """
    from nixwulf.report.site import make

    made = make(list(map(find_results, paths)), out)
    if made.unscrubbed:
        options.tell(
            f"{plural(made.unscrubbed, 'run')} in it may hold addresses and host names: before "
            "you put the site online, use what 'nixwulf publish' makes of them instead."
        )
    options.tell(f"{plural(made.values, 'value')} of {plural(made.records, 'record')}.")
    click.echo(out / "index.html")


@click.command()
@click.argument("a")
@click.argument("b")
@options.path("--in", "Folder of records for queries.", "folder", default="results", metavar="DIR")
@options.repeatable("--over", "KEY", "Dimension to compare across: fabric, model, depth, ...")
@options.fail_below(
    "Exit with 1 when B is shown to be below this share of A, such as 0.95, or failed."
)
@options.table_format
def compare(
    a: str, b: str, folder: Path, over: tuple[str, ...], limit: float | None, form: str
) -> None:
    """Compare B with A where all conditions are equal.

    A and B are records, run folders, folders of those, or queries.

    \b
    Examples:
      nixwulf compare runs/before runs/after
      nixwulf compare runs/before runs/after --fail-below 0.95
      nixwulf compare fabric=lan fabric=cable --in runs/first --over fabric
      nixwulf compare platform=dgx-spark platform=framework-desktop --over platform
    """
    from nixwulf.results.compare import comparison, render
    from nixwulf.results.compare.comparison import read_side

    compared = comparison.compare(read_side(a, folder), read_side(b, folder), over)
    options.print_form(form, render, compared, limit)
    if limit is not None:
        options.end(compared.exit_code(limit))


@click.command()
@click.argument("path", metavar="RECORD|RUN", type=options.FilePath())
@options.table_format
def explain(path: Path, form: str) -> None:
    """Explain records: measured beside predicted, the bottleneck, what would help.

    \b
    Examples:
      nixwulf explain runs/first
      nixwulf explain results/published/records/NAME.json
    """
    from nixwulf.perf.explain import text
    from nixwulf.perf.explain.explanation import explain as explain_path

    explained, rest = explain_path(find_results(path))
    options.print_form(form, text, explained, rest)


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=options.FilePath())
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
    options.require_none(problems)
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


_KEEP = {"address": "address", "host": "host name", "user": "user name", "serial": "serial number"}
_EXAMPLES = 3
_LONGEST = 44
_MOST_WORDS = 15


@click.command()
@click.argument("run", metavar="RUN", type=options.FilePath())
@options.path("--out", "Where the folder of the results is written.", default="results")
@options.repeatable("--hide", "WORD", "Take this out too", "--scrub", "others")
@options.repeatable("--keep", None, "Leave what is of this kind in", of=click.Choice(list(_KEEP)))
@click.option("--lab", is_flag=True, help="Publish a run of the lab nevertheless.")
@options.json_format(
    "How to show what was taken out and which words are unknown, all of them in JSON."
)
def publish(
    run: Path, out: Path, others: tuple[str, ...], keep: tuple[str, ...], lab: bool, form: str
) -> None:
    """Make a folder of results that others may see of RUN, which 'nixwulf bench' wrote.

    Takes out addresses, names of hosts and users, serial numbers and keys, and shows what it took.
    Words of the run that are in no text of Nixwulf's are shown; on a terminal it asks about them.

    \b
    Examples:
      nixwulf publish runs/first
      nixwulf publish runs/first --hide acme --hide 'room 12'
    """
    from nixwulf.plugins import benchmarks, engines
    from nixwulf.results.publish.patterns import homes, hosts, unknown_words, users
    from nixwulf.results.publish.scrub import publication

    folder = read_folder(run)
    _require_own(folder, lab)

    def without(words: Iterable[str]) -> Publication:
        return publication(
            folder,
            (*engines.all_engines(), *benchmarks.all_benchmarks()),
            keep=[_KEEP[name] for name in keep],
            others=words,
            users=users(),
            hosts=hosts(),
            homes=homes(),
        )

    made = without(others)
    unknown = unknown_words((*made.records, {"README.md": made.title}))
    if form == "json":
        place = made.write(out)
        taken = {"clusters": made.clusters, "taken_out": made.found, "unknown": unknown}
        options.print_json({"folder": str(place), **taken}, "publication")
        return
    _show_unknown(run, unknown)
    if unknown and sys.stdin.isatty():
        private = click.prompt("Private are (words; none: Enter)", "", show_default=False, err=True)
        made = without((*others, *re.split(r",?\s+|,(?=\D)", private.strip(" ,"))))
    place = made.write(out)
    _show_taken(made.found)
    click.echo(
        f"The name of the cluster is in it: {', '.join(made.clusters)}. Raw outputs are not.\n"
        f"Look through {place}: common words may be private too; --hide WORD takes one out.\n"
        "To contribute it (docs/share.md):\n"
        f"  git switch -c {made.name}\n"
        f"  git add {shlex.quote(str(place))}\n"
        f"  git commit -m {shlex.quote(f'Results: {made.title}')}\n"
        "  git push -u origin HEAD"
    )


def _require_own(folder: RunFolder, lab: bool) -> None:
    if any(record["kind"] == "published" for record in folder.records):
        raise InputError(f"{str(folder.path)!r} holds published numbers, which are public already.")
    if not lab and any(record["cluster"]["lab"] for record in folder.records):
        raise InputError(
            f"{str(folder.path)!r} is a run of the lab: namespaces of one machine, whose numbers "
            "are about no hardware; to publish it nevertheless, give --lab."
        )


def _show_taken(found: Sequence[Replaced]) -> None:
    """Print what was taken out: kind, how many, and a few of them, here and nowhere else."""
    from nixwulf.core.document import Column, Table, output, rich_table

    rows = []
    kinds = Counter(finding.kind for finding in found)
    for kind in sorted(kinds):
        seen = Counter((f.was, f.now) for f in found if f.kind == kind)
        examples = [
            f"{_short(was)}{f' -> {now}' if now else ''}"
            for (was, now), _ in seen.most_common(_EXAMPLES)
        ]
        more = len(seen) - len(examples)
        text = ", ".join(examples) + (f", and {more} more" if more else "")
        rows.append((kind, str(kinds[kind]), text))
    table = Table(("taken out", Column("times", number=True), "for example"), rows)
    output().print(rich_table(table) if kinds else "Nothing private was found.")


def _short(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _show_unknown(run: Path, unknown: Sequence[Unknown]) -> None:
    """The words that only the user can judge, on standard error."""
    from nixwulf.core.document import Column, Table, output, rich_table

    if not unknown:
        return
    shown = unknown[:_MOST_WORDS]
    rows = [
        (_short(one.word), str(one.fields), _short(one.place), _short(one.around, 2 * _LONGEST))
        for one in shown
    ]
    head = ("in no text of Nixwulf's", Column("fields", number=True), "first", "there")
    output(stderr=True).print(rich_table(Table(head, rows)))
    rest = " ".join(_short(one.word) for one in unknown[_MOST_WORDS:])
    if rest:
        options.tell(f"And: {rest}")
    again = f"nixwulf publish {shlex.quote(str(run))} --hide {shlex.quote(_short(shown[0].word))}"
    options.tell(f"Is one of these private? This takes it out: {again}")
