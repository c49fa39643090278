"""NCCL, RCCL and Gloo on one fabric: their environment, and what their logs say they crossed.

lib/nccl.nix says the same to the services of NixOS; a test holds the two together.
"""

from __future__ import annotations

import re

from nixwulf.cluster import Attachment, Fabric

_CHANNEL = re.compile(r"\bvia NET/(?P<network>\w+)")


def environment(fabric: Fabric, attachment: Attachment, transport: str) -> dict[str, str]:
    """What every process on a node has to have: a variable that one lacks is a silent fallback.

    attachment: the node's place on the fabric; with rdma it names an RDMA device.
    """
    variables = {
        # NCCL takes a bare name as a prefix, Gloo as the name.
        "NCCL_SOCKET_IFNAME": f"={attachment.interface}",
        "GLOO_SOCKET_IFNAME": attachment.interface,
        # Neither gfx1151 nor GB10 has GPUDirect.
        "NCCL_NET_GDR_LEVEL": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
    }
    if transport == "tcp":
        return variables | {"NCCL_IB_DISABLE": "1"}
    variables |= {
        "NCCL_IB_DISABLE": "0",
        # Exactly that one: a prefix matches two devices after a link reset
        # (https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/blob/main/docs/USB4_RDMA_PLAN.md).
        "NCCL_IB_HCA": f"={attachment.rdma_device}",
        "NCCL_IB_TIMEOUT": "23",
        "NCCL_IB_RETRY_CNT": "7",
    }
    if attachment.gid_index is not None:
        variables["NCCL_IB_GID_INDEX"] = str(attachment.gid_index)
    if fabric.kind == "infiniband":
        # setup_guide_infiniband.md of the same repository found these to work.
        variables |= {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}
    return variables


def networks(log: str) -> set[str]:
    """The networks of the channels between nodes in a log of NCCL_DEBUG=INFO: IB, Socket, ..."""
    return {match["network"] for match in _CHANNEL.finditer(log)}


def wrong_network(transport: str, log: str) -> str | None:
    """What a node's log says against the transport that was asked for, or none.

    A log without channels says nothing against tcp: Gloo, which has no other, writes none.
    """
    found = networks(log)
    if transport == "rdma" and found != {"IB"}:
        return f"NCCL crossed {_words(found)}, not NET/IB"
    if transport == "tcp" and found - {"Socket"}:
        return f"NCCL crossed {_words(found)}, not NET/Socket"
    return None


def _words(found: set[str]) -> str:
    return " and ".join(f"NET/{name}" for name in sorted(found)) or "no network that it names"
