"""A hub of models: what a repository there has, and small answers, each bounded as a whole.

Whoever answers may be a mirror or a stranger: names, sizes, bytes and seconds are all bounded here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote, urljoin, urlsplit

from nixwulf.core import names, web
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import parse_json

_HUB = "https://huggingface.co"
_REPOSITORY = re.compile(r"([\w.-]{1,96}/)?[\w.-]{1,96}", re.ASCII)
_PATIENCE_S, _MOST_HOPS = 60.0, 10
_MOST_LISTING, _MOST_FILES = 1 << 22, 10_000
_MOST_BYTES = 1 << 50
_SHA256 = re.compile("[0-9a-f]{64}")


class Cut(NixwulfError):
    """What was to come did not come whole; the message lacks what to do next."""


class HubRefused(NixwulfError):
    """A server refused; its status, and a hub's word for why."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        """Keep what it said."""
        super().__init__(f"{url!r} is refused with {status}.")
        self.status, self.code = status, headers.get("X-Error-Code", "")


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

    def url(self, file: str) -> str:
        """The address of one of its files."""
        return f"{endpoint()}/{self.name}/resolve/{quote(self.commit, safe='')}/{quote(file)}"


def endpoint() -> str:
    """The hub that is asked: HF_ENDPOINT, or Hugging Face's own; raises InputError."""
    named = os.environ.get("HF_ENDPOINT", _HUB)
    if not web.address(named):
        raise InputError(f"HF_ENDPOINT is {named!r}, no address such as {_HUB!r}.")
    return named.rstrip("/")


def headers() -> dict[str, str]:
    """What names the user to the hub; empty without a token."""
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def read(url: str, most: int, headers: Mapping[str, str] | None = None, first: int = 0) -> bytes:
    """What is at an address, or so many bytes of it, waited for a minute.

    Files lie elsewhere than their addresses, so that redirections are followed; other hosts get no
    Authorization.

    Raises:
        HubRefused: by the server.
        Cut: nothing whole came, or more than MOST bytes.
    """
    at, asked = url, {**(headers or {}), "User-Agent": "nixwulf"}
    asked |= {"Range": f"bytes=0-{first - 1}"} if first else {}
    for _ in range(_MOST_HOPS):
        try:
            client = web.client(at, headers=asked, proxies=True)
            reply = web.fetch(client, "GET", at, _PATIENCE_S, most)
            onward = urljoin(at, reply.headers.get("location", at))
        except (web.NoAnswer, ValueError) as error:
            raise Cut(f"{url!r} broke off ({error})") from None
        if reply.ok:
            return reply.body[: first or None]
        if onward == at:
            raise HubRefused(url, reply.status, reply.headers)
        if not web.address(onward):
            break
        if urlsplit(onward)[:2] != urlsplit(at)[:2]:
            asked.pop("Authorization", None)
        at = onward
    raise Cut(f"{url!r} redirects without end, or to no address")


def look(
    repository: str, revision: str | None = None, headers: Mapping[str, str] | None = None
) -> Repository:
    """What a repository has at a revision; raises InputError where there is none to be had."""
    from huggingface_hub import constants

    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"{repository!r} is neither a path, a URL nor ORG/REPO of a hub.")
    if constants.HF_HUB_OFFLINE:
        raise NixwulfError(f"HF_HUB_OFFLINE is set: unset it to get {repository!r}.")
    at = f"/revision/{quote(revision, safe='')}" if revision else ""
    url = f"{endpoint()}/api/models/{repository}{at}?blobs=true"
    try:
        text = read(url, _MOST_LISTING, headers).decode("utf-8", "replace")
    except HubRefused as error:
        refuse(error, repository, revision)
    return _repository(repository, parse_json(text, url))


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


def refuse(error: HubRefused, repository: str, revision: str | None) -> NoReturn:
    """Raise what a hub's refusal means, which it says by a word in a header."""
    hub = endpoint()
    if error.code == "GatedRepo":
        raise InputError(
            f"{repository!r} is gated: ask for access at {hub}/{repository}, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    if error.code == "RevisionNotFound":
        raise InputError(f"{repository!r} has no revision {revision!r} at {hub}.") from None
    if error.code == "RepoNotFound" or error.status == web.UNAUTHORIZED:
        raise InputError(
            f"{hub} has no {repository!r}, or it is private: look at the name, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    raise Cut(f"{hub} refuses {repository!r} with {error.status}") from None
