"""What a machine allows a driver or a node too little of, and variables that nobody sets so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from outside import PORT, enter, model_on_n1, own_cluster, serve
from stage import Missed, Stage, inside

_CGROUPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
_LOOPBACK = "127.0.0.1"


def few_threads(stage: Stage, where: str, count: str) -> None:
    """The driver, or n2 beside what it runs already, may have so many processes and threads."""
    if where == "n2":
        model_on_n1(stage)
        ours = inside("n2")
        tasks = sum(len(list(Path(f"/proc/{one}/task").iterdir())) for one in ours)
        group = _group(stage, tasks + int(count))
        for process in ours:
            (group / "cgroup.procs").write_text(str(process))
        return
    served(stage)
    group = _group(stage, int(count))
    stage.prefix = ["sh", "-c", f'echo $$ >"{group}/cgroup.procs"; exec "$@"', "sh"]


def limited(stage: Stage, words: str) -> None:
    """The driver runs below a limit of the shell's, against a right server."""
    served(stage)
    # Its words go through a pipe: of a file, which may not grow, no sentence could come.
    piped = "exec > >(cat) 2> >(cat >&2); " if words.startswith("-f") else ""
    stage.prefix = ["bash", "-c", f'{piped}ulimit {words}; exec "$@"', "bash"]


def odd_variable(stage: Stage, name: str, value: str) -> None:
    """A variable is odd; a run that does not end ok names it."""
    served(stage)
    stage.environment[name] = value.replace("FOLDER", str(stage.folder))

    def proof() -> list[str]:
        ends = [one["outcome"] for one in stage.records() if one]
        reasons = [one["failure"]["reason"] for one in stage.records() if one and "failure" in one]
        if ends == ["ok"] or any(name in words for words in [stage.output(), *reasons]):
            return []
        return [f"{name} is not named: {(reasons or [stage.output()])[0][-150:]}"]

    stage.proofs.append(proof)


def odd_runtime(stage: Stage, how: str) -> None:
    """The folder for sockets is another user's, or has a name that ssh reads as something else."""
    served(stage)
    folder = stage.folder / ("theirs" if how.startswith("stranger") else how)
    folder.mkdir(mode=0o700)
    if how.startswith("stranger"):
        os.chown(folder, 65534, 65534)
        folder.chmod(int(how.rpartition(" ")[2], 8))
    odd_variable_of = stage.environment | {"XDG_RUNTIME_DIR": str(folder)}
    stage.environment |= odd_variable_of

    def proof() -> list[str]:
        config = list(folder.rglob("ssh_config"))
        found = ["what ssh runs is in a folder of another user"] if config else []
        ends = [one["outcome"] for one in stage.records() if one]
        if ends != ["ok"] and "XDG_RUNTIME_DIR" not in stage.output():
            found.append(f"XDG_RUNTIME_DIR is not named: {stage.output()[-150:]}")
        return found

    stage.proofs.append(proof)


def served(stage: Stage) -> None:
    """A right server on n1, and a hub that is right."""
    own_cluster(stage)
    serve(stage, "canary_endpoint.py", PORT, _LOOPBACK, enter=enter("n1"))
    stage.must_ask = False


def _group(stage: Stage, most: int) -> Path:
    """A group of processes that may be so many; it goes with the trial."""
    root = next((one for one in _CGROUPS if (one / "cgroup.procs").exists()), None)
    if root is None:
        raise Missed("no cgroup of processes here")
    group = root / stage.folder.name
    group.mkdir()
    (group / "pids.max").write_text(str(most))
    stage.closing.callback(lambda: _emptied(group))
    return group


def _emptied(group: Path) -> None:
    (group / "pids.max").write_text("max")
    for process in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(process)
    group.rmdir()
