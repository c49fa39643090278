"""How exo's nodes find each other: zenoh or libp2p, by what `exo --help` offers on each node.

The version cannot tell: it is 0.3.70 in v1.0.71, which has libp2p, and in
https://github.com/exo-explore/exo/commit/09f9ea3, which has zenoh, and after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nixwulf.inventory.fabric_ports import TCP, UDP
from nixwulf.plugins.runtime.run import RunFailure

# exo's defaults where it has one: what nodes exchange over TCP, and how they find each other over
# UDP (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/main.py). v1.0.71 takes any free TCP
# port, which no firewall rule can name, and finds nodes by mDNS.
PEER_PORT, _DISCOVERY_PORT = TCP["exo"], UDP["exo"]
HELP = '"$1" --help 2>&1 || true'
NAMESPACE = "EXO_LIBP2P_NAMESPACE"


@dataclass(frozen=True)
class Network:
    """What a node is started with for one of the two."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def network(texts: Mapping[str, str], namespace: str) -> Network:
    """The network that the nodes have in common, alone in a namespace.

    texts: what `exo --help` prints, by the name of the node. Raises RunFailure unsupported where
    there is none, or where the nodes have different releases.
    """
    offered = {node: frozenset(re.findall(r"--[a-z][\w-]+", text)) for node, text in texts.items()}
    first, flags = next(iter(offered.items()))
    for node, others in offered.items():
        # Messages of two releases need not fit: exo refuses fields that it does not know.
        if others != flags:
            differs = sorted(flags ^ others)[0]
            having, lacking = (first, node) if differs in flags else (node, first)
            raise RunFailure(
                "unsupported",
                f"'exo --help' has {differs!r} on node {having!r} and not on node {lacking!r}: "
                "different releases of exo, of which all may say 0.3.70, do not meet; install one "
                "commit on all nodes.",
            )
    if {"--namespace", "--zenoh-port", "--discovery-port"} <= flags:
        ports = ("--zenoh-port", str(PEER_PORT), "--discovery-port", str(_DISCOVERY_PORT))
        return Network(("--namespace", namespace, *ports), {})
    if "--libp2p-port" in flags:
        return Network(("--libp2p-port", str(PEER_PORT)), {NAMESPACE: namespace})
    last = texts[first].strip().rpartition("\n")[2]
    raise RunFailure(
        "unsupported",
        f"'exo --help' on node {first!r} has neither '--zenoh-port' nor '--libp2p-port', and ends "
        f"with {last[:200]!r}; install v1.0.71, or commit 09f9ea3 or a later one.",
    )
