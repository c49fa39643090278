"""Files from elsewhere: a repository of a Hugging Face hub, or one file at a URL; both resumed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.names import join

_OTHER_FORMS = (".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth")
_OTHER_FOLDERS = (".", "consolidated", "metal/", "onnx/", "openvino/", "original/")
_AGAIN = "what has arrived is kept: run the same command again"
_TIMEOUT_S = 60.0
# Larger ones need the hub's own protocol (huggingface_hub.constants.MAX_HTTP_DOWNLOAD_SIZE).
_LARGEST_BY_HTTP = 50 * 10**9


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


def look(repository: str, revision: str | None) -> Repository:
    """What a repository has at a revision; raises InputError where there is none to be had."""
    with _errors(repository, revision):
        from huggingface_hub import HfApi

        found = HfApi().model_info(repository, revision=revision, files_metadata=True)
    files = (
        File(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs else None)
        for one in found.siblings or ()
    )
    return Repository(repository, found.sha or "", tuple(files))


def fetch(repository: str, commit: str, file: File, folder: Path) -> Path:
    """A file of a repository below a folder; goes on where an earlier attempt was cut off.

    The library's own download begins anew in each process, so it only shows whether the file may be
    had, and fetches what the hub gives to nobody else.
    """
    with _errors(repository, commit):
        import huggingface_hub

        if file.bytes > _LARGEST_BY_HTTP:
            return Path(
                huggingface_hub.hf_hub_download(
                    repository, file.name, revision=commit, local_dir=folder
                )
            )
        url = huggingface_hub.hf_hub_url(repository, file.name, revision=commit)
        huggingface_hub.get_hf_file_metadata(url)
        token = huggingface_hub.get_token()
    path = join(folder, file.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size == file.bytes:
        return path
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return download(url, path, lambda size: None, headers)


@contextmanager
def _errors(repository: str, revision: str | None) -> Iterator[None]:
    """The library's errors as sentences of ours."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    try:
        yield
    except errors.HFValidationError:
        raise InputError(
            f"{repository!r} is neither a path, a URL nor ORG/REPO of a hub."
        ) from None
    except errors.GatedRepoError:
        raise InputError(
            f"{repository!r} is gated: ask for access at {hub}/{repository}, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    except errors.RevisionNotFoundError:
        raise InputError(f"{repository!r} has no revision {revision!r} at {hub}.") from None
    except errors.RepositoryNotFoundError:
        raise InputError(
            f"{hub} has no {repository!r}, or it is private: look at the name, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        raise NixwulfError(f"{hub} refuses {repository!r} with {status}; {_AGAIN}.") from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise NixwulfError(f"{hub} cannot be reached ({_words(error)}); {_AGAIN}.") from None
    except Exception as error:
        _network_failure(error, hub)


def _network_failure(error: Exception, where: str) -> NoReturn:
    """The library has had two HTTP clients so far, each with its own errors."""
    if isinstance(error, OSError) or type(error).__module__.startswith(("httpx", "httpcore")):
        raise NixwulfError(f"{where} broke off ({_words(error)}); {_AGAIN}.") from None
    raise error


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def download(
    url: str,
    path: Path,
    require_room: Callable[[int], None],
    headers: Mapping[str, str] | None = None,
) -> Path:
    """One file; goes on where an earlier attempt was cut off, if it is the same file still.

    Args:
        url: where it is; redirections are followed, and other hosts get no Authorization.
        require_room: called with its size in bytes, where the server gives it.

    Returns:
        The path.

    Raises:
        NixwulfError: it did not arrive, or only a part, which is kept.
    """
    import httpx

    tag = path.with_name(f"{path.name}.tag")
    have = path.stat().st_size if path.exists() and tag.exists() else 0
    asked = {**(headers or {}), "Accept-Encoding": "identity"}
    if have:
        asked |= {"Range": f"bytes={have}-", "If-Range": tag.read_text("utf-8")}
    try:
        with httpx.stream(
            "GET", url, headers=asked, follow_redirects=True, timeout=_TIMEOUT_S
        ) as answer:
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                return path
            if not answer.is_success:
                raise NixwulfError(f"{url!r} is refused with {answer.status_code}.")
            goes_on = answer.status_code == httpx.codes.PARTIAL_CONTENT
            length = int(answer.headers.get("Content-Length", 0))
            require_room(length + (have if goes_on else 0))
            # Only a strong tag means that the bytes are the same.
            strong = answer.headers.get("ETag", "")
            tag.write_text("" if strong.startswith("W/") else strong, "utf-8")
            if not tag.stat().st_size:
                tag.unlink()
            with path.open("ab" if goes_on else "wb") as file:
                for piece in answer.iter_raw():
                    file.write(piece)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NixwulfError(f"{url!r} broke off ({_words(error)}); {_AGAIN}.") from None
    except OSError as error:
        raise NixwulfError(
            f"Cannot write {str(path)!r}: {os.strerror(error.errno or 0)}."
        ) from None
    return path


def sha256_of(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
