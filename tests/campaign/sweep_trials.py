"""Fault trials in the first run of a sweep of two: the sweep goes on, and each run has a record."""

from __future__ import annotations

from collections.abc import Iterable

from damage import COPIES
from trial import ANY, BROKEN, OK, REFUSED, UNPROVED, Trial

# Of a second run whose nodes are gone too: it ends like the first.
_ENDS = BROKEN | REFUSED


def _second_is_ok() -> Iterable[Trial]:
    """Faults that last as long as the first run."""
    for node, program, signal, case in (
        ("n1", "iperf3", "KILL", "two"),
        ("n2", "iperf3", "KILL", "two"),
        ("n1", "iperf3", "STOP", "two"),
        ("n2", "iperf3", "SEGV", "two"),
        ("n1", "llama-bench", "KILL", "two-tiny"),
        ("n1", "llama-bench", "SEGV", "two-tiny"),
        ("n2", "rpc-server", "KILL", "two-tiny"),
        ("n2", "rpc-server", "STOP", "two-tiny"),
    ):
        yield Trial(
            f"{program} of {node} gets {signal}, then a second run",
            case,
            "measure",
            "signal_on",
            (node, program, signal),
            BROKEN,
            frozenset({1}),
            90,
            0.3,
            second=OK,
        )
    for which in ("KILL", "TERM"):
        for phase in ("facts", "measure"):
            yield Trial(
                f"shared connections get {which} in {phase}, then a second run",
                "two",
                phase,
                "signal_masters",
                (which,),
                OK | _ENDS,
                limit_s=90,
                second=OK | _ENDS,
            )


def _second_is_there() -> Iterable[Trial]:
    """Faults that stay."""
    for node in ("n1", "n2"):
        for signal in ("KILL", "STOP"):
            yield Trial(
                f"sshd of {node} gets {signal} in link, then a second run",
                "two",
                "link",
                "signal_on",
                (node, "sshd", signal),
                _ENDS,
                frozenset({1, 3}),
                150,
                second=_ENDS,
            )
    for phase in ("facts", "measure"):
        yield Trial(
            f"shared connections stopped in {phase}, then a second run",
            "two",
            phase,
            "signal_masters",
            ("STOP",),
            _ENDS,
            frozenset({1, 3}),
            150,
            second=OK | _ENDS,
        )
        yield Trial(
            f"lab down elsewhere in {phase}, then a second run",
            "two",
            phase,
            "lab_down",
            (),
            _ENDS,
            frozenset({1, 3}),
            150,
            second=_ENDS,
        )
        for signal in ("KILL", "STOP"):
            yield Trial(
                f"the lab's supervisor gets {signal} in {phase}, then a second run",
                "two",
                phase,
                "signal_supervisor",
                (signal,),
                OK | _ENDS,
                limit_s=150,
                second=OK | _ENDS,
            )
    for how in COPIES:
        yield Trial(
            f"copy of a model: {how}",
            "two-tiny",
            "",
            "damage",
            ("cat", how),
            _ENDS,
            frozenset({1, 3}),
            # A copy stands still for 120 s before it is ended, in each of the two runs.
            270 if how == "silent" else 150,
            second=ANY,
        )
    for how in ("silent", "deaf", "endless"):
        yield Trial(
            f"ping: {how}, then a second run",
            "two",
            "",
            "damage",
            ("ping", how),
            _ENDS,
            frozenset({1, 3}),
            150,
            second=_ENDS,
        )
    # Numbers of 0 may be refused by what counts the bytes first; a damaged word changes no number.
    for how, outcomes in (
        ("strings", BROKEN),
        ("huge-numbers", BROKEN),
        ("zeros", BROKEN | UNPROVED),
        ("surrogate", OK | BROKEN),
    ):
        yield Trial(
            f"llama-bench: {how}, then a second run",
            "two-tiny",
            "",
            "damage",
            ("llama-bench", how),
            outcomes,
            frozenset({0, 1}) if "ok" in outcomes else frozenset({1}),
            100,
            second=outcomes,
        )
    for content in ("7", "{}", "null", '["a", 1, null]', "[" * 100, "x"):
        yield Trial(
            f"references are {content[:16]}, then a second run",
            "two-tiny",
            "measure",
            "references",
            (content,),
            OK,
            frozenset({1}),
            100,
            0.0,
            second=BROKEN,
        )


def _the_driver() -> Iterable[Trial]:
    for phase in ("facts", "launch", "measure"):
        yield Trial(
            f"driver stopped for 10 s in {phase}, then a second run",
            "two-tiny",
            phase,
            "pause_driver",
            ("10",),
            OK,
            frozenset({0}),
            60,
            0.0 if phase == "launch" else 0.1,
            second=OK,
        )
    yield Trial(
        "the lab's supervisor stopped while it begins",
        "two",
        "Bringing",
        "signal_supervisor",
        ("STOP",),
        frozenset({"", *OK}),
        frozenset({0, 1, 2, 3}),
        90,
        0.2,
        second=frozenset({"", *OK}),
    )
    yield Trial(
        "slow decoding over a slow link",
        "long-tiny",
        "measure",
        "shape",
        ("rate_gbps=0.001",),
        OK | {"timeout"},
        limit_s=60,
    )
    yield Trial(
        "slow decoding over a distant link",
        "long-tiny",
        "measure",
        "shape",
        ("delay_us=100000",),
        OK | {"timeout"},
        limit_s=60,
    )
    for words in ("loss_percent=100", "loss_percent=30"):
        yield Trial(
            f"{words} in measure, then a second run",
            "two",
            "measure",
            "shape",
            (words,),
            OK | _ENDS | UNPROVED,
            limit_s=150,
            second=OK | _ENDS | UNPROVED,
        )


SWEEP_TRIALS = (*_second_is_ok(), *_second_is_there(), *_the_driver())
