"""The devices of llama.cpp's builds, those on which a case computes, and what proves it.

Every device is named on the command line. Left to itself, llama.cpp leaves out a head's integrated
GPU beside RPC devices (builds from September 2025 to May 2026), takes OpenBLAS for a device that
computes, and takes one GPU twice that two of its back ends list. A name that a build does not list
ends its programs with 'invalid device'.

What proves devices and transport cannot be silenced: that programs took the names of their devices,
llama-bench's JSON and, of RDMA, each RPC server's log. llama-server prints its devices at verbosity
4 only (https://github.com/ggml-org/llama.cpp/pull/23021), and at times a server's list is still in
its buffer: such lines are judged where they are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nixwulf.inventory.platforms import load_platform
from nixwulf.llm.model_facts import ModelShape
from nixwulf.nodes.ssh import Connection, each
from nixwulf.plugins import engines
from nixwulf.plugins.engines import Splits, devices
from nixwulf.plugins.engines.llama_cpp import options
from nixwulf.plugins.engines.llama_cpp.options import DEVICE_PREFIXES
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.run import Run, RunFailure

# $1 is llama-server, $2 llama-bench.
_LOOK = """
"$1" --version 2>&1
echo "--"
"$2" --list-devices 2>/dev/null
exit 0
"""
_DEVICES = "devices"
_FLAGS = "flags"
_PLACED = "placed"
# Every build takes more layers than a model has for all of them; 99 leaves 28 of Llama 3.1 405B's
# 126 to the head's CPU.
ALL_LAYERS = 999
CPU = "CPU"
_CACHE = ("type_k", "type_v")
_FEW_BITS = ("q4", "q5", "iq4")
# Its scheduler has sixteen back ends, of which the head's CPU is one, and aborts at one more
# (GGML_SCHED_MAX_BACKENDS: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-backend.cpp).
# Over tensors all devices are one back end, which aborts at more than sixteen of them
# (GGML_BACKEND_META_MAX_DEVICES: https://github.com/ggml-org/llama.cpp/blob/master/ggml/include/ggml-backend.h).
SPLITS = Splits(most={"pipeline": 15, "tensor": 16})
# `RDMA activated: qpn=12->34 mtu=1024 rx_depth=24`, on a Mac `RDMA(Apple/UC) activated: qpn=...`.
# The numbers are the queue pairs of this side and of the other one, whose line has them reversed.
_ACTIVATED = re.compile(r"RDMA(?:\([^)]*\))? activated: qpn=(\d+)->(\d+)")
_PROBED = re.compile(r"RDMA(?:\([^)]*\))? probed: ")
_STAYED = "staying on TCP"
_WITHOUT = re.compile(r"transport\s+: TCP$", re.MULTILINE)
_USING = re.compile(r"using device (\w+)")
# Over tensors all devices are one, whose parts are counted.
_META = re.compile(r"creating a Meta device with (\d+) devices")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers")
# `load_tensors: RPC0[10.77.1.12:50052] model buffer size =    15.01 MiB`; of the head without [].
_BUFFER = re.compile(r"(\w+)(?:\[([^\]:]+):\d+\])? model buffer size = +([\d.]+) MiB")
# https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-context.cpp
_NO_DRAFT = re.compile(
    r"(?:initialize speculative decoding context: |srv +load_model: (?=failed to create MTP))(.+)"
)
_DRAFT_BEGINS = "loading draft model"
_OFFERS = re.compile(r"^ +(\w+): .*MiB", re.MULTILINE)
_FAMILIES = (*DEVICE_PREFIXES.values(), ("RPC",))


def look(run: Run) -> None:
    """Read what the builds on the nodes offer, and choose each node's devices.

    Raises RunFailure: `skipped` where a node lists no device of the back end that the case names,
    and where the head's build has no RPC; `failed` where the case names no back end and a
    platform's GPU would be idle.
    """

    def ask(node: Connection) -> str:
        places = [run.program(name, node) for name in ("llama-server", "llama-bench")]
        return run.output(node, _LOOK, *places)

    for node, answer in zip(run.nodes, each(ask, run.nodes), strict=True):
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
        run.engine_found[_FLAGS, f"{program} on {run.head.node.name}"] = offers
        problem = options.rpc_problem(program, offers)
        if run.case.nodes > 1 and problem:
            raise RunFailure(f"Node {run.head.node.name!r} has {problem}", "skipped")


def flags(run: Run, program: str) -> tuple[str, ...]:
    """The flags that a program on the head offers."""
    return run.engine_found[_FLAGS, f"{program} on {run.head.node.name}"]


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


def on_cpu(run: Run) -> Run | str | None:
    """The head of a run by its CPU, with the cache's types; None where no GPU takes part.

    What a cache of few bits makes of another rounding is no smaller than what a damage does: honest
    texts were 0.044 nats apart (results/figures/cpu-reference.txt).
    """
    if not any(gpus(run, node) for node in run.nodes):
        return None
    own = run.on_first(1)
    kept = {key: own.case.parameters[key] for key in _CACHE if key in own.case.parameters}
    few = next((kind for kind in kept.values() if str(kind).startswith(_FEW_BITS)), None)
    if few:
        return f"a cache of {few} makes of another rounding another text"
    case = replace(own.case, parameters={**kept, "backend": "cpu"})
    found = {**run.engine_found, (_DEVICES, run.head.node.name): ()}
    return replace(own, case=case, engine_found=found)


def require_few(run: Run) -> None:
    """Raise RunFailure unsupported where nodes have more devices than llama.cpp splits over."""
    split, count = run.case.parallelism or "", len(of_client(run))
    if problem := engines.splitting_problem("llama.cpp", SPLITS, ModelShape(), count, split):
        raise RunFailure(
            f"{problem}, and these nodes have {count}; take fewer nodes.", "unsupported"
        )


def arguments(run: Run, separator: str) -> list[str]:
    """How a client is given its devices and all layers; its devices are joined by a separator."""
    named = of_client(run)
    layers = ALL_LAYERS if named else 0
    shares = separator.join(_shares(run))
    return [
        *("-dev", separator.join(named) or "none", "-ngl", str(layers)),
        *(("-ts", shares) if shares else ()),
    ]


def draft_problem(run: Run, log: str) -> str:
    """Why a server does not draft as the case asks, in its own words; empty where it has none."""
    match = _NO_DRAFT.search(log)
    words = f": {match[1].strip()}" if match else ""
    return (
        words and f"llama-server drafts nothing with draft {run.case.parameters['draft']!r}{words}."
    )


def _shares(run: Run) -> list[str]:
    """The layers of each of a client's devices by the case's split; none where it is llama.cpp's.

    Several devices of a node have as many each. Raises RunFailure where layers are not known.
    """
    if run.case.parameters.get("split", memory.BY_MEMORY) == memory.BY_MEMORY or not served(run):
        return []
    if run.sizes is None:
        raise RunFailure(
            f"The header of {run.model} does not say how large its layers are.", "unsupported"
        )
    nodes = [node.node for node in run.nodes]
    counts = memory.weights(run.sizes, run.case, nodes, run.facts)
    count_of = {node.name: count for node, count in zip(nodes, counts, strict=True)}
    ordered = (*served(run), *([run.head] if gpus(run, run.head) else []))
    return [
        f"{count_of[node.node.name] / len(offered(run, node)):g}"
        for node in ordered
        for _ in offered(run, node)
    ]


def record_placed(run: Run, log: str) -> None:
    """Keep MiB of weights on each node of a pipeline, by a client's log; nothing of others.

    Several servers of a run add to it, each with its own nodes, at the same time.

    run: its RPC servers are known by their addresses; other devices are the head's.
    """
    names = [node.node.name for node in run.nodes]
    found = dict.fromkeys(names, 0.0)
    name_of = {run.data_address(node): node.node.name for node in served(run)}
    for device, address, size in _BUFFER.findall(_of_the_model(log)):
        name = name_of.get(address) if address else names[0]
        if name and not device.startswith(CPU):
            found[name] += float(size)
    known = run.case.parallelism == "pipeline" and any(found.values())
    for name, size in found.items():
        run.engine_found[_PLACED, name] = (f"{name}: {size:.1f} MiB",) if known else ()
    every = [node.name for node in run.cluster.nodes]
    shown = [text for name in every for text in run.engine_found.get((_PLACED, name), ())]
    run.engine_facts.pop("placed", None)
    if shown:
        run.engine_facts["placed"] = ", ".join(shown)


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
            f"Node {node.node.name!r} has no device of {wanted} for llama.cpp, its "
            f"llama-bench lists {shown}; see 'llama-bench --list-devices' there.",
            "skipped",
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


def transport_problem(
    transport: str, client_node: str, client: str, servers: Mapping[str, str]
) -> str | None:
    """What llama.cpp's output has against a transport, in a sentence, or None.

    A server activates RDMA with the queue pair that the client sent it, so its line proves both
    sides; the client's is compared with it where there is one.

    transport: "tcp" or "rdma". servers: output of the RPC servers, by node.
    """
    if transport == "tcp":
        for node, text in {client_node: client, **servers}.items():
            if _ACTIVATED.search(text):
                return (
                    f"llama.cpp on node {node!r} says 'RDMA activated' and the case asks for tcp, "
                    "although GGML_RDMA_DEV=none was set."
                )
        return None
    here = set(_ACTIVATED.findall(client))
    for node, text in servers.items():
        there = {(remote, local) for local, remote in _ACTIVATED.findall(text)}
        if _STAYED in text or _STAYED in client:
            return f"llama.cpp between {client_node!r} and {node!r} says 'staying on TCP'."
        if _WITHOUT.search(text):
            return f"The RPC server on node {node!r} is built without RDMA: it says 'TCP'."
        if not there:
            return _silent(node, text)
        if here and not here & there:
            return (
                f"The RPC server on node {node!r} activated RDMA with no queue pair of this run's "
                f"client on {client_node!r}."
            )
    return None


def _silent(node: str, text: str) -> str:
    probed = "it probed RDMA only" if _PROBED.search(text) else "it did not even probe RDMA"
    return (
        f"llama.cpp's RPC server on node {node!r} does not say 'RDMA activated' ({probed}), so it "
        "crossed tcp; see 'ibv_devinfo' there and rdma_device and gid_index in the cluster file."
    )


def bench_problem(
    asked: Sequence[str], layers: int, node: str, row: Mapping[str, object]
) -> str | None:
    """What a row of llama-bench's JSON has against devices and layers that were asked for."""
    backends = str(row.get("backends", ""))
    ran = str(row.get("devices", "")), row.get("n_gpu_layers")
    lacking = next((d for d in asked if not _built_in(d, backends)), None)
    if lacking is None and ran == ("/".join(asked) or "none", layers):
        return None
    return (
        f"llama-bench on node {node!r} was to run {layers} layers on "
        f"{', '.join(asked) or 'the CPU'} and ran {ran[1]} on {ran[0] or 'unknown devices'} "
        f"(backends {backends!r}, gpu_info {row.get('gpu_info', '')!r})."
    )


def server_problem(asked: Sequence[str], node: str, log: str) -> str | None:
    """What a llama-server's log has against the devices that it was given, or None.

    log: its output so far; one that names no device proves nothing.
    """
    log = _of_the_model(log)
    meta = _META.search(log)
    used = {meta[0]} if meta else set(_USING.findall(log))
    if meta and int(meta[1]) == len(asked):
        used = set(asked)
    if used and used != set(asked):
        return (
            f"llama-server on node {node!r} was to compute on {', '.join(asked) or 'the CPU'} and "
            f"uses {', '.join(sorted(used))}."
        )
    part = next((m for m in _OFFLOADED.finditer(log) if asked and int(m[1]) < int(m[2])), None)
    if part:
        return (
            f"llama-server on node {node!r} offloaded {part[1]} of {part[2]} layers, and computes "
            "the others on the CPU."
        )
    return None


def _of_the_model(log: str) -> str:
    """What a server prints until it loads a draft, whose layers and devices are others."""
    return log.partition(_DRAFT_BEGINS)[0]


def rpc_server_problem(asked: Sequence[str], node: str, output: str) -> str | None:
    """What an RPC server's list of its devices has against those that it was to offer, or None.

    output: its output so far; one without the list proves nothing.
    """
    devices = _OFFERS.findall(output)
    if not devices or set(devices) == set(asked):
        return None
    return (
        f"The RPC server on node {node!r} was to offer {', '.join(asked)} and offers "
        f"{', '.join(devices)}."
    )


def _built_in(device: str, backends: str) -> bool:
    """Whether the back end of a device is among those that a build names."""
    return any(
        device.startswith(prefixes) and any(prefix in backends for prefix in prefixes)
        for prefixes in _FAMILIES
    )
