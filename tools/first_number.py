"""Time README's path from two machines to the first number; nodes of a lab stand for the machines.

Usage: .venv/bin/python tools/first_number.py

Two nodes without an engine are reached as machines are, by the user's ssh: a wrapper that has the
lab's config stands for it. The commands are README's, and no line of the file is edited. The build
is that of llama.cpp's real source. Both nodes share this machine's CPUs, so their runs are slower
than those of two machines. It takes root, and six minutes on two cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from nixwulf.inventory.cluster import parse_cluster
from nixwulf.nodes import lab

ROOT = Path(__file__).parents[1]
NIXWULF = ROOT / ".venv/bin/nixwulf"
LAB = {
    "name": "first-number",
    "lab": {"nodes": 2},
    "fabrics": {
        "cable": {
            "kind": "ethernet",
            "speed_gbps": 5,
            "mtu": 1500,
            "subnet": "10.90.0.0/24",
            "shape": {"delay_us": 250, "rate_gbps": 4.7},
        }
    },
}
COMMANDS = (
    ("cluster", "new", "n1", "n2", "--output", "mine.toml"),
    ("engines", "install", "--cluster", "mine.toml"),
    ("preflight", "--cluster", "mine.toml"),
    ("bench", "smoke", "--cluster", "mine.toml"),
)


def main() -> None:
    """Print the seconds of each command, and what the last one printed."""
    up = lab.up(parse_cluster(LAB, "first-number"), name="first-number", lifeline=True)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wrapper = folder / "ssh"
            wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {up.ssh_config} "$@"\n')
            wrapper.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            begin = time.monotonic()
            for words in COMMANDS:
                started = time.monotonic()
                done = subprocess.run(
                    [NIXWULF, *words],
                    cwd=folder,
                    env={**os.environ, "PATH": path},
                    text=True,
                    capture_output=True,
                    check=False,
                )
                took = time.monotonic() - started
                print(f"{took:6.1f} s  exit {done.returncode}  nixwulf {' '.join(words)}")
                if done.returncode:
                    raise SystemExit(done.stdout + done.stderr)
                print(done.stdout if words[0] != "cluster" else (folder / "mine.toml").read_text())
            print(f"{time.monotonic() - begin:6.1f} s from the first command to the last number")
    finally:
        up.down()


if __name__ == "__main__":
    main()
