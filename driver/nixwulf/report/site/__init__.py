"""The static site of records: a table of all, and a page for each model, platform and fabric."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nixwulf.core.errors import InputError
from nixwulf.report.site.pages import Site, unscrubbed
from nixwulf.results.store import progress, read_entries

MARKER = ".nixwulf-site"
_ABOUT = "Made by 'nixwulf site', which replaces this folder as a whole.\n"


@dataclass(frozen=True)
class Made:
    """What was made: counts of records and values, and of runs that hold private texts."""

    records: int
    values: int
    unscrubbed: int


def make(paths: Sequence[Path], out: Path) -> Made:
    """Make the site of all records in files and folders in the folder `out`, as a whole or not.

    Raises InputError for a bad record, and for a folder that is not a site's.
    """
    check_out(out, paths)
    site = Site(read_entries(paths))
    with replaced(out) as folder:
        steps = len(site.groups) + (records := len(site.sources))
        with progress(site.files(), "Writing", steps, records) as shown:
            for name, text in shown:
                file = folder / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8", errors="backslashreplace")
        for source in site.sources:
            shutil.copyfile(source.entry.path, folder / "records" / f"{source.page}.json")
    return Made(
        records=len(site.sources),
        values=sum(row.value is not None for row in site.rows),
        unscrubbed=unscrubbed(source.record for source in site.sources),
    )


def check_out(out: Path, inputs: Iterable[Path]) -> None:
    """Raise InputError unless a site may be written to a folder."""
    name = str(out)
    for path in inputs:
        if out.resolve().is_relative_to(path.resolve()):
            raise InputError(
                f"{name!r} lies in {str(path)!r}, whose records would then be read twice; "
                "name a folder beside it with --out."
            )
        if path.resolve().is_relative_to(out.resolve()):
            raise InputError(
                f"{str(path)!r} lies in {name!r}, and all of a site's folder is replaced; name "
                "another one with --out."
            )
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"{name!r} is not a folder; name another one with --out.")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise InputError(
            f"{name!r} holds files that 'nixwulf site' did not make (it has no {MARKER}), and all "
            "of a site's folder is replaced; name another one with --out."
        )


@contextmanager
def replaced(out: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `out` when all went well, and is gone otherwise."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise InputError(
            f"Cannot make a folder in {str(out.parent)!r}: {error.strerror}; name another one "
            "with --out."
        ) from None
    try:
        (new / MARKER).write_text(_ABOUT, encoding="utf-8")
        yield new
        new.chmod(0o755)
        _swap(new, out)
    except OSError as error:
        raise InputError(
            f"Cannot write {str(out)!r}: {error.strerror}; free some space or name another folder "
            "with --out."
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _swap(new: Path, out: Path) -> None:
    """Put `new` where `out` is, and what was there where `new` was."""
    old = new.with_name(f"{new.name}.old")
    if out.exists():
        out.replace(old)
    try:
        new.replace(out)
    except OSError:
        if old.exists():
            old.replace(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
