"""Trials of what is outside: servers, other people's files, and what this machine allows."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from trial import OK, Trial

import hostile_hub
import hostile_meter
import hostile_peer

_NO_RECORD = frozenset({""})
_OWN = ("bench", "s.yaml", "--cluster", "o.toml", "--out", "disk/out")
# One read of a hub may take a minute, and so may a header of it.
_HUB_S = 60
# A copy stands still for 120 s before it is ended.
_COPY_S = 130
# A run of two seconds, whatever its meter does.
_METER_S = 20


def _hubs() -> Iterable[Trial]:
    for name in hostile_hub.MISBEHAVIOURS:
        yield Trial(
            f"a hub {name}",
            "iperf3",
            "",
            "hostile_hub",
            (name,),
            _NO_RECORD,
            frozenset({0, 1, 2}),
            _HUB_S,
            command=("models", "get", "org/name"),
        )


def _meters() -> Iterable[Trial]:
    for name in hostile_meter.MISBEHAVIOURS:
        yield Trial(
            f"a meter {name}",
            "iperf3",
            "",
            "hostile_meter",
            (name,),
            OK,
            frozenset({0}),
            _METER_S,
            command=_OWN,
        )


def _peers() -> Iterable[Trial]:
    for name in hostile_peer.MISBEHAVIOURS:
        yield Trial(
            f"a peer {name}",
            "iperf3",
            "",
            "hostile_peer",
            (name,),
            _NO_RECORD,
            frozenset({1}),
            _COPY_S,
            command=("models", "push", "m.gguf", "--node", "n2", "--cluster", "o.toml"),
        )


OUTSIDE_TRIALS = (*_hubs(), *_meters(), *_peers())
