"""A model brought into this machine's folder: from a hub, a URL or a path, hashed, whole or not.

Elsewhere is a repository of a Hugging Face hub, or one file at a URL; both are resumed, and bytes
and seconds are bounded.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nixwulf.core import web
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import first_bytes, inside, read_json, sha256_of
from nixwulf.core.names import Refusal
from nixwulf.core.secrets import cut
from nixwulf.core.text import GIB, plural
from nixwulf.llm import catalog, dllama, safetensors
from nixwulf.llm.catalog import Cut, File, HubRefused, Repository
from nixwulf.llm.model_facts import NOT_OF_A_MODEL
from nixwulf.ops.models.push import folder_here, here
from nixwulf.ops.models.store import SIDE, SUFFIXES, Document, Place, digest_of, manifest_of

if TYPE_CHECKING:
    import httpx

# The same weights again, in forms beside safetensors.
_OTHER_FORMS = (".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth")
_OTHER_FOLDERS = (".", "consolidated", "metal/", "onnx/", "openvino/", "original/")
_TIMEOUT_S = 60.0  # of one reading
# Of all that is awaited: so much has to come in so long.
_PATIENCE_S, _LEAST_BYTES = 60.0, 1 << 18
_MOST_REDIRECTS = 10
# Larger ones need the hub's own protocol (huggingface_hub.constants.MAX_HTTP_DOWNLOAD_SIZE).
_LARGEST_BY_HTTP = 50 * 10**9
_PARTIAL, _NOTHING_LEFT = 206, 416
_THEN = "; get it from another place."
_SAID_EACH_S = 10.0
# How files begin; those of safetensors apart: a page to log in may have any name.
_MAGICS = {".gguf": 0x46554747, ".m": dllama.MAGIC, ".t": dllama.TOKENIZER_MAGIC}
_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})\.(?:gguf|safetensors)")


def fetch(found: Repository, file: File, folder: Path) -> Path:
    """A file of a repository below a folder; goes on where an earlier attempt was cut off.

    The library's own download begins anew in each process: it fetches what only it is given.
    """
    import huggingface_hub

    path = inside(folder, file.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not file.bytes:  # nothing has to be asked for
        path.write_bytes(b"")
    if path.exists() and path.stat().st_size == file.bytes:
        return path
    try:
        if file.bytes <= _LARGEST_BY_HTTP:
            url = found.url(file.name)
            return download(url, path, lambda size: None, catalog.headers(), size=file.bytes)
        _watched(
            lambda: huggingface_hub.hf_hub_download(
                found.name, file.name, revision=found.commit, local_dir=folder
            ),
            lambda: sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()),
            catalog.endpoint(),
        )
    except HubRefused as error:
        catalog.refuse(error, found.name, found.commit)
    if (there := path.stat().st_size) != file.bytes:
        raise Cut(f"{catalog.endpoint()} sent {there} of {file.bytes} bytes of {file.name!r}")
    return path


def _watched(work: Callable[[], object], arrived: Callable[[], float], where: str) -> None:
    """Wait for work in a thread, and no longer than something comes; raises what it raises.

    A limit of each reading is none of all: a byte in a while, or of a header, ends no reading.
    arrived: how many bytes there are.
    """
    done: Future[object] = Future()

    def guarded() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # it is raised again below
            done.set_exception(error)

    before = arrived()
    threading.Thread(target=guarded, daemon=True).start()
    while not wait([done], _PATIENCE_S).done:
        now = arrived()
        if now - before < _LEAST_BYTES:
            raise Cut(f"{where} stands still: {now - before:.0f} bytes came in {_PATIENCE_S:g} s")
        before = now
    try:
        done.result()
    except NixwulfError:
        raise
    except Exception as error:
        words = cut(" ".join(str(error).split()), 200) or type(error).__name__
        raise Cut(f"{where} broke off ({words})") from None


def download(
    url: str,
    path: Path,
    require_room: Callable[[int], None],
    headers: Mapping[str, str] | None = None,
    *,
    size: int | None = None,
) -> Path:
    """Download a file; goes on where an attempt was cut off, if it is the same file still.

    url: redirections are followed, and other hosts get no Authorization. require_room: called with
    its size in bytes. size: the bytes that it has to have; None: as many as the server says first.

    Raises:
        Cut: it did not arrive, or only a part, which is kept.
        NixwulfError: the server refused, or sent something else than it said.
    """
    # No foreign name ends in a full stop: a file of the same folder is no tag of another.
    tag = path.with_name(f"{path.name}.tag.")
    strong, _, whole = tag.read_text("utf-8").partition(" ") if tag.exists() else ("", "", "")
    have = path.stat().st_size if path.exists() and whole else 0
    asked = {**(headers or {}), "Accept-Encoding": "identity", "User-Agent": "nixwulf"}
    if have:
        asked |= {"Range": f"bytes={have}-", "If-Range": strong}
    came = [0]

    def work() -> None:
        with _answer(url, asked) as answer:
            if answer.status_code == _NOTHING_LEFT:
                if whole == str(have) and size in (None, have):
                    return
                tag.unlink(missing_ok=True)
            if not answer.is_success:
                raise HubRefused(url, answer.status_code, answer.headers)
            begin = have if answer.status_code == _PARTIAL else 0
            total = _total(answer, url, begin, size)
            announced = int(whole) if begin and size is None else size
            if announced not in (None, total):
                raise NixwulfError(
                    f"{url!r} has {total} bytes, and {announced} were announced{_THEN}"
                )
            require_room(total)
            try:
                _store(answer, path, tag, begin, total, came)
            except OSError as error:
                words = os.strerror(error.errno or 0)
                raise NixwulfError(f"Cannot write {str(path)!r}: {words}.") from None
            if begin + came[0] > total:
                path.unlink()
                raise NixwulfError(f"{url!r} sends more than {total} bytes{_THEN}")
            if begin + came[0] != total:
                raise Cut(f"{url!r} ended after {begin + came[0]} of {total} bytes")

    _watched(work, lambda: came[0], repr(url))
    return path


def _total(answer: httpx.Response, url: str, begin: int, size: int | None) -> int:
    """Read a file's size from the head of an answer that BEGINs there; raises NixwulfError."""
    length = answer.headers.get("Content-Length")
    total = begin + int(length) if length else size
    span = answer.headers.get("Content-Range", "")
    other = answer.headers.get("Content-Encoding", "identity") != "identity"
    if answer.status_code == _PARTIAL:
        other |= not (begin and span.startswith(f"bytes {begin}-"))
    if other or total is None:
        raise NixwulfError(f"{url!r} answers in another form, or without a length{_THEN}")
    return total


def _store(
    answer: httpx.Response, path: Path, tag: Path, begin: int, total: int, came: list[int]
) -> None:
    """Write a body behind what is there; came counts its bytes, to more than all at the most."""
    # Only a strong tag means that the bytes are the same.
    strong = answer.headers.get("ETag", "")
    tag.unlink(missing_ok=True)
    if re.fullmatch('"[!-~]+"', strong):
        tag.write_text(f"{strong} {total}", "utf-8")
    with path.open("ab" if begin else "wb") as file:
        for piece in answer.iter_raw():
            came[0] += len(piece)
            if begin + came[0] > total:
                return
            file.write(piece)


@contextmanager
def _answer(url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
    """The answer at the end of redirections, of which no body is read."""
    import httpx

    with ExitStack() as stack:
        request: httpx.Request | None = httpx.Request("GET", url, headers=headers)
        for _ in range(_MOST_REDIRECTS):
            if request is None:
                break
            verify = web.tls() if request.url.scheme == "https" else False
            client = stack.enter_context(httpx.Client(timeout=_TIMEOUT_S, verify=verify))
            answer = client.send(request, stream=True)
            stack.callback(answer.close)
            request = answer.next_request  # to another host without Authorization
        else:
            raise NixwulfError(f"{url!r} redirects without end{_THEN}")
        yield answer


Say = Callable[[str], None]


def get(
    source: str, only: str | None, revision: str | None, sha256: str | None, say: Say
) -> Document:
    """Name, bytes, sha256 and origin of a model; one that is there is not fetched again.

    source: ORG/REPO on a hub, a URL of one file, or a path. only: a pattern of the names of a
    repository's files. sha256: what one file has to be, in hexadecimal digits.

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
    if web.in_clear(catalog.endpoint()) and catalog.headers():
        say(web.warning(catalog.endpoint()))
    with _cut(None, catalog.endpoint()):
        found = catalog.look(repository, revision, catalog.headers())
    files = _chosen(found, only)
    whole = len(files) > 1 and any(file.name.endswith(".safetensors") for file in files)
    _require_parts(repository, [file.name for file in files])
    name = repository.rpartition("/")[2] if whole else PurePosixPath(files[0].name).name
    place = _new_place(name)
    staging = _staging(f"{repository}@{found.commit}")
    _require_room(sum(file.bytes for file in files), staging)
    say(f"{repository} at {found.commit[:12]}: {plural(len(files), 'file')}")
    names = {file.name for file in files}
    said = time.monotonic()
    for number, file in enumerate(files):
        if time.monotonic() - said > _SAID_EACH_S:
            say(f"{number} of {plural(len(files), 'file')}, {_arrived(staging) / GIB:.2f} GiB")
            said = time.monotonic()
        with _cut(staging, catalog.endpoint()):
            path = fetch(found, file, staging)
        expected = sha256 if sha256 and len(files) == 1 else file.sha256
        _require_sha256(path, expected, f"{repository}/{file.name}")
        if fault := _fault(path, file.name, names):
            path.unlink()
            raise InputError(f"{repository!r}: {fault}{_THEN}")
    for file in files:
        own = f"{place.name}/{file.name}" if whole else PurePosixPath(file.name).name
        _move(inside(staging, file.name), inside(place.folder, own))
    shutil.rmtree(staging)
    return _kept(place, f"{repository}@{found.commit}")


def _chosen(found: Repository, only: str | None) -> list[File]:
    """The files of one model; raises InputError where there are several or none."""
    files = [file for file in found.files if fnmatch(file.name, only or "*")]
    if not files:
        raise InputError(f"--only: no file of {found.name!r} is like {only!r}.")
    safetensors = any(file.name.endswith(".safetensors") for file in files)
    if safetensors and not only:
        return [
            file
            for file in files
            if not file.name.endswith(_OTHER_FORMS) and not file.name.startswith(_OTHER_FOLDERS)
        ]
    if safetensors:
        return files
    ggufs: dict[str, list[File]] = {}
    for file in files:
        if file.name.endswith(SUFFIXES):
            first = re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-00001\1", file.name)
            ggufs.setdefault(first, []).append(file)  # all parts of a split one
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


def _one_file(url: str, sha256: str | None, say: Say) -> Document:
    parts = web.address(url)
    if not parts:
        raise InputError(f"{url!r} is no http or https URL.")
    place = _new_place(PurePosixPath(parts.path).name)
    if not place.name.endswith(SUFFIXES):
        raise InputError(f"{url!r} names no file of {', '.join(SUFFIXES)}.")
    _require_parts(url, [PurePosixPath(parts.path).name])
    # A user, a password or a signature in it are nobody else's business.
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    staging = _staging(origin)
    say(f"{origin}")
    path = inside(staging, place.name)
    with _cut(staging, origin):
        download(url, path, lambda size: _require_room(size, staging))
    _require_sha256(path, sha256, origin)
    if fault := _fault(path, place.name, ()):
        path.unlink()
        raise InputError(f"{origin!r}: {fault}{_THEN}")
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
    for name in names:
        if fault := _fault(there.file(name), name, names):
            raise InputError(f"{str(there.path)!r}: {fault}{_THEN}")
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
    """Return where a download waits until it is whole: the same place each time."""
    name = hashlib.sha256(os.fsencode(origin)).hexdigest()
    path = folder_here() / SIDE / "get" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def _require_room(needed: int, staging: Path) -> None:
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
    except Cut as error:
        if staging and _arrived(staging):
            again = "what has arrived is kept: run the same command again"
        elif os.environ.get("HF_ENDPOINT") == where:
            again = f"look at the network ('curl -I {where}'), and at HF_ENDPOINT, which names it"
        else:
            again = (
                f"look at the network ('curl -I {where}'); HF_ENDPOINT can name a mirror of hubs"
            )
        raise NixwulfError(f"{error.message}; {again}.") from None


def _fault(path: Path, name: str, names: Collection[str]) -> str:
    """Say why no engine can read a file of a model; empty for a readable one.

    names: of all its files; what an index of safetensors names elsewhere engines would follow.
    """
    with suppress(InputError, *NOT_OF_A_MODEL):
        if name.endswith(".safetensors.index.json"):
            for shard in set(read_json(path)["weight_map"].values()):
                if f"{name[: name.rfind('/') + 1]}{shard}" not in names:
                    return f"{name!r} names {quoted(shard)}, which is none of its files"
            return ""
        if path.suffix == ".safetensors":
            start = safetensors.header(str(path), lambda _, count: first_bytes(path, count))
            tensors = safetensors.parse(start).values()
            right = path.stat().st_size == len(start) + sum(one.bytes for one in tensors)
        elif path.name == "config.json":
            right = isinstance(read_json(path), dict)
        else:
            magic = int.from_bytes(first_bytes(path, 4), "little")
            right = _MAGICS.get(path.suffix, magic) == magic
        if right:
            return ""
    return f"{name!r} is no whole {path.suffix[1:]} and begins with {first_bytes(path, 20)!r}"


def _require_parts(source: str, names: Collection[str]) -> None:
    """Raise InputError where only some parts of a model in several are to be had."""
    found = Counter(match.groups() for name in names if (match := _PART.fullmatch(name)))
    for (stem, count), there in found.items():
        if there < int(count):
            raise InputError(f"{source!r} has {there} of the {int(count)} parts of {stem!r}{_THEN}")


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
