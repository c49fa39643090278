"""MLX: mlx-lm's programs on each node, split by tensors or layers, over its ring or jaccl."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from nixwulf.llm import safetensors
from nixwulf.plugins.engines import Engine, Performance, Splits, equal_or_latent_kv_heads
from nixwulf.plugins.engines.local import Wheels, printed_version
from nixwulf.plugins.engines.mlx import ranks
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, Written, serving
from nixwulf.plugins.runtime import nccl, passthrough, speculation
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.openai import Completions, Endpoint
from nixwulf.plugins.runtime.run import Run, RunFailure

_SERVER_PORT = 50054
_UNHEALTHY = 503  # it could not load the model
_GROUP_FILES = ("MLX_HOSTFILE", "MLX_IBV_DEVICES")
_GROUP = "nixwulf-mlx.json"  # in the home folder, where ssh's commands begin
_LOADED = "default_model"  # what the server calls the model that it was started with
_OTHER_VOCABULARY = "Draft model tokenizer does not match model tokenizer"
_TOP = 10  # log-probabilities that it gives at most
# Architectures of random models whose model in mlx-lm 0.32.2 has no pipeline.
_TENSOR_ONLY = {"llama"}

MLX, MLX_LM = "0.32.4", "0.32.2"
# The extra is the library for CPUs, which Linux needs; a Mac's has the GPU in it.
REQUIREMENTS = (f"mlx[cpu]=={MLX}", f"mlx-lm=={MLX_LM}")
WHEELS = Wheels(
    "MLX",
    ("mlx_lm.benchmark", "mlx_lm.server"),
    f"{MLX_LM}-{MLX}",
    (Path(__file__).with_name("requirements.lock"),),
    lambda program: printed_version(program.with_name("mlx_lm")),
    "350 MB, half a minute",
)


class Mlx(Engine):
    """MLX with mlx-lm.

    One owned process a rank, with `MLX_RANK` and `MLX_HOSTFILE` (ring), `MLX_IBV_DEVICES` and
    `MLX_JACCL_COORDINATOR` (jaccl), or `NCCL_HOST_IP` and NCCL's variables where MLX has CUDA on
    all nodes. MLX on each node is asked what it computes on; the CPU of a node whose platform has a
    GPU is `failed`. Ranks other than 0 do one trial more and are stopped in it, because a stage of
    a pipeline that ends first closes its connections too early.

    A rank that found no group runs the whole model alone and prints results as rank 0 does: that is
    `fallback`. Over jaccl no counter is known; a run is `ok` because each rank was given the RDMA
    devices and nothing else, no rank but 0 printed results, and no interface carried more than 1
    MB. It then has `proved: false` and a warning.

    mlx-lm 0.32.2 has a pipeline for deepseek_v2 and v3, glm4_moe, ministral3, qwen2, qwen3_5,
    qwen3_moe, qwen3_next and others, not for llama or qwen3; MLX 0.32.4 has no send over NCCL.
    mlx_lm.server does not count drafted tokens, so that decode with a draft has no acceptance.
    """

    name = "mlx"
    random_model = staticmethod(safetensors.ensure)
    programs = WHEELS.programs
    wheels = WHEELS
    packages = ("mlx", "mlx-lm")
    built_from = f"PyPI's mlx[cpu] {MLX} and mlx-lm {MLX_LM} ({WHEELS.size})"
    ports = (ranks.PORT, _SERVER_PORT)
    api_port = _SERVER_PORT
    native_benchmark = "mlx_lm.benchmark"
    clients = ("mlx_lm.benchmark", "mlx_lm.generate")
    measuring_variables = nccl.LOGGING
    # `shard` of its models divides both counts of heads by the nodes and drops what is left over
    # (https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/models/llama.py).
    splits = Splits(even_heads=True, kv_heads=equal_or_latent_kv_heads)
    performance = Performance(family="mlx", collective="ring")
    model_on_every_node = True
    hub_models = True
    gpus = ("apple", "nvidia")
    drafts = (speculation.MODEL,)
    over_cables: ClassVar = {"tcp": OverCables(pairs=False), "rdma": OverCables(control=True)}
    # Of MLX's backends jaccl alone finds what it needs then, and its data cross RDMA alone.
    rdma_known_by = (
        "MLX was given RDMA devices and nothing else, and a rank that finds no group works "
        "alone and is seen"
    )

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Nodes that are no group; of a model that the driver makes, what does not split."""
        problem = super().unsupported(point) or ranks.group_problem(point)
        if problem:
            return problem
        model, nodes = point.get("random"), point["nodes"]
        if nodes > 1 and speculation.speculates(point["parameters"]):
            return "mlx_lm.server drafts on one node only"
        if model is None or nodes == 1:
            return None
        if point["parallelism"] == "pipeline":
            if model.architecture in _TENSOR_ONLY:
                return f"mlx-lm splits a {model.architecture} by tensors only"
            return None
        if model.feed_forward % nodes:
            return f"mlx-lm splits evenly, and feed_forward {model.feed_forward} is no multiple"
        return None

    def start(self, run: Run) -> None:
        """Nothing listens beforehand: each program of MLX is started on all nodes at once."""
        run.engine_facts["origin"] = run.program(self.programs[0])
        ranks.ask(run, self, self.programs[0])
        if run.case.nodes > 1:
            backend = ranks.backend(run)
            run.engine_facts["backends"] = backend
            if backend != "nccl":
                ranks.group_text(run)

    def transport_problem(self, run: Run) -> str | None:
        """A rank without a group serves by itself, as rank 0; of its backends only NCCL logs it."""
        alone = ranks.alone(run.owned)
        if alone or run.engine_facts.get("backends") != "nccl":
            return alone
        return nccl.transport_problem(run.case.transport, nccl.logs(run))

    def arguments(self, run: Run) -> list[str]:
        """What every program of mlx-lm takes to run a case; it splits by tensors by default."""
        split = ["--pipeline"] if run.case.parallelism == "pipeline" else []
        return ["--model", run.model, *split, *passthrough.arguments(run.case.parameters)]

    @contextmanager
    def completer(self, run: Run, context: int) -> Iterator[Completions]:
        """A server, which names its version in each answer, and does not tokenize."""
        with self.endpoint(run) as endpoint:

            def post(path: str, request: Mapping[str, object]) -> Any:
                answer = endpoint.post(path, request)
                found = answer.get("system_fingerprint") if isinstance(answer, dict) else None
                if version := re.match(r"([\d.]+)-([\d.]+)-", str(found)):
                    run.engine_facts["version"] = f"mlx-lm {version[1]}, mlx {version[2]}"
                return answer

            completions = endpoint.completions(0, logprobs=True, top_logprobs=_TOP)
            yield replace(completions, post=post)

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """mlx_lm.server on all nodes; the head answers, on its loopback address only."""
        arguments = [*self.arguments(run), "--host", "127.0.0.1", "--port", str(_SERVER_PORT)]
        if run.draft:
            count = str(speculation.tokens(run.case.parameters))
            arguments += ["--draft-model", run.draft, "--num-draft-tokens", count]
        with (
            ranks.started(run, "mlx-server", "mlx_lm.server", lambda _: arguments) as group,
            run.head.forwarded(f"127.0.0.1:{_SERVER_PORT}") as local,
        ):
            endpoint = Endpoint(run, local, _LOADED, group.head)
            # It answers before the model is loaded, and the first request waits for that.
            endpoint.wait_until_healthy(hopeless=_UNHEALTHY)
            yield endpoint
        # It goes on with a draft of another vocabulary; now all that it printed is here.
        if run.draft and _OTHER_VOCABULARY in f"{group.head.output}\n{group.head.errors}":
            raise RunFailure(f"mlx_lm.server says: {_OTHER_VOCABULARY}.", "unsupported")

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """Ranks read of their group in a file, which a run removes."""
        servers = run.of("mlx_lm.server")
        grouped = [
            replace(one, environment={name: _GROUP if name in _GROUP_FILES else value
                                      for name, value in one.environment.items()})
            for one in servers
        ]  # fmt: skip
        before: list[Written] = []
        if any(name in one.environment for one in servers for name in _GROUP_FILES):
            nodes = run.cluster.joined(run.fabric, len(servers))
            text = ranks.group(nodes, run.fabric, run.case.get("transport"))
            before = [Written(node.name, _GROUP, text) for node in nodes]
        return serving(self, run, grouped, _LOADED, before)


ENGINE = Mlx()
