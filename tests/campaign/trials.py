"""The fault trials: what is done to a run, when, and how it may end."""

from __future__ import annotations

from collections.abc import Iterable

from damage import ANSWERS, ENDS, SERVER_ENDS, WHOLE
from outside_trials import OUTSIDE_TRIALS
from sweep_trials import SWEEP_TRIALS
from trial import ANY, BROKEN, OK, REFUSED, UNPROVED, WALL_S, Trial


def _interrupts() -> Iterable[Trial]:
    phases = ("start", "Bringing", "facts", "link", "launch", "sanity", "measure")
    for signal, codes in (
        ("INT", {130}),
        ("TERM", {130, 143}),
        ("HUP", {129, 130}),
        ("KILL", {-9}),
    ):
        for phase in phases:
            after = (0.0, 0.5) if phase == "measure" else (0.05,)
            for seconds in after:
                # Before the program handles signals, and after the last run, it ends as any does.
                early = {-2, -15, -1, 130} if phase == "start" else set()
                yield Trial(
                    f"{signal} in {phase} after {seconds:g} s",
                    "long-tiny",
                    phase,
                    "signal_driver",
                    (signal,),
                    ANY | {""},
                    frozenset(codes | early),
                    2,
                    seconds,
                    resumed=phase == "sanity",
                )


def _lost() -> Iterable[Trial]:
    for node in ("n1", "n2"):
        for phase, after in (
            ("facts", 0.0),
            ("link", 0.2),
            ("launch", 0.05),
            ("sanity", 0.1),
            ("measure", 0.5),
        ):
            yield Trial(
                f"{node} lost in {phase}",
                "long-tiny",
                phase,
                "end_node",
                (node,),
                BROKEN | REFUSED,
                limit_s=90,
                after_s=after,
            )
        for phase in ("link", "sanity", "measure"):
            yield Trial(
                f"sshd of {node} killed in {phase}",
                "long-tiny",
                phase,
                "signal_on",
                (node, "sshd", "KILL"),
                BROKEN | REFUSED,
                limit_s=90,
                after_s=0.3,
            )
            yield Trial(
                f"sshd of {node} stopped in {phase}",
                "long-tiny",
                phase,
                "signal_on",
                (node, "sshd", "STOP"),
                BROKEN | REFUSED,
                limit_s=90,
                after_s=0.3,
            )
        for interface in ("cable", "mgmt"):
            for phase in ("facts", "link", "launch", "measure"):
                yield Trial(
                    f"{interface} of {node} down in {phase}",
                    "long-tiny",
                    phase,
                    "link_down",
                    (node, interface),
                    BROKEN | REFUSED | UNPROVED,
                    limit_s=90,
                    after_s=0.2,
                )
        for program in ("rpc-server", "llama-bench"):
            for signal in ("KILL", "STOP", "TERM", "SEGV"):
                if (program, node) != ("llama-bench", "n2"):
                    yield Trial(
                        f"{program} of {node} gets {signal}",
                        "long-tiny",
                        "measure",
                        "signal_on",
                        (node, program, signal),
                        BROKEN,
                        after_s=0.6,
                    )
        yield Trial(
            f"garbage to the RPC port of {node}",
            "long-tiny",
            "measure",
            "garbage_to",
            (node, "50052"),
            BROKEN | OK | UNPROVED,
            after_s=0.4,
        )


def _shapes() -> Iterable[Trial]:
    for case in ("iperf3", "tiny"):
        for words in (
            "loss_percent=1",
            "loss_percent=10",
            "delay_us=20000",
            "rate_gbps=0.05",
            "rate_gbps=0.001",
        ):
            for phase in ("link", "measure"):
                yield Trial(
                    f"{words} in {phase} of {case}",
                    case,
                    phase,
                    "shape",
                    (words,),
                    OK | BROKEN | REFUSED,
                )
    yield Trial(
        "loss_percent=100 in measure",
        "long-tiny",
        "measure",
        "shape",
        ("loss_percent=100",),
        BROKEN,
    )
    yield Trial(
        "loss_percent=100 in link",
        "iperf3",
        "link",
        "shape",
        ("loss_percent=100",),
        BROKEN | REFUSED,
    )


def _damaged_outputs() -> Iterable[Trial]:
    slow = {"long-line": 60.0}
    for case, program in (("iperf3", "iperf3"), ("tiny", "llama-bench"), ("iperf3", "ping")):
        for how in (*WHOLE, *ENDS):
            outcomes = {"silent": BROKEN | REFUSED, "deaf": BROKEN | REFUSED}.get(how, ANY)
            yield Trial(
                f"{program}: {how}",
                case,
                "",
                "damage",
                (program, how),
                outcomes,
                limit_s=slow.get(how, WALL_S),
            )
    for how in (*ANSWERS, *SERVER_ENDS):
        yield Trial(
            f"llama-server: {how}", "tiny", "", "damage", ("llama-server", how), BROKEN | UNPROVED
        )


def _shells() -> Iterable[Trial]:
    for limits in ("-n 24", "-n 48", "-v 300000", "-f 8", "-u 40", "-c 0"):
        yield Trial(
            f"ulimit {limits}", "tiny", "", "ulimit", (limits,), ANY | {""}, frozenset({0, 1, 2, 3})
        )
    for words in (">&-", "2>&-", "<&-", ">/dev/full", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>&1"):
        yield Trial(
            f"streams {words}", "iperf3", "", "redirect", (words,), OK, frozenset({0, 1, 2})
        )
    for name, value in (
        ("HOME", "/nonexistent"),
        ("HOME", "/proc"),
        ("HOME", ""),
        ("TMPDIR", "/nonexistent"),
        ("XDG_RUNTIME_DIR", "/etc/passwd"),
        ("XDG_RUNTIME_DIR", "/nonexistent"),
        ("LC_ALL", "C"),
        ("PYTHONIOENCODING", "ascii"),
        ("TERM", "dumb"),
        ("PATH", "/nonexistent"),
        ("COLUMNS", "1"),
        ("TMPDIR", "/tmp/" + "t" * 200),
        ("XDG_RUNTIME_DIR", "/tmp/" + "r" * 120),
    ):
        short = f"{value[:16]}..." if len(value) > 20 else value
        yield Trial(
            f"{name}={short}",
            "iperf3",
            "",
            "environment",
            (name, value),
            ANY | {""},
            frozenset({0, 1, 2, 3}),
        )


def _surroundings() -> Iterable[Trial]:
    for size in ("64k", "200k", "1m"):
        yield Trial(
            f"folder on a disk of {size}",
            "tiny",
            "",
            "small_disk",
            (size, "size"),
            ANY | {""},
            frozenset({0, 1, 2, 3}),
        )
    for inodes in ("4", "12"):
        yield Trial(
            f"folder on a disk of {inodes} inodes",
            "tiny",
            "",
            "small_disk",
            (inodes, "nr_inodes"),
            ANY | {""},
            frozenset({0, 1, 2, 3}),
        )
    for phase in ("facts", "sanity", "measure", "teardown"):
        for what in ("full", "read_only", "gone", "raw_is_a_file"):
            yield Trial(
                f"folder {what} in {phase}",
                "tiny",
                phase,
                f"folder_{what}",
                (),
                ANY | {""},
                frozenset({0, 1, 2, 3}),
            )
    for jump in ("3600", "-3600", "-90000"):
        yield Trial(
            f"clock jumps by {jump} s", "tiny", "", "environment", ("CAMPAIGN_CLOCK_S", jump), OK
        )
    for phase in ("link", "sanity", "measure"):
        yield Trial(f"driver stopped for 8 s in {phase}", "tiny", phase, "pause_driver", ("8",), OK)
    for text in ("Welcome", "{}", "\\033[2J", "nixwulf-exit:0", "stty: not a tty"):
        yield Trial(f"login shells print {text!r}", "tiny", "facts", "greeting", (text,))
    for where in ("/tmp", "/dev/shm"):
        yield Trial(f"{where} of n1 full", "tiny", "facts", "fill_on", ("n1", where))
    for signal in ("KILL", "STOP", "TERM"):
        for phase in ("facts", "measure"):
            yield Trial(
                f"the lab's supervisor gets {signal} in {phase}",
                "long-tiny",
                phase,
                "signal_supervisor",
                (signal,),
                ANY | {""},
                limit_s=90,
            )


def _folders() -> Iterable[Trial]:
    for target in ("record", "plan"):
        for how in (
            "empty",
            "half",
            "noise",
            "null",
            "list",
            "edited",
            "version",
            "folder",
            "fifo",
            "loop",
            "huge",
            "deep",
            "zero",
            "unreadable",
            "gone",
            *(f"sealed again {number}" for number in range(8)),
        ):
            yield Trial(
                f"{target} {how}",
                "iperf3",
                "after",
                "damage_file",
                (target, how),
                codes=frozenset({0, 1, 2}),
                limit_s=20,
            )
    yield Trial(
        "two --resume at once", "iperf3", "after", "resume_twice", (), OK, frozenset({0, 1, 2}), 30
    )


TRIALS = (
    *_interrupts(),
    *_lost(),
    *_shapes(),
    *_damaged_outputs(),
    *_shells(),
    *_surroundings(),
    *_folders(),
    *SWEEP_TRIALS,
    *OUTSIDE_TRIALS,
)
