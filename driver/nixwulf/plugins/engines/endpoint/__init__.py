"""endpoint: an OpenAI-compatible server that somebody else has started, asked as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from nixwulf.core import web
from nixwulf.core.registry import Parameter
from nixwulf.nodes import container
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.engines.endpoint import answers, server
from nixwulf.plugins.engines.local import Installation, Progress
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.openai import Completer, Endpoint
from nixwulf.plugins.runtime.run import Run

_PORTS = {"http": 80, "https": 443}
# What stands behind the base in addresses that documents show: the driver adds its own paths.
_PATHS = re.compile(r"(/v1)?(/(chat/)?completions|/models)?/*$")
# Such as a path may have; a space, a quote or a bracket is a slip of the pen.
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


@dataclass(frozen=True)
class Url:
    """The address of a server, as people paste it.

    base: all that stands before /v1; target: its host and port, as ssh forwards to them.
    """

    base: str
    target: str

    @classmethod
    def of(cls, text: str) -> Url:
        """Of an address that has no problem."""
        parts = urlsplit(text)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        path = _PATHS.sub("", parts.path)
        return cls(
            f"{parts.scheme}://{parts.netloc.lower()}{path}",
            f"{host}:{parts.port or _PORTS[parts.scheme]}",
        )


def url_problem(text: str) -> str | None:
    """What is expected instead of an address, or None."""
    parts = web.address(text)
    if not parts:
        return "http://HOST:PORT or https://HOST:PORT"
    # urlsplit leaves out what no address has, such as the end of a line.
    if _BLANK.search(text) or parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
        return "an address that ends before or after /v1, without '?', '#' and spaces"
    if not _HOST.fullmatch(parts.hostname or ""):
        return "http://HOST:PORT or https://HOST:PORT"
    if "@" in parts.netloc:
        return (
            "no name or password in it, which every record would have; the key of a server is "
            "environment: [{OPENAI_API_KEY: null}]"
        )
    return None


class UrlParameter(Parameter):
    """A parameter that is empty, or the address of a server."""

    def problem(self, value: Any) -> str | None:
        """What was expected instead of a value, or None."""
        found = super().problem(value)
        return found or (url_problem(value) if value else None)


class Foreign(Engine):
    """What already serves: llama-server, vLLM, SGLang, Ollama, LM Studio, Lemonade, a router.

    Nothing is started on a node, and nothing stopped. `url` is the address as the head reaches it,
    before or after `/v1`; requests cross ssh to the head and go on from there, so that nothing has
    to listen for others. The certificate of https is held against the address's host.

    A model is `{served: NAME}`: GET /v1/models has to list it, and an answer that names another one
    is `failed`. Program and version are asked of the server, else `unknown`. The key of a server
    that wants one is `environment: [{OPENAI_API_KEY: null}]`: it is taken from the driver's own
    environment and is in no record.

    What collects answers on the way, as a proxy may, is found by at most three of 16 tokens before
    the load; decode is then left out.

    The text is compared with the server's own repeat alone. On several nodes their counters are
    read, and prove nothing: a run has `proved: false` and a warning. `quality` needs the forced
    tokens of llama-server or vLLM.
    """

    name = "endpoint"
    parameters: ClassVar = {
        "url": UrlParameter(
            default="",
            help="address of the server, as the first node reaches it: http://127.0.0.1:11434",
        )
    }
    text_parameters = ("url",)
    programs = ()
    gpus = ("amd", "nvidia", "apple")
    hub_models = True
    elsewhere = True
    lacking = "An endpoint is started by whoever has it; nothing of it is installed."

    def install_local(self, progress: Progress) -> Installation:
        """Nothing: a lab's nodes reach a server that is started there."""
        return Installation("path", {}, "unknown")

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Also a point without an address or a served name, and whatever only a start could take.

        On one node or several: which take part is known to whoever started the server.
        """
        given = point["parameters"]
        if not point.get("served"):
            return (
                f"{self.name} asks a server that already runs for a model by the name that it has "
                "there; write {served: NAME} for the model, of those that GET /v1/models lists"
            )
        if not given.get("url"):
            return (
                f"{self.name} asks a server that already runs; give its address as the parameter "
                "url: ['http://127.0.0.1:11434']"
            )
        for key in (passthrough.ARGUMENTS, container.NAME):
            if given.get(key):
                return (
                    f"{self.name} starts nothing that could take {key}; leave {key} out, and "
                    "restart the server with what you want"
                )
        for name in passthrough.given_variables(given):
            if name != server.KEY:
                return (
                    f"{self.name} starts nothing that could take the variable {name}; the only one "
                    f"it knows is {server.KEY}: null, the key of the server"
                )
        return super().unsupported(point)

    def version_command(self, programs: Mapping[str, str]) -> list[str]:
        """None: the server itself is asked."""
        return []

    def start(self, run: Run) -> None:
        """Ask the server whether it has the model, and what it is; nothing starts."""
        with self.endpoint(run) as endpoint:
            run.engine_facts |= server.identified(endpoint)
            answers.require_answer(endpoint, run)

    def on_cpu(self, run: Run) -> str:
        """None: what computes is not the driver's to choose."""
        return "the endpoint computes where it was started, and is not asked for another text"

    @contextmanager
    def completer(self, run: Run, context: int) -> Iterator[Completer]:
        """By tokens' numbers where the server takes them, else by the text of its answers."""
        with self.endpoint(run) as endpoint:
            yield answers.completer(endpoint, run, context)

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """The server, which is there before and after."""
        url = Url.of(run.case.parameters["url"])
        headers = server.headers(run.case.parameters)
        with run.head.forwarded(url.target) as local:
            found = Endpoint(run, local, run.model, None, url.base, headers, run.model)
            server.require_model(found)
            yield found


ENGINE = Foreign()
