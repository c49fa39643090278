"""What of the flake has run where: results, kept in results/flake, and the table that they make.

Usage: .venv/bin/python tools/what_ran.py COMMAND

boot [--stale] [TEST...]   run VM tests by the harness, and record them; without a name, all, or
                           those whose files have changed since they passed, or that never did
record LOG...              record logs of the harness
evaluate                   run 'nix flake check --no-build --all-systems', and record it
build ATTRIBUTE...         run 'nix build .#ATTRIBUTE', and record it
table                      write the table in docs/what-ran.md, as the other commands do in the end

There is one result of each thing, on each kind of machine: the latest. Nothing is recorded of a
flake with changes that are not committed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from nixwulf.core.errors import InputError
from nixwulf.core.files import write_atomically, write_json
from what_ran_table import EVALUATION, RESULTS, Tree, table

PAGE = Path("docs/what-ran.md")
HARNESS = "../shared/nix-boot/boot"
# What a result is about, by the attribute that was built.
ATTRIBUTES = (
    re.compile(r"checks\.[^.]+\.(?P<what>vm-[^.]+)"),
    re.compile(r"packages\.[^.]+\.(?P<what>[^.]+)"),
    re.compile(r"(?:nixos|darwin)Configurations\.(?P<what>[^.]+)\.config\.system\.build\.toplevel"),
)
# What an evaluation had, by the attribute that lists it and the names in it.
OF_ALL = "all: builtins.concatMap {} (builtins.attrValues all)"
EVALUATED_NAMES = {
    "platforms": ("lib.inventories", OF_ALL.format("(each: map (node: node.platform) each.nodes)")),
    "packages": ("packages", OF_ALL.format("builtins.attrNames")),
    "modules": ("nixosModules", "builtins.attrNames"),
    "tests": ("checks.x86_64-linux", "builtins.attrNames"),
}
# Folders whose changes make another flake; what lies elsewhere can be changed while a test runs.
FLAKE = ("clusters", "driver", "flake.lock", "flake.nix", "lib", "modules", "nixos", "packages")


@dataclass(frozen=True)
class Subtest:
    """A part of a VM test's script, and whether it ended without an error."""

    name: str
    passed: bool


@dataclass(frozen=True)
class Result:
    """How one thing of the flake was built or booted.

    what: a VM test, a node or a package, by its name in the flake; stage: built, or booted, which
    includes it; packages: whose, Debian's (QEMU without KVM) or Nix's (KVM); inputs: Tree.inputs of
    that commit.
    """

    what: str
    stage: str
    packages: str
    passed: bool
    seconds: int
    date: str
    commit: str
    subtests: tuple[Subtest, ...] = ()
    inputs: str = ""


def parse(log: str, date: str, commit: str) -> Result:
    """The result of one run of the harness by its log; raises InputError when there is none."""
    attribute = re.search(r"^boot: evaluates \.#(\S+)$", log, re.MULTILINE)
    if not attribute:
        raise InputError("This is no log of the harness: no line 'boot: evaluates .#ATTRIBUTE'.")
    what = name_of(attribute[1])
    total = re.search(r"^total: (passed|FAILED).*, (\d+) s$", log, re.MULTILINE)
    if not total:
        built = re.search(r"^boot: (built in|the build failed after) (\d+) s", log, re.MULTILINE)
        if not built:
            raise InputError(f"The log of {what!r} has no end; run it again.")
        passed = built[1] == "built in"
        return Result(what, "built", "debian", passed, int(built[2]), date, commit)
    begun = dict.fromkeys(re.findall(r"^ *[\d.]+ subtest: (.*)$", log, re.MULTILINE))
    if not begun and total[1] == "passed":
        raise InputError(f"In the log of {what!r} no subtest was begun: it shows nothing.")
    subtests = tuple(
        Subtest(name, bool(re.search(rf"^passed  {re.escape(name)} \(\d+ s\)$", log, re.MULTILINE)))
        for name in begun
    )
    passed = total[1] == "passed" and all(subtest.passed for subtest in subtests)
    return Result(what, "booted", "debian", passed, int(total[2]), date, commit, subtests)


def name_of(attribute: str) -> str:
    """What an attribute of the flake is called in the table; raises InputError."""
    for pattern in ATTRIBUTES:
        if found := pattern.fullmatch(attribute):
            return found["what"]
    raise InputError(f"{attribute!r} is no VM test, package or system of the flake.")


def record(result: Result) -> None:
    """Keep a result; raises InputError for one that the tree cannot have given."""
    if not result.commit:
        raise InputError(f"{result.what!r} ran with changes that are not committed.")
    tree = Tree.read()
    tree.require(result.what)
    missing = tree.added_subtests(asdict(result))
    if result.passed and missing:
        raise InputError(f"{result.what!r} passed without its subtest {min(missing)!r}.")
    with tree_of(result.commit) as root:
        result = replace(result, inputs=replace(tree, root=root).inputs(result.what))
    name = f"{result.what}-{result.stage}-{result.packages}.json"
    write_json(RESULTS / name, asdict(result))
    print(f"{result.what}: {result.stage if result.passed else 'FAILED'}, recorded.")


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A folder with the flake of a commit; raises InputError for one that is not here."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit], check=False, capture_output=True)
        if archive.returncode != 0:
            raise InputError(f"There is no commit {commit!r} here: 'git fetch --unshallow'.")
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
        yield Path(folder)


def stale() -> list[str]:
    """The VM tests that have no result of their present files in which they passed."""
    tree = Tree.read()
    fresh = {
        result["what"]
        for result in tree.results()
        if result["stage"] == "booted" and result["passed"] and not tree.is_stale(result)
    }
    return [test.removeprefix("vm-") for test in tree.covers if test not in fresh]


def committed() -> str:
    """The commit that the flake is; empty when files of it have changed since."""
    return "" if _git("status", "--porcelain", "--", *FLAKE) else _git("rev-parse", "HEAD")[:7]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def today() -> str:
    """The date of a result, in UTC."""
    return datetime.now(UTC).date().isoformat()


def boot(tests: Sequence[str], harness: str) -> int:
    """Run VM tests one after another, all where none is named; how many failed."""
    failed = []
    for test in tests or [name.removeprefix("vm-") for name in Tree.read().covers]:
        commit, lines = committed(), []
        command = [*shlex.split(harness), f"vm-{test}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
            for line in run.stdout or ():
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                lines.append(line.decode(errors="replace"))
        if run.returncode != 0:
            failed.append(test)
        try:
            record(parse("".join(lines), today(), commit))
        except InputError as error:
            print(f"vm-{test} is not recorded: {error.message}", file=sys.stderr)
    if failed:
        print(f"Failed: {' '.join(failed)}.", file=sys.stderr)
    return len(failed)


def record_logs(logs: Sequence[Path], commit: str) -> int:
    """Keep the results of logs, each of the day on which it was written; how many are none."""
    refused = 0
    for log in logs:
        date = datetime.fromtimestamp(log.stat().st_mtime, UTC).date().isoformat()
        text = log.read_text(encoding="utf-8", errors="replace")
        try:
            record(parse(text, date, commit or committed()))
        except InputError as error:
            refused += 1
            print(f"{log} is not recorded: {error.message}", file=sys.stderr)
    return refused


def evaluate() -> int:
    """Evaluate all of the flake, and keep what that was; the exit code of nix."""
    commit, begin = committed(), time.monotonic()
    if not commit:
        raise InputError("The flake has changes that are not committed; commit them first.")
    check = ["nix", "flake", "check", "--no-build", "--all-systems"]
    code = subprocess.run(check, check=False).returncode
    if code == 0:
        seconds = round(time.monotonic() - begin)
        names = {key: _names(*where) for key, where in EVALUATED_NAMES.items()}
        write_json(EVALUATION, {"date": today(), "commit": commit, "seconds": seconds, **names})
    return code


def _names(attribute: str, apply: str) -> list[str]:
    command = ["nix", "eval", "--json", f".#{attribute}", "--apply", apply]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return sorted(set(json.loads(done.stdout)))


def build(attributes: Sequence[str]) -> int:
    """Build attributes of the flake with Nix's own packages; how many failed.

    A VM test boots as it is built.
    """
    commit, failed = committed(), 0
    for attribute in attributes:
        what, begin = name_of(attribute), time.monotonic()
        command = ["nix", "build", "--no-link", "--print-build-logs", f".#{attribute}"]
        passed = subprocess.run(command, check=False).returncode == 0
        stage = "booted" if what.startswith("vm-") else "built"
        seconds = round(time.monotonic() - begin)
        record(Result(what, stage, "nix", passed, seconds, today(), commit))
        failed += not passed
    return failed


def write_page() -> None:
    """Write the table, in the place of the one in the page."""
    text = PAGE.read_text(encoding="utf-8")
    write_atomically(PAGE, text[: text.index("| what |")] + table(Tree.read()) + "\n")


def main() -> int:
    """What the usage says; 0 when all that ran passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    booting = commands.add_parser("boot", help="run VM tests and record them")
    booting.add_argument("--with", dest="harness", default=HARNESS, help=f"default: {HARNESS}")
    booting.add_argument(
        "--stale", action="store_true", help="those that are stale or never passed"
    )
    booting.add_argument("tests", nargs="*", metavar="TEST", help="without 'vm-'; default: all")
    recording = commands.add_parser("record", help="record logs of the harness")
    recording.add_argument("--commit", default="", help="what was run; default: this commit")
    recording.add_argument("logs", nargs="+", metavar="LOG", type=Path)
    commands.add_parser("evaluate", help="run 'nix flake check --no-build' and record it")
    building = commands.add_parser("build", help="run 'nix build' and record it")
    building.add_argument("attributes", nargs="+", metavar="ATTRIBUTE")
    commands.add_parser("table", help="write the table")
    arguments = parser.parse_args()
    failed = 0
    if arguments.command == "boot":
        tests = stale() if arguments.stale else arguments.tests
        if not tests and arguments.stale:
            print("No VM test is stale.")
            return 0
        failed = boot(tests, arguments.harness)
    elif arguments.command == "record":
        failed = record_logs(arguments.logs, arguments.commit)
    elif arguments.command == "evaluate":
        failed = evaluate()
    elif arguments.command == "build":
        failed = build(arguments.attributes)
    write_page()
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"what_ran: {error.message}")
