"""The faults by name: each is done to a stage."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import fuzz_runs
import fuzz_values
from limits import few_threads, limited, odd_runtime, odd_variable  # noqa: F401
from outside import hostile_endpoint, hostile_hub, hostile_meter, hostile_peer  # noqa: F401
from stage import HERE, Missed, Stage, descendants, inside, node, on_node
from strangers import recipe, resealed, stranger, unfinished  # noqa: F401

from nixwulf.core.errors import NixwulfError
from nixwulf.nodes import lab
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE
from nixwulf.plugins.engines.llama_cpp import LlamaCpp

_COMES_S = 3.0


def signal_driver(stage: Stage, name: str) -> None:
    assert stage.process is not None
    os.kill(stage.process.pid, signal.Signals[f"SIG{name}"])


def pause_driver(stage: Stage, seconds: str) -> None:
    signal_driver(stage, "STOP")
    time.sleep(float(seconds))
    signal_driver(stage, "CONT")


def end_node(_: Stage, name: str) -> None:
    os.kill(node(name), signal.SIGKILL)


def signal_on(_: Stage, name: str, program: str, which: str) -> None:
    """Of a phase that has begun, the program may be a moment away yet."""
    deadline = time.monotonic() + _COMES_S
    ours: set[int] = set()
    while not ours and time.monotonic() < deadline:
        ours = {p for p, line in descendants().items() if program in line.split(" ")[0]}
        ours &= inside(name)
    _signal(ours, which, f"no {program} on {name}")


def _signal(processes: Iterable[int], which: str, none: str) -> None:
    done = 0
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.Signals[f"SIG{which}"])
            done += 1
    if not done:
        raise Missed(none)


def signal_masters(_: Stage, which: str) -> None:
    """The driver's own shared connections."""
    marks = ("ssh: ", "ControlMaster=auto -fN")
    masters = {p for p, line in descendants().items() if any(mark in line for mark in marks)}
    _signal(masters, which, "no shared connection")


def signal_supervisor(stage: Stage, which: str) -> None:
    files = (stage.folder / "run").rglob("pid")
    _signal([int(path.read_text()) for path in files], which, "no supervisor")


def lab_down(stage: Stage) -> None:
    """As somebody at another terminal."""
    os.environ["XDG_RUNTIME_DIR"] = str(stage.folder / "run")
    names = [running.name for running in lab.labs()]
    for name in names:
        stage.read("lab", "down", "--name", name)
    if not names:
        raise Missed("no lab")


def link_down(_: Stage, name: str, interface: str) -> None:
    link = MANAGEMENT_INTERFACE if interface == "mgmt" else interface
    enter = ["nsenter", "--target", str(node(name)), "--net"]
    if subprocess.run([*enter, "ip", "link", "set", link, "down"], check=False).returncode != 0:
        raise Missed(f"{link} of {name} is gone")


def shape(stage: Stage, words: str) -> None:
    os.environ["XDG_RUNTIME_DIR"] = str(stage.folder / "run")
    key, _, value = words.partition("=")
    try:
        (running,) = lab.labs()
        before = vars(running.shape("cable"))
        changed = type(running.shape("cable"))(**{**before, key: float(value)})
        running.set_shape("cable", changed)
    except (NixwulfError, ValueError) as error:
        raise Missed(f"the lab has ended: {error}") from None


_GARBAGE = """
import os, socket, sys
for number in range(20):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
    s.sendall(os.urandom(4096)); s.close()
    if number == 0: print("sent", flush=True)
"""


def garbage_to(_: Stage, name: str, port: str) -> None:
    other = "n1" if name == "n2" else "n2"
    address = "10.91.0.12" if name == "n2" else "10.91.0.11"
    enter = ["nsenter", "--target", str(node(other)), "--net", sys.executable, "-c", _GARBAGE]
    sender = subprocess.Popen(
        [*enter, address, port], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert sender.stdout is not None
    if not sender.stdout.readline():
        raise Missed(f"nothing listens on port {port} of {name}")


def damage(stage: Stage, program: str, how: str) -> None:
    """Put a damaged program where nodes find it before the real one."""

    # A node has a /tmp of its own, so it does not see a clone below it, nor its .venv.
    script = shutil.copy(HERE / "damage.py", stage.folder)
    python = str(Path(sys.executable).resolve())

    def wrapper(folder: Path, real: str) -> None:
        mark = str(stage.folder / "damaged")
        words = (python, script, mark, how, real)
        path = folder / program
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)

    found = shutil.which(program)
    if not program.startswith("llama"):
        assert found is not None
        wrapper(stage.folder / "bin", found)
        return
    programs = stage.folder / "programs"
    programs.mkdir()
    installation = LlamaCpp().install_local(lambda *_: None)
    for name, real in installation.programs.items():
        (programs / name).symlink_to(real)
    wrapper(programs, str(installation.programs[program]))
    stage.environment["CAMPAIGN_PROGRAMS"] = str(programs)


def ulimit(stage: Stage, words: str) -> None:
    stage.prefix = ["bash", "-c", f'ulimit {words}; exec "$@"', "bash"]


def redirect(stage: Stage, words: str) -> None:
    stage.prefix = ["bash", "-c", f'exec "$@" {words}', "bash"]


def environment(stage: Stage, name: str, value: str) -> None:
    stage.environment[name] = value


def small_disk(stage: Stage, size: str, option: str) -> None:
    disk(stage, f"{option}={size}")


def disk(stage: Stage, options: str) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(stage.folder / "disk")]
    subprocess.run(mount, check=True)


def folder_full(stage: Stage) -> None:
    with suppress(OSError), (stage.folder / "disk" / "filler").open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)


def folder_read_only(stage: Stage) -> None:
    command = ["mount", "-o", "remount,ro", str(stage.folder / "disk")]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        # A file is open for writing: a bind mount over it is read-only whatever is open.
        disk = str(stage.folder / "disk")
        subprocess.run(["mount", "--bind", disk, disk], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)


def folder_gone(stage: Stage) -> None:
    shutil.rmtree(stage.out, ignore_errors=True)


def folder_raw_is_a_file(stage: Stage) -> None:
    shutil.rmtree(stage.out / "raw", ignore_errors=True)
    with suppress(OSError):
        (stage.out / "raw").write_text("not a folder")


def greeting(_: Stage, text: str) -> None:
    """By what sshd runs before any command, whatever the login shell is."""
    script = 'mkdir -p "$2" && printf "echo \'%b\'\\n" "$1" >"$2/rc"'
    for name in ("n1", "n2"):
        on_node(name, script, text, "/run/lab/home/.ssh")


def fill_on(_: Stage, name: str, folder: str) -> None:
    on_node(
        name,
        'head -c 64m /dev/zero >"$1/filler" 2>/dev/null; mount -o remount,size=64m "$1"',
        folder,
    )


def damage_file(stage: Stage, target: str, how: str) -> None:
    path = stage.out / "plan.json"
    if target == "record":
        path = next((stage.out / "records").glob("*.json"))
    content = path.read_bytes()
    path.unlink()
    changed = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "noise": os.urandom(4096),
        "null": b"null",
        "list": b"[]",
        "edited": content.replace(b'"pair"', b'"park"'),
        "version": content.replace(b'"schema_version": "1.', b'"schema_version": "9.'),
        "huge": content + b" " * (80 << 20),
        "deep": b"[" * 100_000,
    }
    if how in changed:
        path.write_bytes(changed[how])
    elif how.startswith("sealed"):  # by who changed it: the digest is right
        other = fuzz_values.changed(random.Random(how), json.loads(content))  # noqa: S311
        path.write_text(json.dumps(fuzz_runs.seal_again(other)))
    elif how == "folder":
        path.mkdir()
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "zero":
        path.symlink_to("/dev/zero")
    elif how == "unreadable":
        path.symlink_to("/proc/self/mem")


def references(stage: Stage, content: str) -> None:
    """The files of tokens that runs are compared with."""
    files = list((stage.out / "references").glob("*.json"))
    for path in files:
        path.write_text(content)
    if not files:
        raise Missed("no references are kept")


def resume_twice(stage: Stage) -> list[str]:
    """Two drivers in one folder at once: what was not as it has to be, one runs, one is refused."""
    shutil.rmtree(stage.out / "records")
    words = ("bench", "--resume", str(stage.out))
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: stage.read(*words, limit_s=60), range(2)))
    (ran, output), (refused, sentence) = sorted(both, key=lambda one: (one[0] is None, one[0]))
    if (ran, refused) != (0, 2):
        return [f"exit {ran} and {refused}: {output[-150:]} {sentence[-150:]}"]
    if "is in use by user" not in sentence:
        return [f"refused by: {sentence[-150:]}"]
    return [] if all(stage.records()) else ["not each run has a record"]
