"""Known causes of failures: what an engine prints, what it means, what to do. The docs print it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nixwulf.core.secrets import cut
from nixwulf.nodes.process import OwnedProcess

_LONGEST = 300
# The last line of a Python traceback, which begins where the log's own words end.
_LOGGED = re.compile(r"(?:\([^()]*\) )*(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^]]*\] )?")
_RAISED = re.compile(r"((?:\w+\.)*\w*(?:Error|Exception))(: .+)?")
# Such as vLLM's, which say of a process no more than that another one has ended.
_SECOND_HAND = re.compile(
    r"\babove\b|EngineDead|closed by peer|reset by peer|Broken pipe|cancelled|BrokenPipe|EOFError"
)


@dataclass(frozen=True)
class Hint:
    """What a reader sees, the pattern of it in an output, its meaning, and the next step."""

    symptom: str
    pattern: str
    cause: str
    fix: str


HINTS = (
    Hint(
        "RPC server version mismatch",
        "RPC server version mismatch",
        "the nodes run different builds of llama.cpp",
        "deploy the same build to all nodes",
    ),
    Hint(
        "the RPC server is ended by SIGSEGV",
        "rpc-server' on node .* was ended by SIGSEGV",
        "an RPC server crashed, as those on Vulkan do where tensors are split "
        "(https://github.com/ggml-org/llama.cpp/pull/26610)",
        "split by layers (parallelism: [pipeline]), or compute by another back end",
    ),
    Hint(
        "invalid device: Vulkan0",
        "invalid device: |unknown device: ",
        "a device that llama.cpp listed when the run began was gone when a program started",
        "run 'llama-bench --list-devices' and 'dmesg' on that node",
    ),
    Hint(
        "the client or the RPC server is ended by a signal",
        "Remote RPC server crashed|rpc-server' on node .* was ended by",
        "an RPC server died during the run",
        "read that node's log tail, and its kernel log for the out-of-memory killer",
    ),
    Hint(
        "Failed to connect to ADDRESS:PORT",
        "Failed to connect to",
        "nothing listens at that address and port, or a firewall drops it",
        "check that the RPC server runs and that its port is open on the fabric's interface",
    ),
    Hint(
        "failed to allocate a buffer",
        "failed to allocate .*buffer|unable to allocate|failed to allocate",
        "a node has too little memory for its part of the model",
        "use more nodes, a smaller model or a shorter context",
    ),
    Hint(
        "tensor data is not within the file bounds",
        "tensor .* data is not within the file bounds|corrupted or incomplete",
        "the model file is cut short",
        "copy the model again and compare its size",
    ),
    Hint(
        "failed to load model",
        "failed to load model|error loading model|invalid magic",
        "the model file is missing, cut short or not a GGUF",
        "check the path and the size of the model on the head node",
    ),
    Hint(
        "Failed to create server socket",
        "Failed to create server socket",
        "another process holds the RPC server's port",
        "find it with 'ss -ltnp' on that node and end it",
    ),
    Hint(
        "Unable to find the Infiniband/RoCE device",
        "Unable to find the Infiniband/RoCE device|Did not detect devices",
        "the kernel has no RDMA device of the name in the cluster file",
        "compare rdma_device with 'rdma link' on that node, and see that its driver is loaded",
    ),
    Hint(
        "A daemon failed to report back",
        "daemon failed to report back|lost communication with a remote daemon",
        "Open MPI's ports on the fabric are closed, or a node was lost",
        "open the ephemeral TCP ports on the fabric's interface (nixwulf.hpl.fabric does)",
    ),
    Hint(
        "HPL's residual check FAILED",
        "residual check FAILED",
        "the machine computed a wrong result: memory, overclocking or a broken BLAS",
        "run it on each node alone to find which, then test that node's memory",
    ),
    Hint(
        "nccl-tests moved nothing between ranks",
        "moved nothing between ranks",
        "each rank ran alone, because the tests were built without MPI",
        "build nccl-tests or rccl-tests with MPI=1",
    ),
    Hint(
        "[ring] connection to a peer was lost",
        r"connection to a peer was lost|mlx_lm\.\w+' on node .* was ended by",
        "a rank of MLX died during the run",
        "read that node's log tail, and its kernel log for the out-of-memory killer",
    ),
    Hint(
        "[GatherMM::eval] Currently only supports float32",
        r"GatherMM::eval",
        "MLX mixes experts in f32 only on a CPU",
        "give the random model weights: f32, or run it on a Mac's GPU",
    ),
    Hint(
        "ncclCommInitRank: internal error",
        "ncclCommInitRank.*internal error|ncclInternalError",
        "NCCL found no RDMA device of the name, or two",
        "set the node's rdma_device to the one that 'rdma link' shows for the fabric's interface",
    ),
    Hint(
        "NCCL crossed NET/Socket, not NET/IB",
        "NCCL crossed .*, not NET/IB",
        "NCCL could not use the RDMA device and took tcp without a word",
        "look for 'NET/IB' in that node's log, and check 'ibv_devinfo' and 'ulimit -l' there",
    ),
    Hint(
        "No available memory for the cache blocks",
        "No available memory for the cache blocks|less than desired \\w+ memory utilization"
        "|(CUDA|HIP) out of memory",
        "the model and its cache do not fit in the share of the memory that vLLM may take",
        "end what else uses the memory, lower max_model_len, or use more nodes",
    ),
    Hint(
        "workers were killed due to the node running low on memory",
        "killed due to the node running low on memory",
        "Ray takes a loaded model in shared memory for a leak",
        "check that RAY_memory_monitor_refresh_ms=0 is in the record's commands of every node",
    ),
    Hint(
        "ibv_modify_qp failed with 110 Connection timed out",
        "ibv_modify_qp failed with (error )?(110|Connection timed out|Network is unreachable)",
        "NCCL took a port that does not lead to the peer, as it does on cables before 2.30.7 "
        "(https://github.com/eugr/spark-vllm-docker/issues/252), or the cable carries nothing",
        "see 'NCCL version' in the log, and ping over each cable",
    ),
    Hint(
        "EngineCore encountered a fatal error",
        "EngineCore encountered|Engine core initialization failed",
        "a rank of vLLM died, on any node",
        "read the log tails of all nodes, and their kernel logs for the out-of-memory killer",
    ),
    Hint(
        "more nodes than the number of KV heads",
        "more nodes than the number of KV heads",
        "distributed-llama gives each node a key-value head at least",
        "use fewer nodes, or a model with more key-value heads",
    ),
    Hint(
        "Unsupported CPU op code: MATMUL",
        "Unsupported (CPU op code|shader): MATMUL|supports only Q40 weights with Q80 sync type",
        "distributed-llama computes q40 weights with q80 values, and f32 with f32, nothing else",
        "set the parameter buffer_float_type to what goes with the model's weights",
    ),
    Hint(
        "Execution failed in one of the threads",
        "Execution failed in one of the threads|dllama' on node .* was ended by",
        "a worker of distributed-llama died during the run",
        "read that node's log tail, and its kernel log for the out-of-memory killer",
    ),
    Hint(
        "Invalid GPU index, found 1 GPUs",
        "Invalid GPU index, found|vk::createInstance: Error",
        "Vulkan shows distributed-llama fewer GPUs on that node than gpu_index counts, from 0",
        "run 'vulkaninfo --summary' there as the user of the run",
    ),
    Hint(
        "Failed to open shader file: ./src/nn/vulkan/...",
        "Failed to open shader file",
        "upstream's distributed-llama looks for its shaders in the folder that it is started in",
        "install packages/distributed-llama-vulkan.nix, or write the folder into readShader of "
        "src/nn/nn-vulkan.cpp before 'make'",
    ),
    Hint(
        "EXO_LIBP2P_NAMESPACE has been removed",
        "EXO_LIBP2P_NAMESPACE has been removed|Bootstrap peers has been temporarily removed",
        "the node sets a variable of exo v1.0.71, and its exo is of commit 09f9ea3 or later",
        "unset EXO_LIBP2P_NAMESPACE and EXO_BOOTSTRAP_PEERS on the nodes",
    ),
    Hint(
        "exo lacks the model on a node",
        "exo lacks the model on a node|Model files not found locally in offline mode",
        "exo reads models from folders of its own, as ORG--NAME, and not from Hugging Face's cache",
        "copy the model into the folder that the message names, on every node",
    ),
    Hint(
        "mlx.core.array has no attribute extend",
        r"mlx\.core\.array.* has no attribute .?extend",
        "exo batches requests by its own fork of mlx-lm, and has PyPI's",
        "add arguments: --no-batch to the sweep, or install exo with its lock ('uv sync')",
    ),
    Hint(
        "a program was silent for longer than the progress limit",
        "was silent for",
        "a peer stopped answering, or one sample takes longer than the limit (llama-bench is "
        "silent inside a sample)",
        "ping the peers over the fabric and read the log tails; else raise limits.progress_s",
    ),
)


def hint_for(text: str) -> str | None:
    """The meaning and the fix of the first known pattern in a text; None when nothing is known."""
    for hint in HINTS:
        if re.search(hint.pattern, text, re.IGNORECASE):
            return f"{hint.cause[0].upper()}{hint.cause[1:]}: {hint.fix}."
    return None


def raised(processes: Iterable[OwnedProcess]) -> str:
    """What the process that failed first says of why, as a sentence with its node; or empty.

    Of each it is the last exception that is not about another process.
    """
    found = []
    for process in processes:
        for text, times in (
            (process.output, process.stdout_times),
            (process.errors, process.stderr_times),
        ):
            lines = [_LOGGED.sub("", line, count=1).rstrip() for line in text.splitlines()]
            for number in reversed(range(len(lines))):
                match = _RAISED.fullmatch(lines[number])
                if match and not _SECOND_HAND.search(match[0]):
                    # An assertion has no words but its own line, which may be underlined.
                    before = (one.strip() for one in reversed(lines[:number]))
                    own = next(filter(lambda one: one.strip("^~ "), before), "")
                    words = match[0] if match[2] else f"{match[0]}: {own}"
                    when = times[number] if number < len(times) else float("inf")
                    found.append((when, process.node, cut(words, _LONGEST)))
                    break
    _, node, words = min(found, default=(0.0, "", ""))
    return f"Node {node!r} says {words.rstrip('.')}." if words else ""
