"""Files from elsewhere: a repository of a Hugging Face hub, or one file at a URL; both resumed.

Whoever answers may be a mirror or a stranger: names, sizes, bytes and seconds are all bounded here.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, urlsplit

from nixwulf.core import names, web
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import inside, parse_json, read_text
from nixwulf.core.secrets import cut

if TYPE_CHECKING:
    import httpx

_OTHER_FORMS = (".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth")
_OTHER_FOLDERS = (".", "consolidated", "metal/", "onnx/", "openvino/", "original/")
_TIMEOUT_S = 60.0  # of one reading
# Of all that is awaited: so much has to come in so long. A listing has to be there by then.
_PATIENCE_S, _LEAST_BYTES = 60.0, 1 << 18
_MOST_LISTING, _MOST_FILES, _MOST_REDIRECTS = 1 << 22, 10_000, 10
# Larger ones need the hub's own protocol (huggingface_hub.constants.MAX_HTTP_DOWNLOAD_SIZE).
_LARGEST_BY_HTTP = 50 * 10**9
_PARTIAL, _NOTHING_LEFT = 206, 416
_MOST_BYTES = 1 << 50
_THEN = "; get it from another place."
_SHA256 = re.compile("[0-9a-f]{64}")
_REPOSITORY = re.compile(r"([\w.-]{1,96}/)?[\w.-]{1,96}", re.ASCII)


class Cut(NixwulfError):
    """What was to come did not come whole; the message lacks what to do next."""


class _Refused(NixwulfError):
    """A server refused; its status, and a hub's word for why."""

    def __init__(self, url: str, status: int, code: str) -> None:
        super().__init__(f"{url!r} is refused with {status}.")
        self.status, self.code = status, code


@dataclass(frozen=True)
class File:
    """A file of a repository; sha256 is None of small ones, which the hub keeps in git."""

    name: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class Repository:
    """A repository at a commit."""

    name: str
    commit: str
    files: tuple[File, ...]


def is_other_form(name: str) -> bool:
    """Whether a file is the same weights again, in a form beside safetensors."""
    return name.endswith(_OTHER_FORMS) or name.startswith(_OTHER_FOLDERS)


def endpoint() -> str:
    """The hub that is asked: HF_ENDPOINT, or Hugging Face's own; raises InputError."""
    named = os.environ.get("HF_ENDPOINT", "")
    try:
        from huggingface_hub import constants  # looks at HF_ENDPOINT itself

        parts = urlsplit(constants.ENDPOINT)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise InputError(f"HF_ENDPOINT is {named!r}, no address such as 'https://huggingface.co'.")
    return constants.ENDPOINT


def look(repository: str, revision: str | None) -> Repository:
    """What a repository has at a revision; raises InputError where there is none to be had."""
    from huggingface_hub import constants

    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"{repository!r} is neither a path, a URL nor ORG/REPO of a hub.")
    if constants.HF_HUB_OFFLINE:
        raise NixwulfError(f"HF_HUB_OFFLINE is set: unset it to get {repository!r}.")
    at = f"/revision/{quote(revision, safe='')}" if revision else ""
    url = f"{endpoint()}/api/models/{repository}{at}?blobs=true"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "listing"
        try:
            download(url, path, lambda size: None, _headers(), most=_MOST_LISTING)
        except _Refused as error:
            _refused(error, repository, revision)
        document = parse_json(read_text(path), url)
    return _repository(repository, document)


def _repository(name: str, document: object) -> Repository:
    """The listing of a hub, none of whose names leads anywhere else; raises InputError."""
    try:
        commit, found = document["sha"], document["siblings"]  # type: ignore[index]
        files = tuple(
            File(one["rfilename"], one["size"], (one.get("lfs") or {}).get("sha256"))
            for one in found[: _MOST_FILES + 1]
        )
        right = len(files) <= _MOST_FILES and bool(re.fullmatch("[0-9A-Za-z]{1,64}", commit))
        own = {one.name for one in files}
        right &= len(own) == len(files) and not any(
            name[: end.start()] in own for name in own for end in re.finditer("/", name)
        )
        for one in files:
            right &= type(one.bytes) is int and 0 <= one.bytes < _MOST_BYTES
            right &= not one.sha256 or bool(_SHA256.fullmatch(one.sha256))
    except (LookupError, TypeError, AttributeError):
        right = False
    if not right:
        raise InputError(
            f"{endpoint()} lists no repository {name!r} of at most {_MOST_FILES} files, each once "
            "with its size; look at HF_ENDPOINT, or get the model from a URL."
        )
    for one in files:
        if fault := names.fault(one.name):
            raise InputError(
                f"{endpoint()} lists a file {quoted(one.name)} in {name!r}, and {fault}: nothing "
                "was fetched; look at HF_ENDPOINT, or get the model from another place."
            )
    return Repository(name, commit, files)


def fetch(repository: str, commit: str, file: File, folder: Path) -> Path:
    """A file of a repository below a folder; goes on where an earlier attempt was cut off.

    The library's own download begins anew in each process, so it only fetches what the hub gives to
    nobody else.
    """
    import huggingface_hub

    path = inside(folder, file.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size == file.bytes:
        return path
    try:
        if file.bytes <= _LARGEST_BY_HTTP:
            url = huggingface_hub.hf_hub_url(repository, file.name, revision=commit)
            return download(url, path, lambda size: None, _headers(), size=file.bytes)
        _watched(
            lambda: huggingface_hub.hf_hub_download(
                repository, file.name, revision=commit, local_dir=folder
            ),
            lambda: sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()),
            endpoint(),
        )
    except _Refused as error:
        _refused(error, repository, commit)
    if path.stat().st_size != file.bytes:
        raise Cut(f"{endpoint()} sent {path.stat().st_size} of {file.bytes} bytes of {file.name!r}")
    return path


def key_in_clear() -> bool:
    """Whether the hub gets a token over a network by http."""
    return web.in_clear(endpoint()) and bool(_headers())


def _headers() -> dict[str, str]:
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _refused(error: _Refused, repository: str, revision: str | None) -> NoReturn:
    """Raise what a hub's refusal means, which it says by a word in a header."""
    hub = endpoint()
    if error.code == "GatedRepo":
        raise InputError(
            f"{repository!r} is gated: ask for access at {hub}/{repository}, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    if error.code == "RevisionNotFound":
        raise InputError(f"{repository!r} has no revision {revision!r} at {hub}.") from None
    if error.code == "RepoNotFound" or error.status == 401:  # noqa: PLR2004
        raise InputError(
            f"{hub} has no {repository!r}, or it is private: look at the name, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    raise Cut(f"{hub} refuses {repository!r} with {error.status}") from None


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
    most: int | None = None,
) -> Path:
    """One file; goes on where an earlier attempt was cut off, if it is the same file still.

    Args:
        url: where it is; redirections are followed, and other hosts get no Authorization.
        require_room: called with its size in bytes.
        size: the bytes that it has to have; None: as many as the server says at first.
        most: of something that has no size and is there at once.

    Returns:
        The path.

    Raises:
        Cut: it did not arrive, or only a part, which is kept.
        NixwulfError: the server refused, or sent something else than it said.
    """
    # No foreign name ends in a full stop: a file of the same folder is no tag of another.
    tag = path.with_name(f"{path.name}.tag.")
    strong, _, whole = tag.read_text("utf-8").partition(" ") if tag.exists() else ("", "", "")
    have = path.stat().st_size if path.exists() and whole else 0
    asked = {**(headers or {}), "Accept-Encoding": "identity"}
    if have:
        asked |= {"Range": f"bytes={have}-", "If-Range": strong}
    came = [0]

    def work() -> None:
        with _answer(url, asked) as answer:
            partial = answer.status_code == _PARTIAL
            begin = have if partial else 0
            span = answer.headers.get("Content-Range", "")
            if answer.status_code == _NOTHING_LEFT:
                if whole == str(have) and size in (None, have):
                    return
                tag.unlink(missing_ok=True)
            if not answer.is_success:
                raise _Refused(url, answer.status_code, answer.headers.get("X-Error-Code", ""))
            length = answer.headers.get("Content-Length")
            total = most or (begin + int(length) if length else size)
            other = answer.headers.get("Content-Encoding", "identity") != "identity"
            other |= partial and not (have and span.startswith(f"bytes {have}-"))
            if other or total is None:
                raise NixwulfError(f"{url!r} answers in another form, or without a length{_THEN}")
            announced = int(whole) if begin and size is None else size
            if announced not in (None, total):
                raise NixwulfError(
                    f"{url!r} has {total} bytes, and {announced} were announced{_THEN}"
                )
            require_room(total)
            try:
                # Only a strong tag means that the bytes are the same.
                strong = answer.headers.get("ETag", "")
                tag.unlink(missing_ok=True)
                if re.fullmatch('"[!-~]+"', strong):
                    tag.write_text(f"{strong} {total}", "utf-8")
                with path.open("ab" if begin else "wb") as file:
                    for piece in answer.iter_raw():
                        came[0] += len(piece)
                        if begin + came[0] > total:
                            path.unlink()
                            raise NixwulfError(f"{url!r} sends more than {total} bytes{_THEN}")
                        file.write(piece)
            except OSError as error:
                words = os.strerror(error.errno or 0)
                raise NixwulfError(f"Cannot write {str(path)!r}: {words}.") from None
            if not most and begin + came[0] != total:
                raise Cut(f"{url!r} ended after {begin + came[0]} of {total} bytes")

    _watched(work, lambda: 0 if most else came[0], repr(url))
    return path


@contextmanager
def _answer(url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
    """The answer at the end of redirections, of which no body is read."""
    import httpx

    with httpx.Client(timeout=_TIMEOUT_S, verify=web.tls()) as client, ExitStack() as stack:
        request: httpx.Request | None = client.build_request("GET", url, headers=headers)
        for _ in range(_MOST_REDIRECTS):
            if request is None:
                break
            answer = client.send(request, stream=True)
            stack.callback(answer.close)
            request = answer.next_request  # to another host without Authorization
        else:
            raise NixwulfError(f"{url!r} redirects without end{_THEN}")
        yield answer
