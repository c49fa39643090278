"""The driver on a lab to which something is done as soon as it is up.

    python tests/campaign/planting.py PLANT WORD...

PLANT is a table of causes.toml, as JSON; the words are those of the driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stage import alone, inside, node

from nixwulf.cli.main import main
from nixwulf.nodes import lab

GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000
_BURN = "while :; do :; done"


def plant(up: lab.Lab, what: Mapping[str, Any]) -> list[subprocess.Popen[bytes]]:
    """Do it; returns the processes that have to be ended.

    What a node's processes start later has their quota and CPUs.
    """
    if "shape" in what:
        up.set_shape("cable", replace(up.shape("cable"), **what["shape"]))
    if "quota" in what:
        group = GROUPS / f"nixwulf-causes-{os.getpid()}"
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(what["quota"] * _PERIOD_US)))
        for process in inside(what["node"]):
            (group / "cgroup.procs").write_text(str(process))
    for process in inside(what["node"]) if "cpus" in what else ():
        os.sched_setaffinity(process, what["cpus"])
    enter = ["nsenter", "--target", str(node(what["node"])), "--all"] if "burn" in what else []
    return [subprocess.Popen([*enter, "sh", "-c", _BURN]) for _ in range(what.get("burn", 0))]


def run(what: Mapping[str, Any], words: list[str]) -> int:
    """The driver's exit code."""
    alone()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python has it, whose driver this is
    real, started = lab.up, list[subprocess.Popen[bytes]]()

    def planted(*arguments: Any, **options: Any) -> lab.Lab:
        up = real(*arguments, **options)
        started.extend(plant(up, what))
        return up

    lab.up = planted
    try:
        sys.argv = ["nixwulf", *words]
        return int(main() or 0)
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        for process in started:
            process.kill()
            process.wait()
        for group in GROUPS.glob(f"nixwulf-causes-{os.getpid()}"):
            with suppress(OSError):
                group.rmdir()


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1]), sys.argv[2:]))
