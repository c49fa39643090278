"""What a foreign server says of itself: the models that it lists, its program and its version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.secrets import cut
from nixwulf.core.text import some
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import RunFailure

KEY = "OPENAI_API_KEY"
MODELS = "/v1/models"
UNKNOWN = "unknown"
LLAMA_SERVER, VLLM = "llama-server", "vLLM"
PROPERTIES = "/props"
# A list of models is a few kilobytes of a router's, and no server computes for it.
_ASK_S = 30.0
_MOST_BYTES = 1 << 22
_MOST_SHOWN = 8
_QUOTED = 200
# Others in a header's value end the header, or are refused with the key in the error's words.
_OF_A_KEY = re.compile(r"[\x21-\x7e]+")
_VERSION = re.compile(r"[\w.+-]{1,80}")


@dataclass(frozen=True)
class Program:
    """How a program is recognised, and where it tells its version.

    owner: what it puts into owned_by of the models that it lists; empty: it puts no word of its own
    there, and is recognised by the answer itself. paths: the first that answers has the version
    under key.
    """

    name: str
    owner: str = ""
    paths: tuple[str, ...] = ()
    key: str = "version"


PROGRAMS = tuple(Program(**row) for row in read_toml(DATA / "endpoints.toml")["programs"])


def headers(parameters: Mapping[str, object]) -> dict[str, str]:
    """Of each request of a case: its key, where the sweep says that there is one.

    Raises NixwulfError: this environment lacks it, or it cannot be sent.
    """
    key = passthrough.environment(parameters).get(KEY)
    if key is None:
        return {}
    if not _OF_A_KEY.fullmatch(key):
        raise NixwulfError(
            f"{KEY} has a space, a line's end or another character that no key has; export it "
            "again."
        )
    return {"Authorization": f"Bearer {key}"}


def ask(endpoint: Endpoint, path: str) -> web.Reply:
    """The answer to GET of a path, whatever it is; raises RunFailure where there is none."""
    seconds = endpoint.run.head.limit(_ASK_S)
    try:
        return web.fetch(endpoint.async_client(), "GET", path, seconds, _MOST_BYTES)
    except web.NoAnswer as error:
        words = error.message
        if endpoint.run.cluster.is_lab:
            words += "; a node of the lab sees no server of this machine, give --cluster"
        base = endpoint.base_url
        raise RunFailure(
            f"Node {endpoint.run.head.node.name!r} gets no answer from {base!r} ({words}); start "
            f"the server, or correct url in the sweep: 'curl {base}{MODELS}' there has to list "
            "its models."
        ) from None


def require_model(endpoint: Endpoint) -> None:
    """Raise RunFailure where the server does not list the model, with those that it has."""
    names = [str(one["id"]) for one in _listed(endpoint)]
    if endpoint.model not in names:
        shown = some([*map(repr, names)], _MOST_SHOWN) or "none"
        raise RunFailure(
            f"{endpoint.base_url!r} does not list the model {endpoint.model!r}; it has {shown}: "
            "write one of them as served in the sweep."
        )


def _listed(endpoint: Endpoint) -> list[Mapping[str, Any]]:
    """The models that the server lists; raises RunFailure for any other answer."""
    reply, base = ask(endpoint, MODELS), endpoint.base_url
    if reply.status in (web.UNAUTHORIZED, web.FORBIDDEN):
        raise refused(endpoint, reply.status)
    if location := reply.headers.get("Location"):
        raise RunFailure(f"{base!r} points to {location!r} instead; write that as url.")
    document = reply.json if reply.status == web.OK else None
    models = document.get("data") if isinstance(document, dict) else None
    if isinstance(models, list) and all(isinstance(m, dict) and "id" in m for m in models):
        return models
    words = cut(" ".join(reply.text.split()), _QUOTED) or "nothing"
    raise RunFailure(
        f"{base!r} answered GET {MODELS} with no list of models ({reply.status}: {words!r}); url "
        "is what stands before /v1 of an OpenAI-compatible server, as http://127.0.0.1:11434."
    )


def refused(endpoint: Endpoint, status: int) -> RunFailure:
    """Why a server that answered 401 or 403 did, and what to do."""
    how = f"it does not take the key in {KEY}; export the right one"
    if not endpoint.headers:
        how = (
            f"it wants a key; write environment: [{{{KEY}: null}}] among the parameters, and "
            f"export {KEY} where you run nixwulf"
        )
    return RunFailure(f"{endpoint.base_url!r} answered {status}: {how}.")


def identified(endpoint: Endpoint) -> dict[str, str]:
    """The program that answers and its version, as it tells them, for the record.

    The version has the program's name too, because two programs may have one number.
    """
    own = next((one for one in _listed(endpoint) if one["id"] == endpoint.model), {})
    owner = own.get("owned_by")
    named = [one for one in PROGRAMS if one.owner and one.owner == owner]
    for program in named or [one for one in PROGRAMS if not one.owner]:
        version = _version(endpoint, program)
        if named or version:
            known = f"{program.name} {version}" if version else f"{program.name}, {UNKNOWN}"
            return {"program": program.name, "version": known}
    return {"program": UNKNOWN, "version": UNKNOWN}


def _version(endpoint: Endpoint, program: Program) -> str | None:
    for path in program.paths:
        document = ask(endpoint, path).json
        found = document.get(program.key) if isinstance(document, dict) else None
        if isinstance(found, str) and _VERSION.fullmatch(found):
            return found
    return None
