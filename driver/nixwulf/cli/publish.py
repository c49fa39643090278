"""nixwulf publish: a run without what is private, as a folder that is ready to commit."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nixwulf.cli.options import FilePath, json_format, print_json
from nixwulf.core.errors import InputError

if TYPE_CHECKING:
    from nixwulf.results.publish.scrub import Publication, Replaced
    from nixwulf.results.publish.words import Unknown
    from nixwulf.results.store import RunFolder

_KEEP = {"address": "address", "host": "host name", "user": "user name", "serial": "serial number"}
_EXAMPLES = 3
_LONGEST = 44
_MOST_WORDS = 15


@click.command()
@click.argument("run", metavar="RUN", type=FilePath())
@click.option(
    "--out",
    type=FilePath(),
    default="results",
    show_default=True,
    help="Where the folder of the results is written.",
)
@click.option(
    *("--hide", "--scrub"),
    "others",
    multiple=True,
    metavar="WORD",
    help="Take this out too; repeatable.",
)
@click.option(
    "--keep",
    multiple=True,
    type=click.Choice(list(_KEEP)),
    help="Leave what is of this kind in; repeatable.",
)
@click.option("--lab", is_flag=True, help="Publish a run of the lab nevertheless.")
@json_format("How to show what was taken out and which words are unknown, all of them in JSON.")
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
    from nixwulf.results.publish.patterns import homes, hosts, users
    from nixwulf.results.publish.scrub import publication
    from nixwulf.results.publish.words import unknown_words
    from nixwulf.results.store import read_folder

    folder = read_folder(run)
    _check(folder, lab)

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
        print_json({"schema_version": "1.0", "folder": str(place), **taken})
        return
    _show_unknown(run, unknown)
    if unknown and sys.stdin.isatty():
        private = click.prompt("Private are (words; none: Enter)", "", show_default=False, err=True)
        made = without((*others, *re.split(r",?\s+|,(?=\D)", private.strip(" ,"))))
    place = made.write(out)
    _show(made.found)
    click.echo(
        f"The name of the cluster is in it: {', '.join(made.clusters)}. Raw outputs are not.\n"
        f"Look through {place}: common words may be private too; --hide WORD takes one out.\n"
        "To contribute it (docs/share.md):\n"
        f"  git switch -c {made.name}\n"
        f"  git add {shlex.quote(str(place))}\n"
        f"  git commit -m {shlex.quote(f'Results: {made.title}')}\n"
        "  git push -u origin HEAD"
    )


def _check(folder: RunFolder, lab: bool) -> None:
    if any(record["kind"] == "published" for record in folder.records):
        raise InputError(f"{str(folder.path)!r} holds published numbers, which are public already.")
    if not lab and any(record["cluster"]["lab"] for record in folder.records):
        raise InputError(
            f"{str(folder.path)!r} is a run of the lab: namespaces of one machine, whose numbers "
            "are about no hardware; to publish it nevertheless, give --lab."
        )


def _show(found: Sequence[Replaced]) -> None:
    """What was taken out: kind, how many, and a few of them, here and nowhere else."""
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
        click.echo(f"And: {rest}", err=True)
    again = f"nixwulf publish {shlex.quote(str(run))} --hide {shlex.quote(_short(shown[0].word))}"
    click.echo(f"Is one of these private? This takes it out: {again}", err=True)
