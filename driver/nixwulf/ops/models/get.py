"""A model brought into this machine's folder: from a hub, a URL or a path, hashed, whole or not."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from nixwulf.core import web
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import inside, read_json, sha256_of
from nixwulf.core.names import Refusal
from nixwulf.core.text import GIB, plural
from nixwulf.ops.models import hub
from nixwulf.ops.models.machines import folder_here, here
from nixwulf.ops.models.store import (
    SIDE,
    SUFFIXES,
    Document,
    Place,
    digest_of,
    manifest_of,
)

Say = Callable[[str], None]


def get(
    source: str, only: str | None, revision: str | None, sha256: str | None, say: Say
) -> Document:
    """Get a model; one that is there is not fetched again.

    Args:
        source: ORG/REPO on a hub, a URL of one file, or a path.
        only: a pattern of the names of a repository's files.
        sha256: what one file has to be, in hexadecimal digits.

    Returns:
        The model's name, bytes, sha256 and, from elsewhere, origin.

    Raises:
        InputError: there is no such model, or it has to be chosen.
        NixwulfError: it did not arrive, or is not what it should be.
    """
    if sha256 and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise InputError(f"--sha256: {sha256!r} is not 64 hexadecimal digits.")
    is_url = "://" in source
    is_path = source.startswith(("/", ".", "~")) or Path(source).exists()
    if (only or revision) and (is_url or is_path):
        raise InputError(f"--only and --revision are for a hub's repository, not {source!r}.")
    if is_url:
        return _one_file(source, sha256, say)
    if is_path:
        return _from_path(Path(source).expanduser(), sha256, say)
    return _from_hub(source, only, revision, sha256, say)


def _from_hub(
    repository: str, only: str | None, revision: str | None, sha256: str | None, say: Say
) -> Document:
    if hub.key_in_clear():
        say(web.warning(hub.endpoint()))
    with _cut(None, hub.endpoint()):
        found = hub.look(repository, revision)
    files = _chosen(found, only)
    whole = len(files) > 1 and any(file.name.endswith(".safetensors") for file in files)
    name = repository.rpartition("/")[2] if whole else PurePosixPath(files[0].name).name
    place = _new_place(name)
    staging = _staging(f"{repository}@{found.commit}")
    _require_room(sum(file.bytes for file in files), staging)
    say(f"{repository} at {found.commit[:12]}: {plural(len(files), 'file')}")
    for file in files:
        with _cut(staging, hub.endpoint()):
            path = hub.fetch(repository, found.commit, file, staging)
        expected = sha256 if sha256 and len(files) == 1 else file.sha256
        _require_sha256(path, expected, f"{repository}/{file.name}")
        _require_own_shards(path)
    for file in files:
        own = f"{place.name}/{file.name}" if whole else PurePosixPath(file.name).name
        _move(inside(staging, file.name), inside(place.folder, own))
    shutil.rmtree(staging)
    return _kept(place, f"{repository}@{found.commit}")


def _chosen(found: hub.Repository, only: str | None) -> list[hub.File]:
    """The files of one model; raises InputError where there are several or none."""
    files = [file for file in found.files if fnmatch(file.name, only or "*")]
    if not files:
        raise InputError(f"--only: no file of {found.name!r} is like {only!r}.")
    safetensors = any(file.name.endswith(".safetensors") for file in files)
    if safetensors and not only:
        return [file for file in files if not hub.is_other_form(file.name)]
    if safetensors:
        return files
    ggufs: dict[str, list[hub.File]] = {}
    for file in files:
        if file.name.endswith(SUFFIXES):
            ggufs.setdefault(_model_of(file.name), []).append(file)
    if len(ggufs) == 1:
        return next(iter(ggufs.values()))
    if not ggufs:
        raise InputError(
            f"{found.name!r} has no model in a form that an engine reads: {', '.join(SUFFIXES)}."
        )
    names = sorted(ggufs)
    raise InputError(
        f"{found.name!r} has {len(ggufs)} models; choose one with --only, such as "
        f"--only {names[0]!r} (there are {', '.join(names)})."
    )


def _model_of(name: str) -> str:
    """The name that all parts of a split GGUF share."""
    return re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-00001\1", name)


def _one_file(url: str, sha256: str | None, say: Say) -> Document:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(f"{url!r} is no URL: {error}.") from None
    if parts.scheme not in {"http", "https"}:
        raise InputError(f"{url!r} is no http or https URL.")
    place = _new_place(PurePosixPath(parts.path).name)
    if not place.name.endswith(SUFFIXES):
        raise InputError(f"{url!r} names no file of {', '.join(SUFFIXES)}.")
    # A user, a password or a signature in it are nobody else's business.
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    staging = _staging(origin)
    say(f"{origin}")
    path = inside(staging, place.name)
    with _cut(staging, origin):
        hub.download(url, path, lambda size: _require_room(size, staging))
    _require_sha256(path, sha256, origin)
    _move(path, place.path)
    shutil.rmtree(staging)
    return _kept(place, origin)


def _from_path(source: Path, sha256: str | None, say: Say) -> Document:
    source = source.absolute()
    try:
        there = Place(str(source.parent), source.name)
        names = there.files()
        before = there.stats(names)
    except Refusal as error:
        raise InputError(f"{error}.") from None
    place = _new_place(there.name)
    if source.is_relative_to(folder_here()):
        return _kept(place, None)
    staging = _staging(str(source))
    _require_room(sum(size for size, _ in before), staging)
    say(f"{there.path}: {plural(len(names), 'file')}")
    try:
        for name in names:
            copied = inside(staging, name)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(there.file(name), copied)
            _require_own_shards(copied)
        if there.stats(names) != before:
            raise NixwulfError(f"{str(there.path)!r} changed while it was copied; copy it again.")
    except OSError as error:
        raise NixwulfError(f"Cannot copy {str(there.path)!r}: {error.strerror}.") from None
    for name in names if len(names) == 1 else ():
        _require_sha256(inside(staging, name), sha256, name)
    for name in names:
        _move(inside(staging, name), inside(place.folder, name))
    shutil.rmtree(staging)
    return _kept(place, None)


def _new_place(name: str) -> Place:
    try:
        return Place(str(folder_here()), name)
    except Refusal as error:
        raise InputError(f"{error}.") from None


def _staging(origin: str) -> Path:
    """Where what arrives of an origin waits until it is whole: the same each time."""
    name = hashlib.sha256(os.fsencode(origin)).hexdigest()
    path = folder_here() / SIDE / "get" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def _require_room(needed: int, staging: Path) -> None:
    """Raise NixwulfError where it does not fit, beside what has arrived of it."""
    arrived = _arrived(staging)
    free = shutil.disk_usage(staging).free
    if needed - arrived > free:
        raise NixwulfError(
            f"The model needs {(needed - arrived) / GIB:.2f} GiB and {str(folder_here())!r} has "
            f"{free / GIB:.2f} free; remove one by 'nixwulf models rm', or set XDG_CACHE_HOME to "
            "another disk."
        )


def _arrived(staging: Path) -> int:
    """The bytes of the disk that what waits there takes; None of what says how to go on."""
    files = (path for path in staging.rglob("*") if path.is_file() and path.name[-1] != ".")
    return sum(path.stat().st_blocks * 512 for path in files)


@contextmanager
def _cut(staging: Path | None, where: str) -> Iterator[None]:
    """Says of what was cut off what to do next: there is something to go on with, or nothing."""
    try:
        yield
    except hub.Cut as error:
        if staging and _arrived(staging):
            again = "what has arrived is kept: run the same command again"
        elif os.environ.get("HF_ENDPOINT") == where:
            again = f"look at the network ('curl -I {where}'), and at HF_ENDPOINT, which names it"
        else:
            again = (
                f"look at the network ('curl -I {where}'); HF_ENDPOINT can name a mirror of hubs"
            )
        raise NixwulfError(f"{error.message}; {again}.") from None


def _require_own_shards(path: Path) -> None:
    """Raise InputError for an index of safetensors that names files elsewhere: engines follow."""
    if path.name.endswith(".safetensors.index.json"):
        document = read_json(path)
        shards = document.get("weight_map") if isinstance(document, dict) else None
        found = list(shards.values()) if isinstance(shards, dict) else []
        for shard in [one for one in found if not isinstance(one, str)] or set(found):
            inside(path.parent, shard)


def _require_sha256(path: Path, expected: str | None, what: str) -> None:
    if expected is None:
        return
    found = sha256_of(path)
    if found != expected.lower():
        path.unlink()
        raise NixwulfError(
            f"{what!r} arrived with sha256 {found} and should have {expected}; it was removed: get "
            "it again, and where that does not help, its source is damaged."
        )


def _move(path: Path, final: Path) -> None:
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        path.replace(final)
    except OSError as error:
        raise NixwulfError(
            f"{str(final)!r} cannot be made: {error.strerror}; look at what is there by 'nixwulf "
            "models ls', and run the same command again."
        ) from None


def _kept(place: Place, origin: str | None) -> Document:
    """Hash what has arrived, and keep where it is from."""

    def keep(folder: str, name: str) -> Document:
        manifest = manifest_of(place)
        if origin and manifest.get("origin") != origin:
            manifest = {**manifest, "origin": origin}
            names = [file["name"] for file in manifest["files"]]
            place.write_side(manifest, place.stats(names))
        return {
            **{key: manifest[key] for key in ("name", "bytes", "sha256")},
            "origin": manifest.get("origin"),
            "digest": digest_of(manifest),
        }

    return here(keep, place.name)
