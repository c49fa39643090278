"""The configurations of nodes in a flake: which disks they format, what they evaluate to.

Also builds by nix on this machine: announced before they begin, or refused with what to do.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core import interrupts, printed
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.errors import quoted as quoted_value
from nixwulf.core.files import PACKAGE, read_json
from nixwulf.core.schema import check
from nixwulf.core.text import GIB, clean, plural, some
from nixwulf.inventory.cluster import Cluster, Node

FEATURES = ("--extra-experimental-features", "nix-command flakes")
SYSTEM = "config.system.build.toplevel"

_LAYOUT = PACKAGE / "ops/deploy/layout.nix"
_LAYOUT_KEYS = ("disks", "labels", "modules", "interfaces")
# Of a store anywhere; the names in it have no other characters.
_MOST_S = 3600  # of an evaluation, which takes seconds, and minutes where sources are fetched
_PATH = re.compile(r"/[\w+.?=/-]+", re.ASCII)
COLLECT = "nix-collect-garbage --delete-older-than 30d"
NO_ROOM = re.compile("No space|(?:database or )?disk is full")
# What nix prints where something is missing here, and the next step.
_REMEDIES = {
    NO_ROOM.pattern: f"make room by '{COLLECT}'",
    r"executing \W*git\W*: No such file": "git is not on PATH: install it, such as by "
    "'nix profile install nixpkgs#git'",
    r"find a flake\.nix|getting status of \W*/(?!nix/)": "give --flake the folder "
    "of your flake, or begin one by 'nix flake init -t github:nixwulf/nixwulf'",
    "resolve host|unable to download|Failed to connect|Could not connect": "it needs a network "
    "once: run 'nix flake archive {}' where there is one",
}
_DARWIN = "s: { drv = s.system.drvPath; out = s.system.outPath; }"


@dataclass(frozen=True)
class Layout:
    """What a configuration would do to its machine.

    disks: what it formats. labels: names of the partitions that it makes there. modules: drivers
    that its initrd has; None where that was not asked. interfaces: names that it gives to
    interfaces itself; None where all names are the kernel's.
    """

    disks: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    modules: tuple[str, ...] | None = None
    interfaces: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Built:
    """A system: the derivation that makes it, None where it is made, and its path.

    layout: what it would do to its machine; None for a Mac.
    """

    derivation: str | None
    path: str
    layout: Layout | None = None


def attribute(cluster: Cluster, node: Node) -> str:
    """The name of a node's configuration among the flake's."""
    return f"{cluster.name}-{node.name}"


def quoted(attribute: str) -> str:
    """An attribute as a part of a path: its dots do not divide it."""
    return f'"{attribute}"'


def installable(flake: str, attribute: str) -> str:
    """A NixOS node's system, as nix build takes it."""
    return f"{flake}#nixosConfigurations.{quoted(attribute)}.{SYSTEM}"


def check_reference(flake: str) -> None:
    """Raise InputError for a flake reference that would be an option or has an attribute."""
    if flake.startswith("-") or "#" in flake or not flake:
        raise InputError(
            f"--flake is {flake!r}, expected a flake without '#', such as '.' or 'path:/my/flake'; "
            "the configurations are found by the names of cluster and node."
        )


def lacks_nix() -> str | None:
    """Why nothing can be asked of a flake here, or None."""
    if shutil.which("nix"):
        return None
    return (
        "nix is not on PATH; install it by "
        "'curl -L https://nixos.org/nix/install | sh -s -- --daemon'"
    )


def remedy(stderr: str, flake: str) -> str | None:
    """What to do about something missing here that nix stumbled over, or None."""
    found = (then for pattern, then in _REMEDIES.items() if re.search(pattern, clean(stderr)))
    return next(found, "").format(flake) or None


def layouts(flake: str, attributes: Sequence[str]) -> dict[str, Layout]:
    """What the configurations of NixOS nodes would do to their machines, by attribute."""
    function = _LAYOUT.read_text("utf-8")
    found = _evaluate(flake, "nixosConfigurations", attributes, function, _is_layout)
    return {name: layout_of(value) for name, value in found.items()}


def layout_of(values: Mapping[str, list[str] | None]) -> Layout:
    """The layout of what layout.nix evaluates to."""
    interfaces = values["interfaces"]
    return Layout(
        disks=tuple(values["disks"] or ()),
        labels=tuple(values["labels"] or ()),
        modules=tuple(values["modules"] or ()),
        interfaces=None if interfaces is None else tuple(interfaces),
    )


def systems(flake: str, attributes: Sequence[str], *, darwin: bool = False) -> dict[str, Built]:
    """The system of each attribute; nothing is built.

    Raises InputError: the flake does not evaluate, or has no such configuration.
    """
    output = "darwinConfigurations" if darwin else "nixosConfigurations"
    layout = _LAYOUT.read_text("utf-8")
    linux = f"s: {{ drv = s.{SYSTEM}.drvPath; out = s.{SYSTEM}.outPath; layout = ({layout}) s; }}"
    found = _evaluate(flake, output, attributes, _DARWIN if darwin else linux, _is_system)
    return {
        name: Built(
            value["drv"], value["out"], layout_of(value["layout"]) if "layout" in value else None
        )
        for name, value in found.items()
    }


def evaluation(flake: str, output: str, attributes: Sequence[str], function: str) -> list[str]:
    """The command that applies a Nix function to configurations.

    output: the flake's output that has them, such as 'nixosConfigurations'. attributes: their
    names; an absent one gives null, so that one evaluation answers for all.
    """
    wanted = " ".join(f"{quoted(name)} = null;" for name in attributes)
    apply = (
        f"all: builtins.mapAttrs (name: _: if all ? ${{name}} then ({function}) all.${{name}} "
        f"else null) {{ {wanted} }}"
    )
    return ["nix", "eval", *FEATURES, "--json", f"{flake}#{output}", "--apply", apply]


def _is_layout(value: object) -> bool:
    """Whether it is of the form of layout.nix."""
    lists = [value.get(key) for key in _LAYOUT_KEYS] if isinstance(value, dict) else [value]
    return isinstance(value, dict) and all(
        words is None or (isinstance(words, list) and all(isinstance(w, str) for w in words))
        for words in lists
    )


def _is_system(value: object) -> bool:
    return (
        isinstance(value, dict)
        and all(_PATH.fullmatch(str(value.get(key))) for key in ("drv", "out"))
        and ("layout" not in value or _is_layout(value["layout"]))
    )


def _evaluate(
    flake: str, output: str, attributes: Sequence[str], function: str, fits: Callable[[Any], bool]
) -> Mapping[str, Any]:
    if not attributes:
        return {}
    command, then = evaluation(flake, output, attributes, function), None
    try:
        done = interrupts.ask(command, timeout=_MOST_S)
        problem = error_of(done.stderr) if done.returncode != 0 else ""
        then = remedy(done.stderr, flake)
    except printed.TooMuch:
        problem = f"nix printed more than {printed.MOST_CHARACTERS >> 20} MiB"
    except subprocess.TimeoutExpired:
        problem = f"nix took longer than {_MOST_S // 60} min"
    if problem:
        own = f"{flake}#{output}.{attributes[0]}.config.networking.hostName"
        then = then or f"see all of it by 'nix eval {own}'"
        raise InputError(f"The flake {flake!r} does not evaluate: {problem}; {then}.")
    try:
        found = json.loads(done.stdout)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(
            f"nix answered for the flake {flake!r} with {quoted_value(done.stdout)}, expected a "
            f"JSON object; run '{shlex.join(command)}'."
        )
    for name in attributes:
        if found.get(name) is not None and not fits(found[name]):
            raise InputError(
                f"nix answered for {output}.{quoted(name)} of the flake {flake!r} with "
                f"{quoted_value(found[name])}, which is no system; run '{shlex.join(command)}'."
            )
        if found.get(name) is None:
            raise InputError(
                f"The flake {flake!r} has no {output}.{quoted(name)}; is the cluster file among "
                f"those that it reads, and known to git ('git add')? List them by 'nix eval "
                f"{flake}#{output} --apply builtins.attrNames'."
            )
    return found


def error_of(stderr: str) -> str:
    """The sentence in what nix printed: the last that begins with 'error:', else the last line."""
    lines = [line.strip() for line in clean(stderr).splitlines() if line.strip()]
    errors = [line.partition("error:")[2].strip() for line in lines if "error:" in line]
    return next((e for e in reversed(errors) if e), lines[-1] if lines else "it printed nothing")


@dataclass(frozen=True)
class PrebuiltNode:
    """A node's system, what formats its disk, and its installer for kexec where it has one."""

    system: str
    disko: str
    kexec: str | None
    layout: Layout


@dataclass(frozen=True)
class Prebuilt:
    """What 'nix build .#deployments.CLUSTER' made: store paths, all of them on this machine."""

    source: str
    nodes: Mapping[str, PrebuiltNode]


def load_prebuilt(path: Path, cluster: Cluster, nodes: Sequence[Node]) -> Prebuilt:
    """Read what 'nix build .#deployments.CLUSTER' made.

    Raises InputError: it is of another cluster, or lacks a node or a path.
    """
    document = read_json(path)
    check(document, "deployment", str(path))
    if document["cluster"] != cluster.name:
        raise InputError(
            f"{path}: it is of the cluster {document['cluster']!r} and {cluster.source} describes "
            f"{cluster.name!r}; build that by 'nix build .#deployments.{cluster.name}'."
        )
    found = {
        name: PrebuiltNode(
            system=values["system"],
            disko=values["disko"],
            kexec=values["kexec"],
            layout=layout_of(values["layout"]),
        )
        for name, values in document["nodes"].items()
    }
    for node in nodes:
        if node.name not in found:
            raise InputError(
                f"{path}: it has no node {node.name!r}; it has: {', '.join(found)}. Leave that "
                "node out with --node, or build it again."
            )
        own = found[node.name]
        for place in filter(None, (own.system, own.disko, own.kexec)):
            if not Path(place).exists():
                raise InputError(
                    f"{path}: {place!r} of node {node.name!r} is not on this machine; copy the "
                    f"file with all that it names by 'nix copy --from ... {path.resolve()}'."
                )
    return Prebuilt(str(path), found)


_STORE = Path("/nix/store")
_MADE = re.compile(r"^ +/nix/store/[0-9a-z]{32}-(.+)\.drv$", re.MULTILINE)
_FETCHED = re.compile(r"\(([\d.]+) ([KMGT])iB download, ([\d.]+) ([KMGT])iB unpacked\)")
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGT", start=1)}
# Kernels, their modules of NVIDIA, engines and HPL: minutes to hours, where the rest takes seconds.
_LONG = re.compile(
    r"(?:linux(?:-rpi)?|nvidia-\w+|llama-cpp\S*|distributed-llama|hpl\S*)"
    r"-\d[\d.]*(?:-(?:rc|stable_)?[\d.]+)?"
)


def build_here(command: Sequence[str], what: str, elsewhere: str = "") -> None:
    """Announce a build, and build with nix's own progress on the terminal; as `announce`."""
    announce(command, what, elsewhere)
    done = interrupts.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode != 0:
        why = f"nix ended with {done.returncode}, see its words above"
        raise _failed(what, why, f"run '{shlex.join(command)}'", elsewhere)


def announce(command: Sequence[str], what: str, elsewhere: str = "") -> None:
    """Print a line on what a command of nix would build, if anything.

    what: begins the sentence of a failure, such as 'The systems are'. elsewhere: ends it.

    Raises NixwulfError: it cannot be built, or does not fit into the store.
    """
    asked = interrupts.ask([*command, "--dry-run"])
    if asked.returncode:
        then = remedy(asked.stderr, ".") or f"run '{shlex.join(command)}'"
        raise _failed(what, error_of(asked.stderr), then, elsewhere)
    free = shutil.disk_usage(_STORE).free if _STORE.is_dir() else sys.maxsize
    unpacked = sum(float(size) * _UNITS[u] for _, _, size, u in _FETCHED.findall(asked.stderr))
    if unpacked > free:
        sizes = f"{unpacked / GIB:.2f} GiB come to '{_STORE}', which has {free / GIB:.2f} GiB left"
        raise _failed(what, sizes, f"make room by '{COLLECT}'", elsewhere)
    print(announcement(asked.stderr), end="", file=sys.stderr)


def _failed(what: str, why: str, then: str, elsewhere: str) -> NixwulfError:
    return NixwulfError(f"{what} not built, and no node is changed: {why}; {then}.{elsewhere}")


def announcement(dry_run: str) -> str:
    """What nix says that it is going to make, as a line; empty where everything is there."""
    made, fetched = _MADE.findall(dry_run), _FETCHED.search(dry_run)
    parts = [f"builds {plural(len(made), 'derivation')} here"] if made else []
    parts += [f"fetches {fetched[1]} {fetched[2]}iB"] if fetched else []
    if not parts:
        return ""
    long = sorted(filter(_LONG.fullmatch, made))
    slow = f"; what takes long on {os.cpu_count()} CPUs is {some(long)}" if long else ""
    return f"Nix {' and '.join(parts)}{slow}.\n"


def systems_built_here() -> set[str]:
    """The systems that nix builds on this machine."""
    found: set[str] = set()
    for setting in ("system", "extra-platforms"):
        shown = interrupts.ask(["nix", "config", "show", *FEATURES, setting])
        found |= set(shown.stdout.split())
    return found


def store_address(ssh: str) -> str:
    """A node's store, as nix names it."""
    user, at, host = ssh.rpartition("@")
    return f"ssh-ng://{user}{at}[{host}]" if ":" in host else f"ssh-ng://{ssh}"
