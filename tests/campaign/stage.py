"""A trial's stage: its folder, its driver, its nodes' processes, and what is left of them."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from lateness import Clock
from trial import CASES, PROGRESS_S, WALL_S

from nixwulf.cli.main import main as nixwulf

HERE = Path(__file__).parent
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x00020000
_CLUSTER = """
name = "pair"
[lab]
nodes = 2
[fabrics.cable]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "10.91.0.0/24"
shape = { rate_gbps = 5 }
"""
ADDRESSES = {"n1": "10.91.0.11", "n2": "10.91.0.12"}
"""Of the nodes on the cable."""
MUCH = 1 << 30
_LOOK_S = 0.2


def alone() -> None:
    """Become the parent of whatever the trial leaves, with mounts that end with this process."""
    # What a shell starts in the background ignores these, and so would all that is started here.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.environ["PYTHONPATH"] = str(HERE.parents[1] / "driver")
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if libc.unshare(_CLONE_NEWNS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def _fields(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


class Missed(Exception):
    """A fault that could not be done, as when what it is done to has ended: nothing was tried."""


def below() -> set[int]:
    """Processes below this one that are no zombies."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if (fields := _fields(int(folder.name))) and fields[0] != "Z":
            parents[int(folder.name)] = int(fields[1])
    found, new = set(), {os.getpid()}
    while new:
        new = {process for process, parent in parents.items() if parent in new} - found
        found |= new
    return found


def descendants() -> dict[int, str]:
    """The same with their command lines."""
    lines = {}
    for process in below():
        with suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            lines[process] = b" ".join(words).decode("utf-8", "replace").strip()
    return lines


def node(name: str) -> int:
    """The first process of a node."""
    for process in below():
        with suppress(OSError):
            status = Path(f"/proc/{process}/status").read_text()
            ids = next(x for x in status.splitlines() if x.startswith("NSpid:")).split()
            if len(ids) > 2 and ids[-1] == "1":
                done = subprocess.run(
                    ["nsenter", "--target", str(process), "--uts", "hostname"],
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                if done.stdout.strip() == name:
                    return process
    raise Missed(f"no process of {name}")


def inside(name: str) -> set[int]:
    """The processes in the namespaces of a node."""
    space = Path(f"/proc/{node(name)}/ns/net").readlink()
    found = set()
    for process in below():
        with suppress(OSError):
            if Path(f"/proc/{process}/ns/net").readlink() == space:
                found.add(process)
    return found


def on_node(name: str, script: str, *arguments: str) -> None:
    """Run a shell script inside a node, without its sshd; raises Missed where it fails."""
    enter = ["nsenter", "--target", str(node(name)), "--all", "sh", "-c", script, "sh"]
    if subprocess.run([*enter, *arguments], check=False, timeout=30).returncode != 0:
        raise Missed(f"{script[:40]!r} failed on {name}")


@dataclass
class Stage:
    """The folder of a trial and what is started in it.

    prefix: before the driver's own words. servers: what the driver meets outside, and proofs: what
    must be so of that when it has ended, a problem each; must_ask: whether the driver has to come
    to them; closing: what is undone then.
    """

    case: str
    folder: Path = field(
        default_factory=lambda: Path(tempfile.mkdtemp(prefix="nwt", dir="/var/tmp"))
    )  # nodes have a /tmp of their own
    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    process: subprocess.Popen[bytes] | None = None
    most_memory: int = 0
    clock: Clock = field(default_factory=lambda: Clock(below))
    code: int | None = None
    looked: float = 0.0
    must_ask: bool = True
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    proofs: list[Callable[[], list[str]]] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        for name in ("tmp", "run", "bin", "disk"):
            (self.folder / name).mkdir()
        (self.folder / "events").touch()
        limits = {"wall_s": WALL_S, "progress_s": PROGRESS_S}
        document = {"name": "trial", "samples": 1, "limits": limits, **CASES[self.case]}
        document["matrix"] = {"nodes": [2], "fabric": ["cable"], **document["matrix"]}  # type: ignore[dict-item]
        (self.folder / "s.yaml").write_text(yaml.safe_dump(document))
        (self.folder / "c.toml").write_text(_CLUSTER)
        self.environment |= {
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "CAMPAIGN_EVENTS": str(self.folder / "events"),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
        }

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.folder / "disk" / "out"

    @property
    def events(self) -> list[str]:
        """The steps that the driver has begun."""
        return (self.folder / "events").read_text().splitlines()

    def start(self, *arguments: str, label: str = "bench") -> subprocess.Popen[bytes]:
        """Start the driver; its output goes to files."""
        chosen = arguments or ("bench", "s.yaml", "--cluster", "c.toml", "--out", str(self.out))
        argv = [*self.prefix, sys.executable, str(HERE / "driver_under_trial.py"), *chosen]
        with (
            (self.folder / f"{label}.stdout").open("wb") as out,
            (self.folder / f"{label}.stderr").open("wb") as err,
        ):
            self.process = subprocess.Popen(
                argv, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, start_new_session=True,
            )  # fmt: skip
        return self.process

    def ended(self) -> bool:
        """Whether the driver has ended."""
        process = self.process
        assert process is not None
        if process.returncode is None:
            found, status, usage = os.wait4(process.pid, os.WNOHANG)
            if found:
                process.returncode = os.waitstatus_to_exitcode(status)
                self.most_memory = usage.ru_maxrss * 1024
        return process.returncode is not None

    def wait(self, deadline: float) -> int | None:
        """The driver's exit code; None when it still runs at the deadline, by the stage's clock."""
        while not self.ended() and self.clock.now() < deadline:
            time.sleep(0.02)
            if self.servers and self._memory() > MUCH:
                break  # others use this machine too
        assert self.process is not None
        self.code = self.process.returncode
        return self.code

    def _memory(self) -> int:
        """What the largest process of the driver, or of it on a node, has now."""
        if time.monotonic() - self.looked < _LOOK_S:
            return self.most_memory
        self.looked, most = time.monotonic(), 0
        for process in below() - {server.pid for server in self.servers}:
            with suppress(OSError, ValueError):
                pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
                most = max(most, pages * resource.getpagesize())
        self.most_memory = max(self.most_memory, most)
        return self.most_memory

    def kill(self) -> None:
        """End the driver."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def outside(self) -> list[str]:
        """What the driver did outside that it must not; then all that was there is ended."""
        found = [problem for proof in self.proofs for problem in proof()]
        for server in self.servers:
            server.kill()
            server.wait()
        self.closing.close()
        return found

    def read(self, *arguments: str, limit_s: float = 60) -> tuple[int | None, str]:
        """Another command of the driver on what is there: its exit code and its output.

        In a child that has all modules already: importing them each time takes longer than reading.
        """
        output = self.folder / f"read-{threading.get_ident()}"
        process = os.fork()
        if process == 0:
            self._command(arguments, output)
        deadline = self.clock.now() + limit_s
        while True:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                return code, output.read_bytes().decode("utf-8", "replace")
            if self.clock.now() > deadline:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return None, f"{arguments[0]} took longer than {limit_s:g} s"
            time.sleep(0.02)

    def _command(self, arguments: tuple[str, ...], output: Path) -> NoReturn:
        code: Any = 70
        try:
            for path, flags, descriptor in (
                (os.devnull, os.O_RDONLY, 0),
                (str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1),
            ):
                os.dup2(os.open(path, flags, 0o600), descriptor)
            os.dup2(1, 2)
            os.chdir(self.folder)
            os.environ["XDG_RUNTIME_DIR"] = str(self.folder / "run")
            os.environ["TMPDIR"] = str(self.folder / "tmp")
            tempfile.tempdir = None
            sys.argv = ["nixwulf", *arguments]
            nixwulf()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 70)

    def output(self) -> str:
        """What the driver printed, both streams."""
        files = (self.folder / f"bench.{kind}" for kind in ("stdout", "stderr"))
        return "".join(path.read_text("utf-8", "replace") for path in files)

    def records(self) -> list[dict[str, Any] | None]:
        """The records of the runs in the order of the plan, as JSON has them; None for no record.

        Raises:
            ValueError: one is no JSON.
        """
        try:
            plan = json.loads((self.out / "plan.json").read_bytes())
            names = [f"{case['id']}-r0" for case in plan["cases"]]
        except OSError:
            return []
        paths = [self.out / "records" / f"{name}.json" for name in names]
        return [json.loads(path.read_bytes()) if path.exists() else None for path in paths]

    def left_after(self, seconds: float, *, files: bool = True) -> list[str]:
        """Processes, and files, that are left when that long has been given to them."""
        deadline = self.clock.now() + seconds
        while True:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = [f"process {line or pid}" for pid, line in descendants().items()]
            left += (
                [] if not files else [f"file {p.relative_to(self.folder)}" for p in self._files()]
            )
            if not left or self.clock.now() > deadline:
                return left
            time.sleep(0.1)

    def _files(self) -> list[Path]:
        """Of the runtime folder all but folders, which are there for the next run."""
        found = []
        for name in ("run", "tmp"):
            # What is removed meanwhile is no fault of a walk.
            for parent, folders, files in os.walk(self.folder / name):
                names = [*files, *folders] if name == "tmp" else files
                found += [Path(parent, one) for one in names]
        return found

    def end(self) -> None:
        """End what is left."""
        end_all()


def end_all() -> None:
    """End all processes below this one, and those that become its children by that."""
    until = time.monotonic() + 10
    while (left := below()) and time.monotonic() < until:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def no_core_files() -> None:
    """Of the programs that are killed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
