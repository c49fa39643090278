"""What the commands print for fixed inputs, a file for each call: to compare two versions.

Usage: .venv/bin/python tools/golden.py OUT

No node, network, lab or nix is needed: PATH holds a stand-in for ssh alone. Run it before and after
a change that should change nothing, then 'diff -r' the folders. Dates, this checkout's folder and
what is the host's own are taken out in one place, normalised().
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

ROOT = Path(__file__).parents[1]
FORMATS = ("table", "md", "json")
MODELS = ("gpt-oss-120b", "Llama-3.1-70B")
# One version names a helper's folder otherwise than the next: they are found by their names.
HELPERS = ("mixed_run.py", "stand_in.py")
# Always the same: it is in widths of tables.
SCRATCH = Path("/tmp/nixwulf-golden")  # noqa: S108 - it must not be there yet
PLATFORM = ("--platform", "generic-x86_64")
# Free space of the disk that this host has.
_FREE = re.compile(r'(?<="free": )\d+|[\d.]+(?= GiB free)')
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?|(?<=runs/)\d{8}-\d{6}")


class Golden:
    """A folder of outputs, and the command line that is called for them."""

    def __init__(self, out: Path, scratch: Path) -> None:
        """Write below out; the commands' own files go below scratch."""
        self.out, self.scratch = out, scratch
        scripts = tomllib.loads((ROOT / "driver/pyproject.toml").read_text("utf-8"))
        module = scripts["project"]["scripts"]["nixwulf"].partition(":")[0]
        self.cli: click.Group = importlib.import_module(module).cli

    def call(self, name: str, *words: object) -> None:
        """Run a command, and keep its exit code and all that it printed."""
        arguments = [str(word) for word in words]
        done = CliRunner().invoke(self.cli, arguments, prog_name="nixwulf")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        text = f"$ nixwulf {shlex.join(arguments)}\n{done.stdout}"
        self.keep(f"{name}.txt", f"{text}--- stderr\n{done.stderr}--- exit {done.exit_code}\n")

    def keep(self, name: str, text: str) -> None:
        """Write a text, without what differs from one call to the next."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.normalised(text), "utf-8")

    def keep_folder(self, name: str, folder: Path) -> None:
        """Keep all files of a folder that a command wrote."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.keep(f"{name}/{path.relative_to(folder)}", path.read_text("utf-8"))

    def normalised(self, text: str) -> str:
        """The text without dates, this checkout's folder, and this host's name and kernel."""
        text = text.replace(str(ROOT), "ROOT").replace(os.uname().release, "KERNEL")
        text = re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "HOST", text)
        return _DATE.sub("DATE", _FREE.sub("FREE", text))


def helps(golden: Golden) -> None:
    """--help of all commands and their subcommands."""

    def below(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from below(command, (*words, name))
            else:
                yield (*words, name)

    for words in below(golden.cli, ()):
        golden.call("-".join(("help", *words)), *words, "--help")


def files(golden: Golden) -> None:
    """Checks of files: clusters, sweeps, platforms, records."""
    platforms = _paths("driver/nixwulf/data/platforms")
    for path in [*_paths("clusters"), *_sweeps(), *_paths("sweeps/seeds"), *platforms]:
        golden.call(f"validate/{path}", "validate", path)
    for path in _paths("clusters"):
        golden.call(f"preflight/{path.stem}", "preflight", "--cluster", path, "--only", "file")
    golden.call("validate/records", "validate", "results/published/records")
    golden.call("validate/no-such", "validate", "clusters/no-such.toml")


def predictions(golden: Golden) -> None:
    """Predictions and rankings for all example clusters; none is reached."""
    for path, model in itertools.product(_paths("clusters"), MODELS):
        ask = ("predict", "--cluster", path, "--model", model, "--quant", "Q4_K_M")
        for form in FORMATS:
            golden.call(f"predict/{path.stem}-{model}-{form}", *ask, "--format", form)
        golden.call(f"predict/{path.stem}-{model}-batch", *ask, "--concurrency", 8, "--depth", 4096)
    ask = ("predict", "--cluster", "framework-2", "--model", "gpt-oss-120b", "--what-if")
    golden.call("predict/what-if", *ask, "fabric.cable.latency_us=7", "--format", "json")
    golden.call("predict/what-if-unknown", *ask, "fabric.none.latency_us=7")
    golden.call("predict/unknown-model", *ask[:3], "--model", "nobody-made-it")
    for path, goal in itertools.product(_paths("clusters"), ("decode", "prompt", "throughput")):
        ask = ("tune", "--cluster", path, "--model", "/models/x.gguf", "--facts-of", MODELS[1])
        golden.call(
            f"tune/{path.stem}-{goal}", *ask, "--quant", "Q4_K_M", "--goal", goal, "--dry-run"
        )


def dry_runs(golden: Golden) -> None:
    """The plan of every sweep on every cluster, or why there is none."""
    for sweep, cluster in itertools.product(_sweeps(), _paths("clusters")):
        name = f"bench/{sweep.relative_to('sweeps').with_suffix('')}-{cluster.stem}"
        golden.call(name, "bench", sweep, "--cluster", cluster, "--dry-run")
    golden.call(
        "bench/only", "bench", "smoke", "--only", "nodes<=2 parallelism!=tensor", "--dry-run"
    )
    golden.call("engines", "engines", "--format", "json")


def repeats(golden: Golden) -> None:
    """What each cluster could repeat, and the plan of every seed, run and a record on it."""
    plans = importlib.import_module("nixwulf.sweep.plan")
    lab = importlib.import_module("nixwulf.inventory.cluster").load_cluster("lab")
    earlier = golden.scratch / "earlier"
    shutil.copytree("examples/demo/records", earlier / "records")
    plans.save_plan(plans.make_plan(plans.load_sweep("lab/demo"), lab), earlier / "plan.json")
    published = sorted((ROOT / "results/published/records").glob("*deepseek-r1*-4x-tcp-*"))[0].stem
    for path in _paths("clusters"):
        on = ("reproduce", "--cluster", path)
        golden.call(f"reproduce/{path.stem}", *on)
        for seed in _paths("sweeps/seeds"):
            golden.call(f"reproduce/{seed.stem}-{path.stem}", *on, seed.stem, "--dry-run")
        record = (*on, published, "--model", "/models/x.gguf")
        golden.call(f"reproduce/record-{path.stem}", *record, "--dry-run")
    for name in ("lab", "framework-2"):
        run = ("reproduce", earlier, "--cluster", name, "--dry-run")
        golden.call(f"reproduce/run-{name}", *run)
    golden.call("reproduce/unknown", *on, "no-such-record", "--dry-run")


def models(golden: Golden) -> None:
    """A model got from a path, listed, verified, damaged and removed, on this machine alone."""
    mine = golden.scratch / "tiny.gguf"
    mine.write_bytes(b"GGUF" + bytes(3 << 20))
    golden.call("models/none", "models", "ls")
    golden.call("models/no-such", "models", "get", "./no-such.gguf")
    golden.call("models/get", "models", "get", mine)
    for form in ("text", "json"):
        golden.call(f"models/ls-{form}", "models", "ls", "--format", form)
        golden.call(f"models/verify-{form}", "models", "verify", mine.name, "--format", form)
    with (golden.scratch / "nixwulf/models" / mine.name).open("r+b") as copy:
        copy.seek(2 << 20)
        copy.write(b"x")
    golden.call("models/damaged", "models", "verify", mine.name)
    golden.call("models/rm", "models", "rm", mine.name, "--yes")
    golden.call("models/rm-again", "models", "rm", mine.name, "--yes")


def imports(golden: Golden) -> None:
    """The records of every fixture that a tool printed, or the sentence that refuses it."""
    for path in sorted((ROOT / "tests/fixtures").rglob("*")):
        if path.is_file():
            name = f"import/{path.relative_to(ROOT / 'tests/fixtures')}"
            short = path.relative_to(ROOT)
            golden.call(
                name,
                "import",
                short,
                *PLATFORM,
                "--nodes",
                2,
                "--fabric",
                "lan",
                "--format",
                "json",
            )
            golden.call(
                f"{name}.one", "import", short, *PLATFORM, "--model", "tiny", "--format", "json"
            )


def runs(golden: Golden) -> None:
    """Report, compare, explain and publish, of a run folder with all benchmarks and of records."""
    helper = importlib.import_module("mixed_run")
    before, after = golden.scratch / "before", golden.scratch / "after"
    helper.write_mixed_run(before)
    shutil.copytree(before, after)
    frameworks = golden.scratch / "frameworks"
    of, write = importlib.import_module("framework_runs"), importlib.import_module("record_factory")
    speeds = {(nodes, name): 4.6 - nodes / 2 for nodes in (1, 2) for name in ("decode", "prompt")}
    found = [
        of.of_frameworks(speed, nodes=nodes, name=name, id=f"{name}-{nodes}")
        for (nodes, name), speed in speeds.items()
    ]
    write.write_run(frameworks, found)
    for form in ("html", "md", "csv", "json", "svg"):
        golden.call(f"report/{form}", "report", before, "--format", form)
    golden.keep_folder("report/files", before)
    published = "results/published/records"
    sides = [f"model=gpt-oss-120b* platform={name}" for name in ("dgx-spark", "framework-desktop")]
    over = [w for key in ("platform", "weights", "n_gen", "backend") for w in ("--over", key)]
    for form in FORMATS:
        golden.call(f"compare/same-{form}", "compare", after, before, "--format", form)
        fabrics = ("compare", "fabric=gbe2g5", "fabric=thunderbolt", "--in", before)
        golden.call(f"compare/fabrics-{form}", *fabrics, "--over", "fabric", "--format", form)
        platforms = ("compare", *sides, "--in", published, *over)
        golden.call(f"compare/platforms-{form}", *platforms, "--format", form)
        golden.call(f"explain/run-{form}", "explain", before, "--format", form)
        golden.call(f"explain/frameworks-{form}", "explain", frameworks, "--format", form)
        golden.call(f"explain/published-{form}", "explain", published, "--format", form)
    golden.call("publish/refused", "publish", before, "--out", golden.scratch / "results")
    publish = ("publish", before, "--out", golden.scratch / "results", "--lab")
    golden.call("publish/printed", *publish, "--hide", "thunderbolt")
    golden.keep_folder("publish/files", golden.scratch / "results")


def site(golden: Golden) -> None:
    """The site of the published records, and the tidy table of them."""
    golden.call("site", "site", "results/", "--out", golden.scratch / "site")
    golden.keep_folder("site", golden.scratch / "site")
    golden.call("records-csv", "report", "results/published", "--format", "csv")
    load = importlib.import_module("nixwulf").load
    golden.keep("tidy.csv", load("results/published/records").to_csv(index=False))


def deployments(golden: Golden) -> None:
    """Plans of deploy and update; a stand-in for ssh answers as a Debian with one disk."""
    factory = importlib.import_module("machine_factory")
    answers, cat = golden.scratch / "machine.txt", shutil.which("cat", path=os.defpath)
    answers.write_text(factory.answer(), "utf-8")
    importlib.import_module("stand_in").put(
        golden.scratch / "bin",
        "ssh",
        f'case "$*" in *"sh -s"*) {cat} {answers} ;; *-fN*) ;; *) exit 255 ;; esac',
    )
    for path in _paths("clusters"):
        ask = ("deploy", "--cluster", path)
        golden.call(f"deploy/{path.stem}", *ask, "--dry-run")
        golden.call(f"deploy/{path.stem}-facts", *ask, "--phase", "facts")
        golden.call(f"update/{path.stem}", "update", "--cluster", path, "--dry-run")
    text = (ROOT / "clusters/mini-3.toml").read_text("utf-8")
    mine = golden.scratch / "mine.toml"
    mine.write_text(re.sub(r"/dev/disk/by-id/[^\"]+", factory.DISK, text), "utf-8")
    golden.call("deploy/installs", "deploy", "--cluster", mine, "--dry-run", *_hosts(text))
    golden.call("preflight/gates", "preflight", "--cluster", "mini-3", "--format", "json")


def _hosts(text: str) -> list[str]:
    names = [node["name"] for node in tomllib.loads(text)["nodes"]]
    return [word for name in names for word in ("--expect", f"{name}=debian")]


def _paths(folder: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).iterdir()) if path.is_file()]


def _sweeps() -> list[Path]:
    return [*_paths("sweeps"), *_paths("sweeps/lab")]


def _environment(scratch: Path) -> dict[str, Any]:
    """Nothing of the caller's home, caches and programs; ssh is put into bin later."""
    (scratch / "bin").mkdir()
    kept = {key: os.environ[key] for key in ("PYTHONPATH", "LANG") if key in os.environ}
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"), str(scratch))
    return kept | folders | {"PATH": str(scratch / "bin"), "TZ": "UTC", "COLUMNS": "120"}


def main() -> None:
    """Write all of them."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and OUT
        sys.exit("Usage: .venv/bin/python tools/golden.py OUT")
    out = Path(sys.argv[1]).absolute()
    if out.exists() and any(out.iterdir()):
        sys.exit(f"The folder {str(out)!r} is not empty; name another, or remove it.")
    # Tests' helpers go through sets: their order is in the records that they make.
    if os.environ.get("PYTHONHASHSEED") != "0":
        fixed = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.argv], fixed)  # noqa: S606 - itself
    os.chdir(ROOT)
    sys.path[:0] = [str(next((ROOT / "tests").rglob(name)).parent) for name in HELPERS]
    SCRATCH.mkdir(mode=0o700)
    try:
        os.environ.clear()
        os.environ.update(_environment(SCRATCH))
        # It says so when it makes its cache of fonts, if that takes long.
        importlib.import_module("matplotlib.font_manager")
        golden = Golden(out, SCRATCH)
        parts = (helps, files, predictions, dry_runs, repeats, models)
        for part in (*parts, imports, runs, site, deployments):
            part(golden)
    finally:
        shutil.rmtree(SCRATCH)
    print(json.dumps({"files": sum(path.is_file() for path in out.rglob("*"))}))


if __name__ == "__main__":
    main()
