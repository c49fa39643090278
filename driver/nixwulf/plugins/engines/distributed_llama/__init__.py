"""distributed-llama: workers on the other nodes, a root on the head that hands out the weights."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, ClassVar

from nixwulf.core.registry import parameters_of
from nixwulf.inventory.fabrics import TCP
from nixwulf.llm import dllama as dllama_files
from nixwulf.nodes.facts import listeners
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.outputs import dllama
from nixwulf.plugins.engines import Engine, Performance, Splits, equal_kv_heads
from nixwulf.plugins.engines.distributed_llama import devices
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, serving
from nixwulf.plugins.runtime import openai, passthrough
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import Run, RunFailure

_PORT = TCP["distributed-llama"]  # of a worker
_API_PORT = 9990
_START_LIMIT_S = 30.0
_WORKER = "dllama-worker"
_LISTENING = "cat /proc/net/tcp"
# Every error of src/app.cpp, dllama.cpp, dllama-api.cpp and nn-executor.cpp is a line of this form.
_ERROR = re.compile(r"^\N{POLICE CARS REVOLVING LIGHT} (\w+ error: .+)", re.MULTILINE)
_ERRORS_WITHIN_S = 2.0
# Kinds of models, nodes and GPUs that it lacks, in its own words.
_UNSUPPORTED = re.compile(
    "does not support more nodes than the number of KV heads"
    "|Unsupported shader: |Device extension .* is not supported"
)
# Its own words for the pair of weights and exchanged values; it stores others, and computes wrong.


class DistributedLlama(Engine):
    """distributed-llama: every matrix split over all nodes, over tcp.

    Workers listen on the fabric's address; the root on the head hands out the weights at every
    start. A worker ends when a stranger connects, so whether it listens is read from /proc/net/tcp.
    Programs run under `stdbuf -oL`, without which a stopped worker's last words are lost. With a
    GPU root and workers print `Device: NAME`; a node that does not, or names one in software
    outside of the lab, is a `fallback`.

    Two faults of commit 8d624a7: the last token of a prompt is lost, on all nodes alike, so that
    the sanity check does not see it (the flake's package changes that line); and `dllama-api`
    streams no usage.
    """

    name = "distributed-llama"
    parameters: ClassVar = parameters_of("distributed-llama")
    text_parameters = ("backend", "buffer_float_type")
    random_model = staticmethod(dllama_files.ensure)
    programs = ("dllama", "dllama-api")
    # Unknown to it, so that it ends at once: the store path alone identifies the build.
    version_options = ("--version",)
    lacking = (
        "distributed-llama is not on PATH ('dllama' and 'dllama-api'); run 'make dllama "
        "dllama-api' in a clone of github.com/b4rtaz/distributed-llama and put it on PATH."
    )
    model_suffixes = (".m",)
    tokenizer_apart = True
    native_benchmark = "dllama"
    ports = (_PORT, _API_PORT)
    api_port = _API_PORT
    apis = ("chat",)
    parallelisms = ("tensor",)
    transports = ("tcp",)
    # Its README has the powers of two, src/app.cpp the head a node, and the slices of
    # src/nn/nn-core.cpp assert that they are equal (https://github.com/b4rtaz/distributed-llama).
    splits = Splits(even_heads=True, kv_heads=equal_kv_heads, powers_of_two=True)
    performance = Performance(
        family="distributed-llama",
        collective="mesh",
        star_before=(0, 11),  # https://github.com/b4rtaz/distributed-llama/pull/136
        prompt_chunk=32,
    )

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Counts of nodes and types that distributed-llama does not have."""
        nodes, model = point["nodes"], point.get("random")
        if wrong := super().unsupported(point) or devices.contradiction(point["parameters"]):
            return wrong
        if model is None:
            return None
        if point["parameters"]["buffer_float_type"] != "f32":
            return "weights in f32 take buffer_float_type f32 (q40 weights take q80)"
        for key in ("feed_forward", "vocabulary"):
            if getattr(model, key) % nodes:
                return f"distributed-llama splits evenly, and {key} {getattr(model, key)} does not"
        return dllama_files.problem(model)

    def start(self, run: Run) -> None:
        """Start a worker on each node but the head, and wait until all listen."""
        run.engine_facts["origin"] = run.program("dllama")
        model_files(run)
        devices.look(run)
        for node in run.workers:
            environment = devices.environment(run, node)
            run.start(node, _WORKER, worker_argv(run, node), environment, background=True)
        wait_until_listening(run)

    def greedy_tokens(self, run: Run, count: int) -> list[str]:
        """The pieces of text that `dllama inference` prints, one a token."""
        # A token is at least a byte of the prompt, and one more begins it.
        result, _ = infer(run, "dllama-greedy", openai.GREEDY, len(openai.GREEDY) + 1 + count)
        return [step.text for step in result.tokens[:count]]

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """dllama-api on the head's loopback address; it answers one request after another."""
        wait_until_listening(run)
        listen = ["--host", "127.0.0.1", "--port", str(_API_PORT)]
        argv = [run.program("dllama-api"), *listen, *root_arguments(run)]
        environment = devices.environment(run, run.head)
        server = run.start(run.head, f"dllama-api-{len(run.owned)}", argv, environment)
        try:
            with run.head.forwarded(f"127.0.0.1:{_API_PORT}") as local:
                endpoint = Endpoint(run, local, model_files(run)[0].rpartition("/")[2], server)
                endpoint.wait_until_healthy("/v1/models")
                _require_devices(run, server)
                yield endpoint
        except RunFailure as failure:
            raise _explained(run, server, failure) from failure
        finally:
            server.stop()

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """Workers, and dllama-api on the head; its own benchmark starts another program there."""
        workers = [one for one in run.of("dllama") if "worker" in one.argv[1:2]]
        root = [one for one in run.of("dllama-api", "dllama") if one not in workers][-1]
        arguments = list(root.argv[root.argv.index("--model") :])
        for only in ("--seed", "--temperature"):
            place = arguments.index(only)
            del arguments[place : place + 2]
        program = str(PurePosixPath(root.argv[0]).with_name("dllama-api"))
        argv = (program, "--host", "127.0.0.1", "--port", str(_API_PORT), *arguments)
        return serving(self, run, [*workers, replace(root, argv=argv)], "model")


ENGINE = DistributedLlama()


def model_files(run: Run) -> tuple[str, str]:
    """The model and its tokenizer on the head; raises RunFailure when there is no tokenizer."""
    if run.tokenizer:
        return run.model, run.tokenizer
    if run.model.endswith(".m"):
        raise RunFailure(
            f"The model {run.case.model!r} has no tokenizer; write 'tokenizer: /path/to/file.t' "
            "beside its path in the sweep."
        )
    return f"{run.model}/{dllama_files.MODEL}", f"{run.model}/{dllama_files.TOKENIZER}"


def worker_argv(run: Run, node: Connection) -> list[str]:
    """A worker's command line; it listens on the fabric's address only."""
    program = run.program("dllama", node)
    listen = ["--host", run.data_address(node), "--port", str(_PORT)]
    return [program, "worker", *listen, *devices.arguments(run, node)]


def root_arguments(run: Run) -> list[str]:
    """What every root takes; workers come last, as many as there are."""
    values = run.case.parameters
    model, tokenizer = model_files(run)
    arguments = ["--model", model, "--tokenizer", tokenizer]
    arguments += ["--buffer-float-type", values["buffer_float_type"]]
    arguments += [*devices.arguments(run, run.head), "--seed", str(run.case.seed)]
    arguments += ["--temperature", "0"]
    arguments += ["--max-seq-len", str(values["max_seq_len"])] if values["max_seq_len"] else []
    addresses = [f"{run.data_address(node)}:{_PORT}" for node in run.workers]
    arguments += passthrough.arguments(values)
    return [*arguments, *(["--workers", *addresses] if addresses else [])]


def infer_argv(run: Run, prompt: str, steps: int) -> list[str]:
    """The command line of an inference.

    steps: tokens of the prompt and after it, together.
    """
    inference = [run.program("dllama"), "inference", "--prompt", prompt, "--steps", str(steps)]
    return [*inference, *root_arguments(run)]


def infer(run: Run, name: str, prompt: str, steps: int) -> tuple[dllama.Inference, OwnedProcess]:
    """Run one inference to its end.

    steps: tokens of the prompt and after it, together.

    Returns:
        The inference, and its process, which has ended.

    Raises:
        RunFailure: root or worker ended with an error, or did not use the GPU.
        ParseError: the output is not a whole inference.
    """
    wait_until_listening(run)
    label = f"{name}-{len(run.owned)}"
    environment = devices.environment(run, run.head)
    process = run.execute(run.head, label, infer_argv(run, prompt, steps), environment)
    if process.returncode != 0:
        raise _explained(run, process, RunFailure(f"dllama {process.ending()}."))
    _require_devices(run, process)
    return dllama.parse(process.output), process


def wait_until_listening(run: Run) -> None:
    """Until every worker listens, which it does again each time after a root has left.

    Its node is asked, because a worker ends when anything but a root connects.
    """
    limit = min(run.deadline, time.monotonic() + _START_LIMIT_S)
    for node, worker in zip(run.workers, _workers(run), strict=True):
        address = run.data_address(node)
        while (address, _PORT) not in listeners(node.script(_LISTENING)):
            if not worker.running:
                words = _error(worker) or "it printed no error"
                reason = f"The worker on {worker.node!r} {worker.ending()}: {words}."
                raise RunFailure(reason)
            if time.monotonic() > limit:
                reason = f"The worker on {worker.node!r} listens no more on {address}:{_PORT}."
                raise RunFailure(reason)
            time.sleep(0.05)


def _workers(run: Run) -> list[OwnedProcess]:
    names = {node.node.name for node in run.workers}
    return [p for p in run.owned if p.node in names and f"-{_WORKER}-" in p.unit]


def _require_devices(run: Run, root: OwnedProcess) -> None:
    """Root and workers must have named the GPU that they compute on; raises RunFailure."""
    for node, process in zip(run.nodes, [root, *_workers(run)], strict=True):
        devices.require(run, node, process)


def _explained(run: Run, root: OwnedProcess, failure: RunFailure) -> RunFailure:
    """A failure with the errors that root and workers printed; unsupported where they say so.

    A root whose worker has died is mostly ended by SIGPIPE, without a word.
    """
    workers = _workers(run)
    limit = time.monotonic() + (_ERRORS_WITHIN_S if workers else 0)
    while not any(map(_error, workers)) and time.monotonic() < limit:
        time.sleep(0.05)
    errors = {process.node: _error(process) for process in (root, *workers)}
    printed = "".join(f" Node {node!r}: {error}." for node, error in errors.items() if error)
    outcome = "unsupported" if _UNSUPPORTED.search(printed) else failure.outcome
    return RunFailure(failure.reason + printed, outcome)


def _error(process: OwnedProcess) -> str:
    """The last error that a process printed; on standard error is only what it did not catch."""
    errors = _ERROR.findall(process.output)
    if errors or process.running or not process.errors.strip():
        return errors[-1].strip() if errors else ""
    return process.last_line()
