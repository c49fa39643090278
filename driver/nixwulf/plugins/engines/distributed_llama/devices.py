"""What distributed-llama computes on, node by node: the CPU, or one GPU through Vulkan."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from typing import Any

from nixwulf.inventory.cluster import LAB_PLATFORM
from nixwulf.inventory.platforms import load_platform
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines import devices
from nixwulf.plugins.runtime.run import Run, RunFailure

# src/app.cpp: a build without DLLAMA_VULKAN holds this text, and one with it does not.
_WITHOUT_VULKAN = "This build does not support GPU"
# stdbuf(1) works by two environment variables. Without them a worker keeps up to 4 KiB of what it
# prints, its errors and its GPU among them, and loses that when it is stopped.
_LOOK = f"""
grep -q {shlex.quote(_WITHOUT_VULKAN)} "$(command -v dllama)" && echo without-vulkan
stdbuf -oL env 2>/dev/null | grep -E '^(LD_PRELOAD|_STDBUF_O)='
exit 0
"""
_LINE_BUFFERED = "environment"
# Printed by NnVulkanContext whatever the options; nothing but this device computes then, because
# src/app.cpp adds the CPU only beside --gpu-segments, which the driver does not pass.
_DEVICE = re.compile(r"^\N{VOLCANO} Device: (.+)$", re.MULTILINE)
# Vulkan devices that compute on the CPU; a lab has no other.
_SOFTWARE = re.compile("llvmpipe|lavapipe|SwiftShader", re.IGNORECASE)
_PRINTED_WITHIN_S = 2.0


def contradiction(values: Mapping[str, Any]) -> str | None:
    """What of a case's parameters cannot be together, or None."""
    if values["backend"] == "vulkan" and values["threads"] > 1:
        return "distributed-llama takes one thread with a GPU; give the parameter threads: [0]"
    if values["backend"] == "cpu" and values["gpu_index"]:
        return "gpu_index goes with a GPU; give the parameter backend: [vulkan]"
    return None


def look(run: Run) -> None:
    """Note what the builds on the nodes compute on; raises RunFailure where a GPU is out of reach.

    A GPU is wanted of every node with `backend: vulkan`, with `any` where its platform has one.
    """
    for node, answer in zip(run.nodes, run.outputs(_LOOK), strict=True):
        lines = answer.splitlines()
        if uses_gpu(run, node) and "without-vulkan" in lines:
            raise _without_vulkan(run, node)
        variables = tuple(line for line in lines if "=" in line)
        run.engine_found[_LINE_BUFFERED, node.node.name] = variables
    used = {"Vulkan" if uses_gpu(run, node) else "CPU" for node in run.nodes}
    run.engine_facts["backends"] = ",".join(sorted(used))


def uses_gpu(run: Run, node: Connection) -> bool:
    """Whether a node computes on a GPU."""
    backend = run.case.parameters["backend"]
    return backend == "vulkan" or (backend == "any" and "gpu" in load_platform(node.node.platform))


def arguments(run: Run, node: Connection) -> list[str]:
    """Threads and GPU of a worker or a root."""
    if uses_gpu(run, node):
        # "This configuration supports max 1 threads" else (NnVulkanDevice::maxNThreads).
        return ["--nthreads", "1", "--gpu-index", str(run.case.parameters["gpu_index"])]
    # dllama itself would take one thread.
    threads = run.case.parameters["threads"] or max(1, run.facts[node.node.name].cpus)
    return ["--nthreads", str(threads)]


def environment(run: Run, node: Connection) -> dict[str, str]:
    """What makes the programs on a node print each line at once."""
    found = run.engine_found.get((_LINE_BUFFERED, node.node.name), ())
    return dict(line.split("=", 1) for line in found)


def require(run: Run, node: Connection, process: OwnedProcess) -> None:
    """Require that a process on a node that computes on a GPU printed the GPU's name.

    Raises RunFailure: `fallback` where it printed none, or one in software.
    """
    if not uses_gpu(run, node):
        return
    limit = time.monotonic() + _PRINTED_WITHIN_S
    while not (names := _DEVICE.findall(process.output)) and time.monotonic() < limit:
        time.sleep(0.05)
    problem = device_problem(node.node.platform, names[-1] if names else "")
    if problem:
        raise RunFailure(f"dllama on node {node.node.name!r} {problem}.", "fallback")


def device_problem(platform: str, device: str) -> str | None:
    """What is wrong with the device that a process named, empty when it named none; or None."""
    if not device:
        return "does not print the 'Device: ...' that it computes on, as it does with a GPU"
    if platform != LAB_PLATFORM and _SOFTWARE.search(device):
        return (
            f"computed on {device!r}, which is its CPU; see 'vulkaninfo --summary' there, and "
            "gpu_index"
        )
    return None


def _without_vulkan(run: Run, node: Connection) -> RunFailure:
    found = "is built without Vulkan"
    remedy = "install packages/distributed-llama-vulkan.nix there, or ask for 'backend: cpu'"
    if run.case.parameters["backend"] == "any":
        return devices.idle_gpu("distributed-llama", node, found, remedy)
    return RunFailure(
        f"The case asks for vulkan, and distributed-llama on node {node.node.name!r} {found}; "
        f"{remedy}."
    )
