"""What llama.cpp's own output proves: the transport of its RPC, and the devices that computed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nixwulf.engines.llama_cpp_options import DEVICE_PREFIXES

# `RDMA activated: qpn=12->34 mtu=1024 rx_depth=24`, on a Mac `RDMA(Apple/UC) activated: qpn=...`.
# The numbers are the queue pairs of this side and of the other one, whose line has them reversed.
_ACTIVATED = re.compile(r"RDMA(?:\([^)]*\))? activated: qpn=(\d+)->(\d+)")
_PROBED = re.compile(r"RDMA(?:\([^)]*\))? probed: ")
_STAYED = "staying on TCP"
_WITHOUT = re.compile(r"transport\s+: TCP$", re.MULTILINE)
_WORKING = re.compile(r"using device (\w+)")


def transport_problem(
    transport: str, client_node: str, client: str, servers: Mapping[str, str]
) -> str | None:
    """What the output of a client and, by node, of the RPC servers says against a transport."""
    if transport == "tcp":
        for node, text in {client_node: client, **servers}.items():
            if _ACTIVATED.search(text):
                return (
                    f"llama.cpp on node {node!r} says 'RDMA activated' and the case asks for tcp: "
                    "this build does not know GGML_RPC_NO_RDMA."
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
            return _silent("RPC server", node, text)
        if not here:
            return _silent("client", client_node, client)
        if not here & there:
            return (
                f"The RPC server on node {node!r} activated RDMA with no queue pair of this run's "
                f"client on {client_node!r}."
            )
    return None


def _silent(what: str, node: str, text: str) -> str:
    probed = "it probed RDMA only" if _PROBED.search(text) else "it did not even probe RDMA"
    return (
        f"llama.cpp's {what} on node {node!r} does not say 'RDMA activated' ({probed}), so it "
        "crossed tcp; see 'ibv_devinfo' there and rdma_device and gid_index in the cluster file."
    )


def device_problem(
    backend: str, node: str, backends: str, devices: str, layers: int | None
) -> str | None:
    """What llama-bench's JSON says against a GPU's backend: `backends`, `gpu_info`, layers."""
    if backend not in DEVICE_PREFIXES:
        return None
    used = any(name in backends for name in DEVICE_PREFIXES[backend])
    if used and devices and layers != 0:
        return None
    return (
        f"The case asks for {backend} and llama.cpp on node {node!r} ran on "
        f"{backends or 'an unknown backend'!r} (gpu_info {devices!r}, n_gpu_layers {layers})."
    )


def client_device_problem(backend: str, node: str, log: str) -> str | None:
    """What a llama-server's log says against a GPU's backend."""
    if backend not in DEVICE_PREFIXES:
        return None
    used = _WORKING.findall(log)
    if any(name.startswith(DEVICE_PREFIXES[backend]) for name in used):
        return None
    return (
        f"The case asks for {backend} and llama-server on node {node!r} uses "
        f"{', '.join(used) or 'the CPU'}."
    )


def server_device_problem(backend: str, node: str, output: str) -> str | None:
    """What an RPC server's list of its devices says against a GPU's backend."""
    if backend not in DEVICE_PREFIXES:
        return None
    devices = re.findall(r"^ +(\w+): .*MiB", output, re.MULTILINE)
    if any(name.startswith(DEVICE_PREFIXES[backend]) for name in devices):
        return None
    return (
        f"The case asks for {backend} and the RPC server on node {node!r} offers "
        f"{', '.join(devices) or 'no device that it names'}."
    )
