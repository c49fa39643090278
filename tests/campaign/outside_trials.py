"""Trials of what is outside: servers, other people's files, and what this machine allows."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

import strangers
from trial import ANY, OK, WALL_S, Trial

import hostile_endpoint
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
_STRANGER_S = 40


def _endpoints() -> Iterable[Trial]:
    for name in hostile_endpoint.MISBEHAVIOURS:
        yield Trial(
            f"an endpoint: {name}",
            "served",
            "",
            "hostile_endpoint",
            (name,),
            OK if name in hostile_endpoint.HARMLESS else ANY,
            command=_OWN,
        )


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


def _strangers() -> Iterable[Trial]:
    refused = frozenset({1, 2, 3})
    for what in strangers.THEIRS:
        for fault, verb, command in (
            ("stranger", "reproduced", ("reproduce", "theirs", *_OWN[2:])),
            ("unfinished", "gone on with", ("bench", "--resume", "theirs")),
            ("unfinished", "reproduced on", ("reproduce", "--resume", "theirs")),
            ("stranger", "taken as a sweep", ("bench", "t.yaml", *_OWN[2:])),
        ):
            if what == "names a meter" and fault == "stranger":
                continue  # of the cluster, which is one's own there
            yield Trial(
                f"a stranger's run {what}, {verb}",
                "iperf3",
                "",
                fault,
                (what,),
                ANY | _NO_RECORD,
                refused,
                _STRANGER_S,
                command=command,
            )
    for key in strangers.RESEALED:
        for command in (
            ("bench", "--resume", "theirs"),
            ("reproduce", "--resume", "theirs"),
            ("report", "theirs"),
            ("validate", "theirs"),
        ):
            yield Trial(
                f"a stranger's plan with {key}: {command[0]}",
                "iperf3",
                "",
                "resealed",
                (key,),
                ANY | _NO_RECORD,
                frozenset({0, 1, 2, 3}),
                _STRANGER_S,
                command=command,
            )
    for text in strangers.RECIPES:
        yield Trial(
            f"a recipe: {text}"[:80],
            "iperf3",
            "",
            "recipe",
            (text,),
            _NO_RECORD,
            frozenset({0, 2}),
            10,
            command=("import", "recipe.txt"),
        )


def _limits() -> Iterable[Trial]:
    ends, codes = ANY | _NO_RECORD, frozenset({0, 1, 2, 3})
    push = ("models", "push", "m.gguf", "--node", "n2", "--cluster", "o.toml")
    for count in ("2", "4", "6", "8", "10", "14"):
        arguments = ("n2", count)
        name = f"n2 may have {count} processes more"
        yield Trial(
            name, "served", "", "few_threads", arguments, ends, codes, _COPY_S, command=push
        )
    for count in ("1", "2", "4", "8", "12", "16", "24"):
        arguments = ("driver", count)
        name = f"the driver may have {count} processes"
        yield Trial(name, "served", "", "few_threads", arguments, ends, codes, WALL_S, command=_OWN)
    for words in (
        *("-v 200000", "-v 400000", "-v 800000", "-n 8", "-n 16", "-n 32", "-f 0", "-f 8"),
        *("-s 64", "-s 256", "-d 50000", "-l 0", "-t 1"),
    ):
        # Of 64 KiB of stack no Python starts.
        signalled = {
            "-t 1": frozenset({-signal.SIGXCPU, -signal.SIGKILL}),
            "-s 64": frozenset({-signal.SIGSEGV}),
        }.get(words, frozenset())
        yield Trial(
            f"a limit of the shell: {words}",
            "served",
            "",
            "limited",
            (words,),
            ends,
            codes | signalled,
            command=_OWN,
        )
    for name, value in (
        ("SSL_CERT_FILE", "/nonexistent.pem"),
        ("SSL_CERT_FILE", "/dev/null"),
        ("SSL_CERT_FILE", "/etc"),
        ("SSL_CERT_FILE", "/etc/passwd"),
        ("SSL_CERT_DIR", "/nonexistent"),
        ("SSLKEYLOGFILE", "/nonexistent/keys"),
        ("SSLKEYLOGFILE", "/etc"),
        ("REQUESTS_CA_BUNDLE", "/nonexistent.pem"),
        ("OPENSSL_CONF", "/etc/passwd"),
        ("HTTP_PROXY", "http://10.99.0.1:1"),
        ("ALL_PROXY", "no address"),
        ("NO_PROXY", "[::"),
        ("PYTHONDEVMODE", "1"),
        ("PYTHONWARNINGS", "error"),
        ("PYTHONTRACEMALLOC", "20"),
        ("TMPDIR", "FOLDER/tmp/%h $(x)"),
        ("LC_ALL", "xx_XX.nothing"),
        ("SSH_ASKPASS", "/bin/false"),
    ):
        yield Trial(
            f"{name} is {value}",
            "served",
            "",
            "odd_variable",
            (name, value),
            ends,
            codes,
            # To trace 20 frames of each allocation makes Python eight times slower.
            8 * WALL_S if name == "PYTHONTRACEMALLOC" else WALL_S,
            command=_OWN,
        )
    for how in ("%h", "a b", "%", "it's", "$(x)", "stranger 777", "stranger 755", "stranger 700"):
        yield Trial(
            f"the runtime folder is {how}",
            "served",
            "",
            "odd_runtime",
            (how,),
            ends,
            codes,
            command=_OWN,
        )
    yield Trial(
        "the runtime folder of a lab is a stranger's",
        "iperf3",
        "",
        "odd_runtime",
        ("stranger 777",),
        ends,
        codes,
    )


OUTSIDE_TRIALS = (*_endpoints(), *_hubs(), *_meters(), *_peers(), *_strangers(), *_limits())
