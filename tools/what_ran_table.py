"""The table of what has run where, from results/flake and from what the flake has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import read_json, read_text, read_toml
from nixwulf.inventory.cluster import load_cluster

RESULTS = Path("results/flake")
EVALUATION = RESULTS / "evaluation.json"
COLUMNS = (
    *("what", "evaluated", "built (Debian's binaries)", "booted (VM)"),
    *("built by Nix", "on hardware"),
)
# By the folder in a row's name: the list in the evaluation that has its things.
EVALUATED = {"platforms": "platforms", "installers": "packages", "modules": "modules", "": "tests"}
NOTHING = "-"
# What every VM test is made of, beside its own file, what it covers and the machines that it names.
EVERY_TEST = ("default.nix", "prelude.py")
# What of the driver runs with every command, and, by a word after 'nixwulf' in a test, with it.
EVERY_COMMAND = ("cli/main.py", "cli/options.py", "core", "inventory", "nodes")
DRIVER = {
    "bench": ("cli/bench.py", "plugins", "sweep"),
    "deploy": ("cli/deploy.py", "ops/deploy"),
    "nodes": ("cli/nodes.py", "ops/recover"),
    "preflight": ("cli/cluster.py", "ops/preflight.py", "plugins/gates"),
    "update": ("cli/deploy.py", "ops/deploy"),
}
# What of those folders no VM test runs.
NOT_RUN = ("nodes/lab", "nodes/macos.py", "sweep/recipes", "sweep/reproduce", "sweep/serve")
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Tree:
    """What the flake in a folder has.

    covers: the platforms, installers and modules that each VM test shows; platform_of: the
    platform of each system; evaluation: what `nix flake check` went through.
    """

    root: Path
    platforms: Sequence[str]
    modules: Sequence[str]
    covers: Mapping[str, Sequence[str]]
    platform_of: Mapping[str, str]
    evaluation: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path = Path()) -> Tree:
        """The tree in a folder; raises InputError when a test shows what is not there."""
        clusters = [load_cluster(path) for path in sorted(root.glob("clusters/*.toml"))]
        covers = read_toml(root / "nixos/tests/covers.toml")
        tree = cls(
            root,
            sorted(path.name for path in root.glob("nixos/platforms/*")),
            sorted(path.stem for path in root.glob("modules/*.nix")),
            {f"vm-{test}": names for test, names in sorted(covers.items())},
            {f"{c.name}-{node.name}": node.platform for c in clusters for node in c.nodes},
            read_json(root / EVALUATION),
        )
        for test, names in tree.covers.items():
            for name in names:
                if name not in tree.rows:
                    raise InputError(f"covers.toml: {test!r} shows {name!r}, which does not exist.")
        return tree

    @property
    def installers(self) -> list[str]:
        """The packages that are named after a platform."""
        platforms = tuple(f"-{platform}" for platform in self.platforms)
        return [name for name in self.evaluation["packages"] if name.endswith(platforms)]

    @cached_property
    def rows(self) -> dict[str, list[str]]:
        """Each row of the table, and the tests, systems and packages whose results it shows."""
        own = {f"platforms/{name}": self._systems_of(name) for name in self.platforms}
        own |= {f"installers/{name}": [name] for name in self.installers}
        own |= {f"modules/{name}": [] for name in self.modules}
        covering = {
            name: [test for test, names in self.covers.items() if name in names] for name in own
        }
        return {name: own[name] + covering[name] for name in own} | {t: [t] for t in self.covers}

    def _systems_of(self, platform: str) -> list[str]:
        return [name for name, own in self.platform_of.items() if own == platform]

    def require(self, what: str) -> None:
        """Raises InputError for what the flake does not have, or no longer has."""
        if not any(what in names for names in self.rows.values()):
            raise InputError(f"The flake has no {what!r}.")

    def results(self) -> list[Result]:
        """The committed results; raises InputError when a result is of what does not exist."""
        found = []
        for path in sorted(self.root.glob(f"{RESULTS}/*.json")):
            if path.name != EVALUATION.name:
                result = read_json(path)
                try:
                    self.require(result["what"])
                except InputError as error:
                    raise InputError(f"{path}: {error.message} Remove the file.") from None
                found.append(result)
        return found

    def inputs(self, what: str) -> str:
        """A hash of the files that decide how a VM test goes; empty for what is none.

        They are its own, what all tests have, the machines that it names, the modules, platforms
        and installers that it covers, and what of the driver it runs.
        """
        if what not in self.covers:
            return ""
        folder, driver = self.root / "nixos/tests", self.root / "driver/nixwulf"
        files = self._own_files(what)
        for _ in range(2):  # a machine may be made of another
            text = self._text(files)
            files += [path for path in (folder / "machines").glob("*") if path.stem in text]
        for name in self.covers[what]:
            files += [self.root / "nixos" / name, self.root / name, self.root / f"{name}.nix"]
            files += self._files_of_installer(name)
        for command in {*re.findall(r"nixwulf (\w+)", text)} & DRIVER.keys():
            files += [driver / part for part in EVERY_COMMAND + DRIVER[command]]
        files += [folder / name for name in EVERY_TEST]
        found = {
            inner
            for path in files
            for inner in (path.rglob("*") if path.is_dir() else (path,))
            if inner.is_file() and "__pycache__" not in inner.parts
            if not any(inner.is_relative_to(driver / part) for part in NOT_RUN)
        }
        digest = hashlib.sha256()
        for path in sorted(found):
            one = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(self.root)} {one}\n".encode())
        return digest.hexdigest()[:12]

    def is_stale(self, result: Result) -> bool:
        """Whether what decides how a VM test goes is another than when it ran."""
        return self.inputs(result["what"]) != result.get("inputs", "")

    def _own_files(self, test: str) -> list[Path]:
        folder, name = self.root / "nixos/tests", test.removeprefix("vm-")
        files = [folder / f"{name}.nix", *sorted((folder / name).glob("*"))]
        for platform in self.platforms:
            if name.endswith(f"-{platform}"):
                files.append(folder / "per-platform" / f"{name.removesuffix(f'-{platform}')}.nix")
        return files

    def _files_of_installer(self, row: str) -> list[Path]:
        """What an installer is made of; empty for another row than an installer's."""
        if not row.startswith("installers/"):
            return []
        own = [name for name in self.platforms if row.endswith(f"-{name}")]
        return [self.root / "nixos" / part for part in ("images", *(f"platforms/{p}" for p in own))]

    @staticmethod
    def _text(files: Sequence[Path]) -> str:
        return "".join(read_text(path) for path in files if path.is_file())

    def subtests_of(self, test: str) -> set[str]:
        """The subtests in a VM test's own files, as far as their names are written out."""
        text = self._text(self._own_files(test))
        return {name for name in re.findall(r'subtest\(\s*"([^"]*)"', text) if "${" not in name}

    def added_subtests(self, result: Result) -> set[str]:
        """The subtests of a test that a result of it does not have, where it has any."""
        begun = {subtest["name"] for subtest in result["subtests"]}
        return self.subtests_of(result["what"]) - begun if begun else set()


def table(tree: Tree) -> str:
    """The table in Markdown."""
    results = tree.results()
    hardware = set(platforms_on_hardware(tree.root))
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for row, names in tree.rows.items():
        of_row = [result for result in results if result["what"] in names]
        folder, _, name = row.rpartition("/")
        evaluated = name in tree.evaluation[EVALUATED[folder]]
        cells = [
            f"`{row}`",
            tree.evaluation["commit"] if evaluated else NOTHING,
            _built([result for result in of_row if result["packages"] == "debian"], row),
            _booted([result for result in of_row if result["stage"] == "booted"], row, tree),
            _built([result for result in of_row if result["packages"] == "nix"], row),
            "yes" if folder == "platforms" and name in hardware else NOTHING,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def platforms_on_hardware(root: Path) -> Iterator[str]:
    """The platforms of nodes that ran a system of this flake, by the published runs.

    Only nodes of this flake say which release of linux-firmware they booted with.
    """
    for path in root.glob("results/*/records/*.json"):
        record = read_json(path)
        if record["kind"] == "run" and not record["cluster"]["lab"]:
            for node in record["nodes"]:
                if "linux_firmware" in node.get("facts", {}):
                    yield node["platform"]


def _built(results: Sequence[Result], row: str) -> str:
    """What was built of a row; what booted had been built, whatever became of it then."""
    good = {r["what"] for r in results if r["passed"] or r["stage"] == "booted"}
    bad = {r["what"] for r in results} - good
    cell = ", ".join([*sorted(good), *(f"**failed**: {what}" for what in sorted(bad))])
    return "yes" if cell == row.rpartition("/")[2] else cell or NOTHING


def _booted(results: Sequence[Result], row: str, tree: Tree) -> str:
    """The tests that show a row; of a test, what became of its subtests."""
    cells = []
    for result in results:
        added = tree.added_subtests(result)
        outcome = "passed" if result["passed"] else "**failed**"
        # A test ends at its first failure, so there what it has not shown may be older.
        if added and result["passed"]:
            outcome += f" before {len(added)} of its subtests were written"
        outcome += ", stale" if tree.is_stale(result) else ""
        if row != result["what"]:
            cells.append(result["what"] if outcome == "passed" else f"{result['what']} {outcome}")
            continue
        passed = [subtest for subtest in result["subtests"] if subtest["passed"]]
        subtests = f", {len(passed)} of {len(result['subtests'])}" if result["subtests"] else ""
        kvm = " (KVM)" if result["packages"] == "nix" else ""
        when = f"{result['seconds']} s, {result['commit']}, {result['date']}"
        cells.append(f"{outcome}{subtests}{kvm}, {when}")
    return "; ".join(cells) or NOTHING
