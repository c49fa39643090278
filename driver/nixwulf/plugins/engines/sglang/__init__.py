"""SGLang: its server, one GPU a node, its own launcher with a rank on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from nixwulf.core.registry import parameters_of
from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins import engines
from nixwulf.plugins.engines import devices, kept_servers
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, serving
from nixwulf.plugins.runtime import nccl, openai, passthrough, speculation
from nixwulf.plugins.runtime.run import Run

_PORT = 30000
_SPLIT = {"tensor": "--tp-size", "pipeline": "--pp-size"}
# What is usual on GPUs with memory of their own; SGLang's own depends on the model.
_GPU_MEMORY = 0.85
# What the server's own Python picks; without any device it raises.
_PRINT_DEVICE = f"""
try:
    from sglang.srt.utils import get_device
    print("{devices.MARK}", get_device())
except Exception:
    print("{devices.MARK} {devices.NONE}")
"""
_ALGORITHMS = {
    speculation.NGRAM: "NGRAM",
    speculation.MTP: "NEXTN",
    speculation.MODEL: "STANDALONE",
}


class SGLang(kept_servers.RankedServer):
    """SGLang's OpenAI-compatible server, one GPU a node: never run by the project.

    No wheel of it computes on a CPU, so that the lab has none: what is started and read is that of
    the sources of 0.5.10 and 0.5.23. Each node has a rank (`--nnodes`, `--node-rank`), and all meet
    at the head (`--dist-init-addr`); the head's server listens on its loopback.

    All ranks get the variables of NCCL and Gloo that vLLM's get, and `SGLANG_HOST_IP`. Channels in
    NCCL's log that are not `via NET/IB` with rdma, or `via NET/Socket` with tcp, are `fallback`.
    The server's own Python on each node is asked which device SGLang picks; the CPU of a node whose
    platform has a GPU is `failed`.

    A draft model is SGLang's STANDALONE, `mtp` its NEXTN. SGLang counts steps, and drafts the same
    number of tokens for each, from which acceptance follows.
    """

    name = "sglang"
    parameters: ClassVar = parameters_of("sglang")
    programs = ("sglang",)
    packages = (
        *("sglang", "sglang-kernel", "sgl-kernel", "torch"),
        *("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    )
    lacking = (
        "SGLang is not on PATH ('sglang'), and has no wheel for CPUs; run it on nodes with GPUs."
    )
    print_device = _PRINT_DEVICE
    remedy = "install SGLang for it there ('python -m sglang.check_env' prints what it finds)"
    version_paths = ("/server_info", "/get_server_info")
    ports = (TCP["sglang"],)
    api_port = _PORT
    # Its layers took vLLM's rules: heads divide, key-value heads divide or repeat
    # (srt/layers/linear.py of https://github.com/sgl-project/sglang).
    splits = engines.Splits(even_heads=True, kv_heads=engines.equal_or_repeated_kv_heads)
    performance = engines.Performance(family="vllm")

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """More of the GPU than there is; and a draft over a pipeline."""
        if point["parallelism"] == "pipeline" and speculation.speculates(point["parameters"]):
            return "SGLang has no speculative decoding over a pipeline"
        return super().unsupported(point)

    @contextmanager
    def completer(self, run: Run, context: int) -> Iterator[Generate]:
        """The server that is measured: it has the room that the case gives it."""
        with self.endpoint(run) as endpoint:
            yield Generate(endpoint, context_of(endpoint))

    def launch(self, run: Run, name: str) -> OwnedProcess:
        """Start the ranks of the other nodes, then that of the head, which serves."""
        for rank, node in enumerate(run.workers, start=1):
            argv = [*serve_arguments(run, node), *_rank(run, rank)]
            run.start(node, name, argv, environment(run, node), background=True)
        argv = [*serve_arguments(run, run.head), *_rank(run, 0)]
        return run.start(run.head, name, argv, environment(run, run.head))

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """As it was started."""
        argv = run.of("sglang")[-1].argv
        return serving(self, run, run.started, argv[argv.index("--model-path") + 1])


ENGINE = SGLang()


def serve_arguments(run: Run, node: Connection) -> list[str]:
    """What every rank of a server takes."""
    case, values = run.case, run.case.parameters
    memory = kept_servers.gpu_memory(run, node, _GPU_MEMORY)
    arguments = [run.program("sglang", node), "serve", "--model-path", run.model]
    arguments += ["--host", "127.0.0.1", "--port", str(_PORT), "--random-seed", str(case.seed)]
    arguments += ["--mem-fraction-static", f"{memory:g}", "--dtype", values["dtype"]]
    for key, flag in (
        ("max_model_len", "--context-length"),
        ("max_num_seqs", "--max-running-requests"),
    ):
        arguments += [flag, str(values[key])] if values[key] else []
    if case.nodes > 1:
        arguments += [_SPLIT[case.parallelism or ""], str(case.nodes)]
    return [*arguments, *_draft(run), *passthrough.arguments(values)]


def _draft(run: Run) -> list[str]:
    """How a server drafts, one candidate for each token, and counts its steps."""
    draft, count = speculation.of(run.case.parameters), speculation.tokens(run.case.parameters)
    if draft.kind == speculation.NONE:
        return []
    values: dict[str, Any] = {"--speculative-algorithm": draft.method or _ALGORITHMS[draft.kind]}
    if not draft.own:
        values["--speculative-num-draft-tokens"] = count + 1
    if count and draft.kind != speculation.NGRAM:
        values["--speculative-num-steps"] = count
    if not draft.own and draft.kind != speculation.NGRAM:
        values["--speculative-eagle-topk"] = 1
    values |= {"--speculative-draft-model-path": run.draft} if run.draft else {}
    more = speculation.flags("--speculative-", draft.more)
    given = {flag: one for flag, one in values.items() if flag not in more}
    return ["--enable-metrics", *speculation.flags("", given), *more]


def environment(run: Run, node: Connection) -> dict[str, str]:
    """The same variables for every rank, each with its node's own values."""
    variables = {"PYTHONFAULTHANDLER": "1"}
    if run.model.startswith("/"):
        variables["HF_HUB_OFFLINE"] = "1"
    if run.fabric is None:
        return variables
    meeting = {"SGLANG_HOST_IP": run.meeting_address(node)}
    return {**variables, **meeting, **nccl.environment(run, node)}


def _rank(run: Run, rank: int) -> list[str]:
    if run.case.nodes == 1:
        return []
    meeting = f"{run.meeting_address(run.head)}:{TCP['sglang']}"
    return [
        *("--nnodes", str(run.case.nodes)),
        *("--node-rank", str(rank)),
        "--dist-init-addr",
        meeting,
    ]


# Characters of a text that has at least so many tokens.
_CHARACTERS = 8


@dataclass(frozen=True)
class Generate:
    """A completer that gives prompts as numbers; context: tokens that there is room for."""

    endpoint: openai.Endpoint
    context: int

    def prompt(self, tokens: int) -> openai.Prompt | None:
        """The first tokens of the text, as the model's tokenizer makes them; raises RunFailure."""
        found = self._tokens(openai.text_of(tokens * _CHARACTERS, self.endpoint.run.case.seed))
        return found[:tokens] if len(found) >= tokens else None

    def complete(
        self, prompt: openai.Prompt, given: Sequence[openai.Token], count: int
    ) -> openai.Answer | None:
        """With a beginning, that is a part of the prompt."""
        before = self._tokens(prompt) if isinstance(prompt, str) else prompt
        sampling = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
        request = {
            "input_ids": [*before, *given],
            "sampling_params": sampling,
            "return_logprob": True,
            "top_logprobs_num": openai.TOP,
        }
        return openai.whole(positions(self.endpoint.post("/generate", request)), count)

    def _tokens(self, text: str) -> list[int]:
        request = {"model": self.endpoint.model, "prompt": text}
        return openai.tokens_of(self.endpoint.post("/tokenize", request))


def context_of(endpoint: openai.Endpoint) -> int:
    """Tokens that a server has room for, which it says when it tokenizes; raises RunFailure."""
    answer = endpoint.post("/tokenize", {"model": endpoint.model, "prompt": openai.GREEDY})
    try:
        return int(answer["max_model_len"])
    except (KeyError, TypeError, ValueError):
        raise openai.without_tokens(answer) from None


def positions(answer: Any) -> openai.Answer:
    """The tokens of an answer: lists of a logarithm, a token's number and its text.

    https://github.com/sgl-project/sglang: srt/managers/tokenizer_manager.py of 0.5.10.

    Raises RunFailure: it has no tokens.
    """
    try:
        found = answer["meta_info"]
        tokens, tops = found["output_token_logprobs"], found["output_top_logprobs"]
        given = tuple(
            openai.Position(int(one[1]), {int(other[1]): float(other[0]) for other in top or ()})
            for one, top in zip(tokens, tops, strict=True)
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise openai.without_tokens(answer) from None
    if not given:
        raise openai.without_tokens(answer)
    return given
