"""Collections of records: found in files and folders, validated, each counted once.

A run folder is one driver's: by a lock that ends with the process that has it, however that ends.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import shlex
import socket
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import click
import orjson

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import read_json
from nixwulf.core.schema import check
from nixwulf.core.text import login
from nixwulf.results.identity import record_key
from nixwulf.results.record import PlanDocument, Record, digest, load

PLAN = "plan.json"
_T = TypeVar("_T")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

# Outputs of programs and references of tokens, which may be JSON and are no records.
_NO_RECORDS = frozenset({"raw", "references"})
_MANY = 500  # records take a second to read
_MOST_FOLDERS = 20_000  # A disk has more, and takes a minute to look through.
# What two records of the same numbers may differ in: the driver that wrote them down.
_OF_THE_WRITER = frozenset({"digest", "provenance"})


@dataclass(frozen=True)
class Entry:
    """A validated record and the file that holds it; a report's path is relative to its folder."""

    path: Path
    record: Record

    @property
    def raw(self) -> tuple[Path, ...]:
        """The raw outputs of the run, beside its folder of records; None of what is no run."""
        folder = self.path.parent.parent
        return tuple(folder / name for name in self.record.get("raw", ()))

    @property
    def started(self) -> str:
        """The start of the run, UTC; empty where that is not known."""
        return str(self.record.get("started", ""))


def record_paths(paths: Paths) -> list[Path]:
    """The record files of files, run folders and folders of those, in the order given.

    Of a folder: the files records/*.json anywhere in it, sorted; where there is none, the *.json
    that lie in it. Raises InputError for what does not exist or holds no record.
    """
    found: list[Path] = []
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    for path in map(Path, several):
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            found += _in_folder(path)
        else:
            what = "is neither a file nor a folder" if path.exists() else "does not exist"
            raise InputError(f"{str(path)!r} {what}; name a record, a run folder or more.")
    return found


def read_entries(paths: Paths) -> Iterator[Entry]:
    """Read every record of files and folders with its file, validated; each counts once.

    Raises InputError for a bad record, and for two of one identity and different content.
    """
    known = Identities()
    values: dict[Hashable, object] = {}
    found = record_paths(paths)
    with progress(found, "Reading", len(found), len(found)) as shown:
        for path in shown:
            record = load(path)
            if known.add(path, record):
                _shared(record, values)
                yield Entry(path, record)
    if len(found) >= _MANY:
        gc.freeze()  # to look through 5,000 for garbage, again and again, takes 3 s


def progress(
    steps: Iterable[_T], label: str, length: int, records: int
) -> AbstractContextManager[Iterable[_T]]:
    """Iterate with a bar on a terminal's standard error, where there are many records."""
    hidden = records < _MANY or not sys.stderr.isatty()
    return click.progressbar(steps, length, label, hidden, file=sys.stderr)


def _shared(value: object, known: dict[Hashable, object]) -> object:
    """Keep what is equal in several documents once in memory; known: by text, or hash of bytes."""
    if isinstance(value, str):
        return known.setdefault(value, value)
    if not isinstance(value, dict | list):
        return value
    if isinstance(value, list) and not (value and isinstance(value[0], dict | list | str)):
        return value
    # Of 5,000 records a tenth of the time that keys made in Python take.
    key = blake2b(orjson.dumps(value), digest_size=16).digest()
    if key not in known:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            value[name] = _shared(inner, known)
        known[key] = value
    return known[key]


def read_records(paths: Paths) -> Iterator[Record]:
    """Read the records of read_entries alone."""
    return (entry.record for entry in read_entries(paths))


class Identities:
    """The records that were seen, by record_key, and the files that have them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, path: Path, record: Record) -> bool:
        """Add a record; tell whether it is new; raises InputError if its content differs."""
        identity = record_key(record)
        digest, first = self._seen.get(identity, ("", ""))
        if not first:
            self._seen[identity] = (record["digest"], str(path))
        elif digest != record["digest"]:
            _refuse_if_different(Path(first), path, record)
        return not first


def _refuse_if_different(first: Path, second: Path, record: Record) -> None:
    other = read_json(first)
    keys = sorted((other.keys() | record.keys()) - _OF_THE_WRITER)
    different = [key for key in keys if other.get(key) != record.get(key)]
    if not different:
        return
    if ("scrubbed" in other) != ("scrubbed" in record):
        raise InputError(
            f"{second}: id {record['id']!r} is also that of {str(first)!r}, and one of the two is "
            "the copy that 'nixwulf publish' made of the other; name only one of them."
        )
    where, *values = _first_difference(different[0], other, record)
    raise InputError(
        f"{second}: id {record['id']!r} is also that of {str(first)!r}, and they differ in "
        f"{where} ({_short(values[1])} here, {_short(values[0])} there); name only one of them."
    )


def _first_difference(
    key: str, first: Mapping[str, object], second: Mapping[str, object]
) -> tuple[str, object, object]:
    """The dotted path of the first key in which two dictionaries differ, and both values."""
    one, two = first.get(key), second.get(key)
    if isinstance(one, dict) and isinstance(two, dict):
        inner = next(k for k in sorted(one.keys() | two.keys()) if one.get(k) != two.get(k))
        where, *values = _first_difference(inner, one, two)
        return (f"{key}.{where}", values[0], values[1])
    return key, one, two


def _short(value: object) -> str:
    return "nothing" if value is None else quoted(value)


def _in_folder(folder: Path) -> list[Path]:
    found: list[Path] = []
    for count, (parent, folders, files) in enumerate(os.walk(folder)):
        if count > _MOST_FOLDERS:
            raise InputError(
                f"{str(folder)!r} has more than {_MOST_FOLDERS:,} folders in it; name the run "
                "folders."
            )
        folders[:] = [name for name in folders if name not in _NO_RECORDS]
        if Path(parent).name == "records":
            found += [Path(parent, name) for name in files if name.endswith(".json")]
    found = found or [path for path in folder.glob("*.json") if path.name != PLAN]
    if not found:
        raise InputError(
            f"{str(folder)!r} holds no record (no file records/*.json); name a record, or the "
            "folder that 'nixwulf bench' wrote, or run it again with --resume."
        )
    return sorted(found, key=str)


def read_plan(path: Path) -> PlanDocument:
    """A plan's document that passed its schema and is as it was made; raises InputError."""
    document: PlanDocument = read_json(path)
    check(document, "plan", str(path))
    if document["digest"] != digest(document):
        raise InputError(
            f"{path}: the plan was edited after it was made; restore it, or start a new run."
        )
    # Anybody can compute a digest: what the plan is made of is held against its own schemas.
    check(document["sweep"]["document"], "sweep", f"{path}: sweep")
    check(document["cluster"]["document"], "cluster", f"{path}: cluster")
    return document


@dataclass(frozen=True)
class RunFolder:
    """The records of a folder, sorted by path, and its plan where there is one."""

    path: Path
    entries: tuple[Entry, ...]
    plan: PlanDocument | None

    @property
    def records(self) -> tuple[Record, ...]:
        """The records alone."""
        return tuple(entry.record for entry in self.entries)

    @property
    def title(self) -> str:
        """The sweep's name, else that of the folder."""
        return str(self._sweep.get("name") or self.path.resolve().name)

    @property
    def description(self) -> str:
        """The sweep's description; may be empty."""
        return str(self._sweep.get("description", ""))

    @property
    def planned_runs(self) -> int | None:
        """Runs in the plan; None without a plan."""
        return len(self.plan["cases"]) * self.plan["repetitions"] if self.plan else None

    @property
    def _sweep(self) -> Mapping[str, object]:
        return self.plan["sweep"]["document"] if self.plan else {}


def read_folder(folder: Path) -> RunFolder:
    """Read a run folder; raises InputError when it is none, is empty or holds a bad record."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{str(folder)!r} {problem}; name the folder that 'nixwulf bench' wrote.")
    plan = read_plan(folder / PLAN) if (folder / PLAN).exists() else None
    entries = (
        Entry(entry.path.relative_to(folder), entry.record) for entry in read_entries(folder)
    )
    return RunFolder(folder, tuple(entries), plan)


LOCK = ".lock"
_MOST_BYTES = 4096
# Of a file system that knows no locks, some network and FUSE ones: there nobody is kept out.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


@contextmanager
def only_driver(folder: Path) -> Iterator[None]:
    """Keep every other driver out of the folder while the block lasts.

    The folder is made where it is not there, and removed where nothing is left in it.

    Raises InputError: another driver has the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = _locked(path)
    try:
        with suppress(OSError):  # a full disk: the lock holds, only who has it is not known
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_self()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
            folder.rmdir()
        os.close(descriptor)


def _locked(path: Path) -> int:
    """The descriptor of a file that is locked and still lies there: its last owner removes it."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            holder = os.pread(descriptor, _MOST_BYTES, 0)
            os.close(descriptor)
            raise InputError(f"{str(path.parent)!r} {_sentence(holder)}") from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)


def _self() -> dict[str, str | int]:
    return {
        "user": login() or str(os.getuid()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "command": shlex.join(["nixwulf", *sys.argv[1:]]),
    }


def _sentence(content: bytes) -> str:
    """Say who has the folder, from what that driver wrote; it may have written nothing yet."""
    try:
        found = json.loads(content)
        user, host, pid, since, command = (
            str(found[key]) for key in ("user", "host", "pid", "since", "command")
        )
    except (ValueError, LookupError, TypeError):
        return "is in use by another nixwulf, which has just begun; wait until it has ended."
    at = "" if host == socket.gethostname() else f" on {quoted(host)}"
    return (
        f"is in use by user {quoted(user)}, process {pid} on {quoted(host)}, since {since} "
        f"({quoted(command)}); wait until it has ended, or end it with 'kill {pid}'{at}."
    )
