"""The folder under results/ that a run is published in: its records and a README."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nixwulf.core.document import Table, escaped, pipe_table
from nixwulf.core.errors import InputError
from nixwulf.core.files import write_atomically
from nixwulf.core.text import case_name, fingerprint, link_name, slug, unit_name, with_deviation
from nixwulf.results import record as records_of
from nixwulf.results.publish.identifiers import closed_words, known_words
from nixwulf.results.publish.scrub import Finding, Scrubber
from nixwulf.results.publish.words import WORD, texts
from nixwulf.results.record import Record
from nixwulf.results.store import RunFolder
from nixwulf.results.table import as_rows, by_case, tidy

_HEAD = ("what", "platform", "case", "parameters", "metric", "value", "samples (runs)")
_LONGEST_NAME = 40
_README = "README.md"


@dataclass(frozen=True)
class Publication:
    """Records fit to be published, the name of their folder, and what was taken out of them."""

    name: str
    title: str
    records: tuple[Record, ...]
    found: tuple[Finding, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters, as they will be read."""
        return tuple(sorted({record["cluster"]["name"] for record in self.records}))

    def readme(self) -> str:
        """What was measured, in one table, and what was taken out."""
        days = sorted(record["started"][:10] for record in self.records if "started" in record)
        when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
        counts: Counter[str] = Counter()
        for record in self.records:
            counts.update(record.get("scrubbed", {}))
        shared, rows = _table(self.records)
        removed = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
        parts = [
            f"# {escaped(self.title)}",
            f"Measured {when}." if when else "",
            f"In all rows: {escaped(shared)}." if shared else "",
            pipe_table(Table(_HEAD, rows)),
            "Values are means over all samples of all runs that ended ok, ± their standard "
            "deviation. The records have every sample, and what was measured on what.",
            f"Taken out by `nixwulf publish`: {escaped(removed)}." if removed else "",
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def write(self, out: Path) -> Path:
        """Write the folder; what an earlier publication of this run left there is replaced."""
        folder = out / self.name
        wanted = {f"{record['id']}.json" for record in self.records}
        for record in self.records:
            records_of.save(record, folder / "records" / f"{record['id']}.json")
        for path in (folder / "records").glob("*.json"):
            if path.name not in wanted:
                path.unlink()
        write_atomically(folder / _README, self.readme())
        return folder


def publication(
    folder: RunFolder,
    names: Iterable[str],
    *,
    keep: Iterable[str] = (),
    others: Iterable[str] = (),
    users: Iterable[str] = (),
    hosts: Iterable[str] = (),
    homes: Iterable[str] = (),
) -> Publication:
    """A run folder made fit for others; names of engines and benchmarks identify nobody.

    Raises InputError when two records become one, or no text of the run has one of the others.
    """
    others = tuple(other.strip() for other in others)
    _check_words(folder, others)
    cluster = folder.plan["cluster"]["document"] if folder.plan else {}
    closed = closed_words(names)
    words = known_words(folder.records, cluster, closed, users, hosts, homes, others)
    scrubber = Scrubber(words, frozenset(keep), closed)
    records = tuple(scrubber.record(record) for record in folder.records)
    twice = [name for name, count in Counter(r["id"] for r in records).items() if count > 1]
    if twice:
        raise InputError(
            f"{str(folder.path)!r} has two records with the id {twice[0]!r}; publish the runs one "
            "by one."
        )
    title = _title(folder, records, scrubber)
    return Publication(_name(title, folder.records), title, records, tuple(scrubber.found))


def _check_words(folder: RunFolder, words: Iterable[str]) -> None:
    """Refuse a word that nowhere stands: the one that was meant would be published."""
    every = "\n".join({folder.title, *(text for _, text in texts(folder.records))})
    for word in words:
        if not word or not re.search(rf"(?i)(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", every):
            near = get_close_matches(word.lower(), {*WORD.findall(every.lower())}, n=1)
            raise InputError(
                f"No text of {str(folder.path)!r} has the word {word!r}"
                + (f"; did you mean {near[0]!r}?" if near else ".")
                + " Without --hide, publish shows the words that only you can judge."
            )


def _title(folder: RunFolder, records: Sequence[Record], scrubber: Scrubber) -> str:
    """What and on what; of a folder that is published already, its own."""
    if folder.plan is None and (folder.path / _README).exists():
        first = (folder.path / _README).read_text(encoding="utf-8").partition("\n")[0]
        return scrubber.text(re.sub(r"\\(.)", r"\1", first.removeprefix("# ")))
    platforms = sorted({name for record in records for name in record["cluster"]["platforms"]})
    nodes = max(record["case"]["nodes"] for record in records)
    return f"{scrubber.text(folder.title)} on {nodes} × {' + '.join(platforms)}"


def _name(title: str, records: Iterable[Record]) -> str:
    """A folder's name; its hash is of what scrubbing never changes, so that it stays the same."""
    numbers = sorted(
        [
            record["case"]["id"],
            record.get("started", ""),
            record["outcome"],
            [metric["value"] for metric in record["metrics"]],
        ]
        for record in records
    )
    first = min(str(started) for _, started, *_ in numbers)[:10]
    return "-".join(filter(None, (first, slug(title, _LONGEST_NAME), fingerprint(numbers)[:8])))


def _table(records: Sequence[Record]) -> tuple[str, list[list[str]]]:
    """The parameters that all rows have, in words, and the rows."""
    table = tidy(records)
    failed = table[table["outcome"] != "ok"]
    rows = [*as_rows(by_case(table)), *as_rows(failed)]
    parameters = [_parameters(row) for row in rows]
    shared = {k: v for k, v in parameters[0].items() if all(p.get(k) == v for p in parameters)}
    own = [{k: v for k, v in found.items() if k not in shared} for found in parameters]
    return _words(shared), [_row(row, _words(o)) for row, o in zip(rows, own, strict=True)]


def _row(row: Mapping[str, Any], parameters: str) -> list[str]:
    what = " ".join(filter(None, (row["engine"], row["benchmark"], row["model"], row["weights"])))
    link = link_name(row["fabric"], row["transport"])
    case = [what, row["platform"], case_name(row["nodes"], row["parallelism"], link), parameters]
    if "outcome" in row:
        return [*case, "", f"ended {row['outcome']}", ""]
    samples = f"{row['n_samples']} ({row['n_runs']})" if row["n_samples"] is not None else ""
    metric = f"{row['metric'].replace('_', ' ')}, {unit_name(row['unit'])}"
    return [*case, metric, with_deviation(row["mean"], row["stddev"]), samples]


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    texts = (row["parameters"], row["variant"])
    return {key: value for text in texts if text for key, value in json.loads(text).items()}


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
