"""What llama.cpp's programs prove: the transport of their RPC, and the devices that computed.

What decides cannot be silenced: that programs took the names of their devices (an unknown name ends
them), llama-bench's JSON and, of RDMA, each RPC server's log. llama-server prints its devices at
verbosity 4 only (https://github.com/ggml-org/llama.cpp/pull/23021), and at times a server's list is
still in its buffer: such lines are judged where they are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.plugins.engines.llama_cpp.options import DEVICE_PREFIXES

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
_OFFERS = re.compile(r"^ +(\w+): .*MiB", re.MULTILINE)
_FAMILIES = (*DEVICE_PREFIXES.values(), ("RPC",))


def transport_problem(
    transport: str, client_node: str, client: str, servers: Mapping[str, str]
) -> str | None:
    """What the output of a client and, by node, of the RPC servers says against a transport.

    A server activates RDMA with the queue pair that the client sent it, so its line proves both
    sides; the client's is compared with it where there is one.
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
    asked: Sequence[str], layers: int, node: str, row: Mapping[str, Any]
) -> str | None:
    """What a row of llama-bench's JSON says against the devices and layers that it was given."""
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
    """What a llama-server's log says against the devices that it was given, where it says any."""
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


def rpc_server_problem(asked: Sequence[str], node: str, output: str) -> str | None:
    """What an RPC server's list of its devices says against those that it was to offer."""
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
