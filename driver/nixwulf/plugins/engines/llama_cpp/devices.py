"""The devices that the builds of llama.cpp on the nodes list, and those on which a case computes.

Every device is named on the command line. Left to itself, llama.cpp leaves out a head's integrated
GPU beside RPC devices (builds from September 2025 to May 2026), takes OpenBLAS for a device that
computes, and takes one GPU twice that two of its back ends list. A name that a build does not list
ends its programs with 'invalid device'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nixwulf.inventory.platforms import load_platform
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines import devices
from nixwulf.plugins.engines.llama_cpp import options
from nixwulf.plugins.runtime.run import Run, RunFailure

_LOOK = """
llama-server --version 2>&1
echo "--"
llama-bench --list-devices 2>/dev/null
exit 0
"""
_DEVICES = "devices"
_FLAGS = "flags"
# Every build takes more layers than a model has for all of them; 99 leaves 28 of Llama 3.1 405B's
# 126 to the head's CPU.
ALL_LAYERS = 999
CPU = "CPU"


def look(run: Run) -> None:
    """Read what the builds on the nodes offer, and choose each node's devices.

    Raises RunFailure: `skipped` where a node lists no device of the back end that the case names,
    and where the head's build has no RPC; `failed` where the case names no back end and a
    platform's GPU would stand idle.
    """
    for node, answer in zip(run.nodes, run.outputs(_LOOK), strict=True):
        versions, _, listing = answer.partition("--\n")
        version = re.search(r"^version: (.*)", versions, re.MULTILINE)
        if version and node is run.head:
            run.engine_facts["version"] = version[1]
        listed = tuple(sorted(options.listed_devices(listing)))
        run.engine_found[_DEVICES, node.node.name] = _chosen(run, node, listed)
    _record_devices(run)
    run.engine_facts["origin"] = run.program("llama-bench")
    for program in ("llama-bench", "llama-server"):
        text = run.output(run.head, '"$1" --help 2>&1 || true', run.program(program))
        offers = tuple(options.offered(text))
        run.engine_found[_FLAGS, program] = offers
        problem = options.rpc_problem(program, offers)
        if run.case.nodes > 1 and problem:
            raise RunFailure("skipped", f"Node {run.head.node.name!r} has {problem}")


def flags(run: Run, program: str) -> tuple[str, ...]:
    """The flags that a program on the head offers."""
    return run.engine_found[_FLAGS, program]


def gpus(run: Run, node: Connection) -> tuple[str, ...]:
    """The GPUs of a node on which the case computes, by the names that its build lists."""
    return run.engine_found[_DEVICES, node.node.name]


def offered(run: Run, node: Connection) -> tuple[str, ...]:
    """The devices that a node's RPC server offers: its GPUs, else its CPU."""
    return gpus(run, node) or (CPU,)


def served(run: Run) -> tuple[Connection, ...]:
    """The nodes that compute through an RPC server.

    A GPU of the head takes part by itself, and the head in its own list has crashed clients
    (https://github.com/geerlingguy/beowulf-ai-cluster/issues/15). A CPU does not: llama.cpp splits
    over devices, and with RPC devices only, the head looks up embeddings and samples, nothing else.
    """
    if run.case.nodes == 1:
        return ()
    return run.workers if gpus(run, run.head) else run.nodes


def of_client(run: Run) -> tuple[str, ...]:
    """The devices that a client on the head names, RPC ones first; none computes on the CPU."""
    remote = sum(len(offered(run, node)) for node in served(run))
    return (*(f"RPC{number}" for number in range(remote)), *gpus(run, run.head))


def arguments(run: Run, separator: str) -> list[str]:
    """How a client is given its devices and all layers; its devices are joined by a separator."""
    named = of_client(run)
    layers = ALL_LAYERS if named else 0
    return ["-dev", separator.join(named) or "none", "-ngl", str(layers)]


def _chosen(run: Run, node: Connection, listed: Sequence[str]) -> tuple[str, ...]:
    wanted = str(run.case.parameters.get("backend", "any"))
    if wanted == "cpu":
        return ()
    expected = load_platform(node.node.platform).get("gpu", {}).get("backends", [])
    order = [wanted] if wanted != "any" else expected or [*options.DEVICE_PREFIXES]
    found = (options.devices_of(backend, listed) for backend in order)
    chosen = next(filter(None, found), ())
    if chosen or (wanted == "any" and not expected):
        return chosen
    shown = ", ".join(listed) or "the CPU only"
    if wanted != "any":
        raise RunFailure(
            "skipped",
            f"Node {node.node.name!r} has no device of {wanted} for llama.cpp, its "
            f"llama-bench lists {shown}; see 'llama-bench --list-devices' there.",
        )
    raise devices.idle_gpu(
        "llama.cpp",
        node,
        f"lists {shown}",
        f"install a build for {' or '.join(expected)}, or ask for the CPU with 'backend: [cpu]'",
    )


def _record_devices(run: Run) -> None:
    names = {node.node.name: "+".join(offered(run, node)) for node in run.nodes}
    devices.record(run, names)
    # llama-bench names every back end that its build has loaded, whichever of them computed.
    used = sorted({name.rstrip("0123456789") for node in run.nodes for name in offered(run, node)})
    run.engine_facts["backends"] = ",".join([*used, *(["RPC"] if run.case.nodes > 1 else [])])
    if len({own == CPU for own in names.values()}) > 1:
        run.warnings.append(
            f"Some nodes compute on a GPU and some on the CPU ({run.engine_facts['devices']}); the "
            "slowest decides."
        )
