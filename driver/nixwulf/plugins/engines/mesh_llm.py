"""mesh-llm: layers of a model over QUIC in a private mesh, joined by the head's token.

Up to 0.65 they are computed by llama.cpp's servers, then by skippy, which has no logprobs yet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from nixwulf.core.registry import parameters_of
from nixwulf.core.secrets import cut
from nixwulf.inventory.fabrics import UDP
from nixwulf.llm import gguf
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.engines.llama_cpp import LlamaCpp
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, serving
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure, failure_of

# The API, its console, and QUIC over UDP. The first two listen on the loopback only.
_API_PORT, _CONSOLE_PORT, _PEER_PORT = 9337, 3131, UDP["mesh-llm"]
# By default, a private mesh too signs in at public relays, which then could carry
# its data (https://github.com/Mesh-LLM/mesh-llm/blob/0809252/mesh-llm/src/mesh/mod.rs#L1436): here
# nothing listens, and after five seconds it goes on without.
_NO_RELAY = "https://127.0.0.1:1/"
_DEFAULT_FLAVOR = "default"
_HELP = '"$1" serve --help 2>&1 || true'
_COMPLETIONS, _STATUS = "/v1/completions", "/api/status"
_FATAL = ("error", "fatal")
# What newer releases read in place of --join, whose value all users of a node can see.
_JOIN, _KNOWN_BY = "MESH_LLM_JOIN", "--join-file"
NO_LOGPROBS = "mesh-llm has no logprobs: the characters of its text are compared, not its tokens"


class MeshLlm(Engine):
    """mesh-llm, alone or with the model's layers split over all nodes.

    `mesh-llm serve --headless --log-format json` on the head; its event `invite_token` has the
    token with which the others join: in the variable `MESH_LLM_JOIN` where the release knows it,
    else by `--join`, which every user of those nodes can see as long as it runs. No command line
    has `--auto`, `--publish` or `--discover`, and a sweep whose `arguments` have one of them,
    `--nostr-relay` or `--relay` is refused. By its source a private mesh too signs in at public
    relays unless `--relay` names another: the driver names one on the loopback where nothing
    listens. It still asks public STUN servers for its address.

    Where the API refuses `logprobs`, characters of the text are compared instead of tokens, with a
    warning.
    """

    name = "mesh-llm"
    parameters: ClassVar = parameters_of("mesh-llm")
    text_parameters = ("llama_flavor",)
    random_model = staticmethod(gguf.ensure)
    programs = ("mesh-llm",)
    version_options = ("--version",)
    lacking = (
        "mesh-llm is not on PATH; take a release of https://github.com/Mesh-LLM/mesh-llm and put "
        "'mesh-llm' on PATH."
    )
    ports = (_API_PORT, _CONSOLE_PORT)
    api_port = _API_PORT
    parallelisms = ("pipeline",)
    transports = ("tcp",)  # its QUIC
    over_cables: ClassVar = {"tcp": OverCables()}
    model_on_every_node = True
    model_suffixes = (".gguf",)
    performance = LlamaCpp.performance

    def start(self, run: Run) -> None:
        """Nothing yet: nodes that join would make one who serves alone split its model."""
        run.engine_facts["origin"] = run.program("mesh-llm")

    def greedy_tokens(self, run: Run, count: int) -> list[str]:
        """The texts of the tokens; where mesh-llm gives none, the characters of the text."""
        with self.endpoint(run) as endpoint:
            return completed(endpoint, count)

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """A mesh of the case's nodes, which ends with the block; its API on the head's loopback."""
        nodes = launch(run)
        try:
            with run.head.forwarded(f"127.0.0.1:{_API_PORT}") as local:
                yield Endpoint(run, local, model_name(run, nodes[0]), nodes[0])
        finally:
            for process in reversed(nodes):
                process.stop()

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """The head has the token by which the others join."""
        servers = []
        for one in run.of("mesh-llm"):
            argv = list(one.argv)
            if "--join" in argv:
                argv[argv.index("--join") + 1] = "TOKEN"
            given = {_JOIN: "TOKEN"} if _JOIN in one.environment and "--join" not in argv else {}
            servers.append(replace(one, argv=tuple(argv), environment=given))
        note = "TOKEN is what the first line prints as the token of its event 'invite_token'."
        found = serving(self, run, servers, notes=[note] if len(servers) > 1 else [])
        return replace(found, then=(f"curl http://127.0.0.1:{_API_PORT}/v1/models",))


ENGINE = MeshLlm()


def argv(run: Run, node: Connection, join: Sequence[str] = ()) -> list[str]:
    """A node's command line.

    join: the option by which it joins the head's mesh; empty on the head.
    """
    values = run.case.parameters
    program = run.program("mesh-llm", node)
    argv = [program, "serve", "--gguf", run.model, "--headless", "--log-format", "json"]
    argv += ["--port", str(_API_PORT), "--console", str(_CONSOLE_PORT)]
    argv += ["--bind-port", str(_PEER_PORT), "--relay", _NO_RELAY, "--no-enumerate-host"]
    argv += join
    argv += ["--split"] if run.case.nodes > 1 else []
    if values["llama_flavor"] != _DEFAULT_FLAVOR:
        argv += ["--llama-flavor", values["llama_flavor"]]
    argv += ["--max-vram", str(values["max_vram_gb"])] if values["max_vram_gb"] else []
    return [*argv, *passthrough.arguments(values)]


def completed(endpoint: Endpoint, count: int) -> list[str]:
    """What the sanity check compares; a warning of the run where that is no tokens."""
    request = endpoint.greedy(count)
    try:
        answer = endpoint.post(_COMPLETIONS, request | {"logprobs": 1})
    except RunFailure as failure:
        if "logprobs" not in failure.reason:
            raise
        answer = endpoint.post(_COMPLETIONS, request)
    found, are_tokens = tokens(answer)
    warnings = endpoint.run.warnings
    if not are_tokens and NO_LOGPROBS not in warnings:
        warnings.append(NO_LOGPROBS)
    return found


def tokens(answer: Any) -> tuple[list[str], bool]:
    """The tokens of a completion, or the characters of its text; and whether they are tokens.

    Characters and not words, which some languages do not divide. Raises RunFailure.
    """
    try:
        choice = answer["choices"][0]
        parts = (choice.get("logprobs") or {}).get("content")
        found = [str(part["token"]) for part in parts] if parts else list(str(choice["text"]))
    except (KeyError, IndexError, TypeError, AttributeError):
        found, parts = [], None
    if not found:
        raise RunFailure(f"mesh-llm answered no text: {cut(str(answer), 200)}.")
    return found, bool(parts)


def launch(run: Run) -> list[OwnedProcess]:
    """Start the head, then the others with its token, and wait until the head is ready."""
    label = f"mesh-llm-{len(run.owned)}"
    head = run.start(run.head, label, argv(run, run.head), {})
    nodes = [head]
    if run.workers:
        secret = {_JOIN: invitation(run, head)}
        known = _KNOWN_BY in run.output(run.head, _HELP, run.program("mesh-llm"))
        join = () if known else ("--join", f"${_JOIN}")
        for node in run.workers:
            nodes.append(run.start(node, label, argv(run, node, join), secret, background=True))
    wait_for(run, head, "ready")
    return nodes


def invitation(run: Run, head: OwnedProcess) -> str:
    """The token of the head's mesh: of its event, or of its API where the event withholds it."""
    event = wait_for(run, head, "invite_token")
    token = event.get("token") or status(run, head).get("token")
    if not token:
        raise RunFailure(
            f"mesh-llm on node {head.node!r} withholds its token in the event 'invite_token' and "
            f"in GET {_STATUS}, so that no other node can join; take another release.",
            "unsupported",
        )
    return str(token)


def status(run: Run, head: OwnedProcess) -> dict[str, Any]:
    """The status in the head's management API, once it answers; raises RunFailure."""
    with run.head.forwarded(f"127.0.0.1:{_CONSOLE_PORT}") as local:
        endpoint = Endpoint(run, local, "", head)
        endpoint.wait_until_healthy(_STATUS)
        found = endpoint.get(_STATUS)
    return found if isinstance(found, dict) else {}


def model_name(run: Run, head: OwnedProcess) -> str:
    """What the mesh calls the model."""
    return str(wait_for(run, head, "model_ready").get("model", ""))


def wait_for(run: Run, process: OwnedProcess, name: str) -> dict[str, Any]:
    """The first event of a name on a node.

    Raises RunFailure: an error was printed, the process ended, or a clock ran out.
    """
    clocks = Clocks(run, process)
    while True:
        ended = not process.running
        for event in events(process.output):
            if event["event"] == name:
                return event
            if event["event"] in _FATAL:
                words = cut(str(event.get("message")), 300)
                raise RunFailure(f"mesh-llm on node {process.node!r} says: {words}")
        if ended:
            raise failure_of(process, f"mesh-llm on node {process.node!r}")
        clocks.check()
        time.sleep(0.05)


def events(text: str) -> list[dict[str, Any]]:
    """The events of --log-format json, one a line, the last one perhaps cut short.

    https://github.com/Mesh-LLM/mesh-llm/blob/0809252/mesh-llm/src/cli/output/EVENTS.md
    and, since, crates/mesh-llm-tui/src/output/EVENTS.md
    """
    found = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return found
