"""Records without what is private: texts are replaced one by one, and each is listed.

They are published in a folder under results/, with a README.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from nixwulf.core.document import Table, escaped, pipe_table
from nixwulf.core.errors import InputError
from nixwulf.core.files import write_atomically
from nixwulf.core.schema import schema
from nixwulf.core.secrets import HIDDEN, SECRET_NAME, is_secret
from nixwulf.core.text import case_name, fingerprint, link_name, slug, unit_name, with_deviation
from nixwulf.results.publish import patterns
from nixwulf.results.record import (
    SCHEMA_VERSION,
    Record,
    RecordedCommand,
    RecordedNode,
    save,
    sealed,
)
from nixwulf.results.store import RunFolder
from nixwulf.results.table import as_rows, by_case, tidy

_KEPT = re.compile("|".join(patterns.TEXTS["names"]["kernel_parameters"]))


def split_kernel_parameters(command_line: str) -> tuple[list[str], list[str]]:
    """The parameters that are kept, and those that are not; what follows ' -- ' goes to init."""
    kernel, dashes, init = command_line.partition(" -- ")
    kept: list[str] = []
    removed = ["--", *init.split()] if dashes else []
    for word in kernel.split():
        name = word.partition("=")[0].replace("-", "_")
        (kept if _KEPT.fullmatch(name) else removed).append(word)
    return kept, removed


_CLUSTER_NAME = "cluster"
# Ignoring case, an s is also the long one, whose small letter is none of the word.
_OTHER_CASE = patterns.Word("word", "[...]")
# Shorter words are everywhere; they are names only alone, in quotes, or where the user says so.
_SHORT = 3
# What is called a commit or a digest, or is an id of ours by the schema.
_DIGESTS = frozenset({"build_commit", "revision", "plan_digest"})
_DIGEST = re.compile(r"[0-9a-f]{7,64}(-dirty)?")
_NOT_OF_AN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_NUMBERED = re.compile(r"(?i)serial([ _]?n\w*)?$|iccid|imei|imsi|phone|(?<![a-z])pin$")
# Of JSON and Python; soft hyphens and characters of no width.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nt\"'/\\]))")
_BLANKS = {"n": "\n", "t": "\t"}
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_OTHER_DIGITS = re.compile(r"[^\D0-9]")
_DEPTH = 3
_STORE_PATH = re.compile(r"/nix/store/[0-9a-z]{32}-[^/\s]+")


def _without_escapes(text: str) -> str:
    """Undo escapes of JSON, HTML and addresses, within each other too."""
    for _ in range(_DEPTH):
        text = html.unescape(unquote(_UNSEEN.sub("", text)))
        text = _ESCAPE.sub(
            lambda m: _BLANKS.get(m[3], m[3]) if m[3] else chr(int(m[1] or m[2], 16)), text
        )
    text = unicodedata.normalize("NFKC", text).replace("\u3002", ".")
    return _OTHER_DIGITS.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)


def _joined(text: str) -> str:
    """Join the lines that a terminal may have broken: the longest, and what follows."""
    lines = text.split("\n")
    width = max(map(len, lines))
    return "".join(line if len(line) == width else f"{line}\n" for line in lines).removesuffix(
        "\n" if len(lines[-1]) < width else ""
    )


@dataclass(frozen=True)
class Replaced:
    """A text that was taken out: what it was, and what is there instead."""

    kind: str
    was: str
    now: str


@dataclass
class Scrubber:
    """Takes private texts out of records. words: known ones; keep: kinds that were asked to stay.

    closed: a text that is one of these stays. found has every text that was taken out, in order.
    """

    words: patterns.Words = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    found: list[Replaced] = field(default_factory=list)
    _done: dict[str, tuple[str, list[Replaced]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.words = {w: word for w, word in self.words.items() if word.kind not in self.keep}
        ordered = sorted(self.words, key=len, reverse=True)
        named = {word for word in ordered if self.words[word].kind == "word"}
        long = "|".join(re.escape(w) for w in ordered if len(w) >= _SHORT or w in named)
        short = "|".join(re.escape(w) for w in ordered if len(w) < _SHORT and w not in named)
        parts = [f"(?<![A-Za-z0-9])(?:{long})(?![A-Za-z0-9])"] if long else []
        parts += [rf"(?<=['\"@])(?:{short})(?=['\":])"] if short else []
        self._known = re.compile("|".join(parts), re.IGNORECASE) if parts else None

    def record(self, record: Record) -> Record:
        """The record, sealed anew, of the current version and without raw outputs."""
        before = len(self.found)
        document: dict[str, Any] = {**record}
        for name in document.get("raw", ()):
            self._note("raw output", name, "")
        if "raw" in document:
            document["raw"] = []
        if "commands" in document:
            document["commands"] = [self._command(command) for command in document["commands"]]
        if "nodes" in document:
            document["nodes"] = [self._node(node) for node in document["nodes"]]
        counts = dict(document.pop("scrubbed", {}))
        document = self._walk(document, schema("record"))
        document["id"] = _NOT_OF_AN_ID.sub("", document["id"])
        if document["cluster"]["name"] != record["cluster"]["name"]:
            document["cluster"]["name"] = _CLUSTER_NAME
        total = Counter(counts) + Counter(finding.kind for finding in self.found[before:])
        if total:
            document["scrubbed"] = dict(sorted(total.items()))
        return sealed({**document, "schema_version": SCHEMA_VERSION})

    def text(self, text: str) -> str:
        """A text without what is known or looks private.

        Its longest lines are joined, or escapes dropped, where only that shows what is private.
        """
        if not text or text in self.closed:
            return text
        if text not in self._done:  # Records of one run have most of their texts in common.
            begin = len(self.found)
            self._done[text] = (self._read(text), self.found[begin:])
            del self.found[begin:]
        shown, found = self._done[text]
        self.found += found
        return shown

    def _read(self, text: str) -> str:
        begin = len(self.found)
        shown = self._scrubbed(text)
        if "\n" in text:
            end = len(self.found)
            joined = self._scrubbed(_joined(text))
            apart, together = self.found[begin:end], self.found[end:]
            more = sum(len(f.was) for f in together) > sum(len(f.was) for f in apart)
            self.found[begin:] = together if more else apart
            shown = joined if more else shown
        plain = _without_escapes(shown)
        return shown if plain == shown or (read := self._scrubbed(plain)) == plain else read

    def _scrubbed(self, text: str) -> str:
        if text.lower() in self.words:
            return self._instead(text)
        # The hash of a store path is no serial number, nor its version an address.
        parts = re.split(f"({_STORE_PATH.pattern})", text)
        return "".join(
            self._words(self._host_of_system(part)) if place % 2 else self._patterns(part)
            for place, part in enumerate(parts)
        )

    def _host_of_system(self, path: str) -> str:
        (system,) = (
            p for p in patterns.PATTERNS if p.expression.pattern.startswith("nixos-system")
        )
        return self._replace(path, system.kind, system.spans(path), system.instead)

    def _patterns(self, text: str) -> str:
        # Known words go first: they are more specific, but do not cut keys and ids apart.
        for pattern in patterns.PATTERNS:
            if pattern.kind == "user name":
                break
            text = self._replace(text, pattern.kind, pattern.spans(text), pattern.instead)
        text = self._words(text)
        for pattern in patterns.PATTERNS:
            text = self._replace(text, pattern.kind, pattern.spans(text), pattern.instead)
        return self._replace(text, "address", patterns.ipv6_spans(text), "[address]")

    def _words(self, text: str) -> str:
        if self._known is None:
            return text
        return self._known.sub(lambda match: self._instead(match[0]), text)

    def _instead(self, was: str) -> str:
        word = self.words.get(was.lower(), _OTHER_CASE)
        if word.instead != was:
            self._note(word.kind, was, word.instead)
        return word.instead

    def _replace(self, text: str, kind: str, spans: Iterator[tuple[int, int]], instead: str) -> str:
        if kind in self.keep:
            return text
        parts, last = [], 0
        for begin, end in spans:
            self._note(kind, text[begin:end], instead)
            parts += [text[last:begin], instead]
            last = end
        return "".join([*parts, text[last:]])

    def _note(self, kind: str, was: str, now: str) -> None:
        self.found.append(Replaced(kind, was, now))

    def _walk(self, value: object, rules: Mapping[str, Any]) -> Any:
        """Scrub every text but those of closed lists; keys too, but those that the schema has."""
        if "$ref" in rules:
            rules = schema("record")["$defs"][rules["$ref"].rpartition("/")[2]]
        if isinstance(value, str):
            digits = rules.get("pattern", "").startswith("^[0-9a-f]{")
            return value if digits or {"enum", "const"} & rules.keys() else self.text(value)
        if isinstance(value, list):
            return [self._walk(one, rules.get("items", {})) for one in value]
        if isinstance(value, dict):
            known, rest = rules.get("properties", {}), rules.get("additionalProperties", {})
            return {
                key if key in known else self.text(key): self._field(
                    key, inner, known.get(key, rest if isinstance(rest, dict) else {})
                )
                for key, inner in value.items()
            }
        return value

    def _field(self, key: str, value: object, rules: Mapping[str, Any]) -> object:
        if isinstance(value, str):
            if key in _DIGESTS and _DIGEST.fullmatch(value):
                return value
            if value and SECRET_NAME.search(key):
                return self._secret(value)
        if isinstance(value, int) and not isinstance(value, bool) and _NUMBERED.search(key):
            self._note("serial number", str(value), "[serial]")
            return "[serial]"
        return self._walk(value, rules)

    def _command(self, command: RecordedCommand) -> RecordedCommand:
        """Drop the values of options whose names are those of secrets."""
        argv = list(command["argv"])
        for place, word in enumerate(argv[:-1], 1):
            if word.startswith("-") and is_secret(word, argv[place]):
                argv[place] = self._secret(argv[place])
        return {**command, "argv": argv}

    def _secret(self, value: str) -> str:
        if value != HIDDEN:
            self._note("key", value, HIDDEN)
        return HIDDEN

    def _node(self, node: RecordedNode) -> RecordedNode:
        line = node.get("facts", {}).get("command_line")
        if not isinstance(line, str):
            return node
        kept, removed = split_kernel_parameters(line)
        for word in removed:
            self._note("kernel parameter", word, "")
        return {**node, "facts": {**node["facts"], "command_line": " ".join(kept)}}


_HEAD = ("what", "platform", "case", "parameters", "metric", "value", "samples (runs)")
_LONGEST_NAME = 40
_README = "README.md"


@dataclass(frozen=True)
class Publication:
    """Records fit to be published, the name of their folder, and what was taken out of them."""

    name: str
    title: str
    records: tuple[Record, ...]
    found: tuple[Replaced, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters, as they will be read."""
        return tuple(sorted({record["cluster"]["name"] for record in self.records}))

    def readme(self) -> str:
        """Return the measured values in one table, and what was taken out."""
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
            save(record, folder / "records" / f"{record['id']}.json")
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
    closed = patterns.closed_words(names)
    words = patterns.known_words(folder.records, cluster, closed, users, hosts, homes, others)
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
    every = "\n".join({folder.title, *(text for _, text in patterns.texts(folder.records))})
    for word in words:
        if not word or not re.search(rf"(?i)(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", every):
            near = get_close_matches(word.lower(), {*patterns.WORD.findall(every.lower())}, n=1)
            raise InputError(
                f"No text of {str(folder.path)!r} has the word {word!r}"
                + (f"; did you mean {near[0]!r}?" if near else ".")
                + " Without --hide, publish shows the words that only you can judge."
            )


def _title(folder: RunFolder, records: Sequence[Record], scrubber: Scrubber) -> str:
    """Name what ran, and on what; of a folder that is published already, its own title."""
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
    """Return the parameters that all rows have, in words, and the rows."""
    table = tidy(records)
    failed = table[table["outcome"] != "ok"]
    rows = [*as_rows(by_case(table)), *as_rows(failed)]
    parameters = [_parameters(row["parameters"], row["variant"]) for row in rows]
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


def _parameters(*texts: str) -> dict[str, object]:
    return {key: value for text in texts if text for key, value in json.loads(text).items()}


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
