"""Which node builds an engine and which get a copy, of what the nodes answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nixwulf.core.errors import GateError
from nixwulf.core.naming import fingerprint
from nixwulf.plugins.engines.local import NodeBuild

_DIGITS = 12


@dataclass(frozen=True)
class BuildState:
    """What a node answered.

    root: the folder of installations, with free_kib on its disk. kind: equal on nodes that can run
    each other's builds. build: what is installed, empty where nothing is. own: programs of the
    engine on the user's PATH, with their places. missing: what a build there lacks, and tools: the
    command that installs it. features: of a build there, such as 'cpu vulkan'; idle: what a build
    would need for a GPU that it leaves idle.
    """

    root: str
    system: str
    kind: str
    free_kib: int
    build: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    tools: str = ""
    features: str = ""
    idle: str = ""


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a kind: the first builds, or has the build already, and others get copies of it."""

    first: str
    builds: bool
    build: str
    nodes: tuple[str, ...]
    copies: tuple[str, ...]

    @property
    def features(self) -> str:
        """Of the build, such as 'cpu vulkan'."""
        return self.build.partition(" ")[2]


def parse(text: str) -> BuildState:
    """The state of a node of what its scripts printed."""
    lines = [line.partition(" ")[::2] for line in text.splitlines()]
    words = {key: value.strip() for key, value in lines}  # a login may print lines of its own
    names = ("root", "system", "kind", "build", "missing", "tools", "features", "idle")
    return BuildState(
        free_kib=int(words["free_kib"]),
        own={place.rpartition("/")[2]: place for key, place in lines if key == "own"},
        **{name: words.get(name, "") for name in names},
    )


def kinds_of(states: Mapping[str, BuildState], recipe: NodeBuild, engine: str) -> list[NodeKind]:
    """The kinds of nodes; a build that is there serves, where a new one would offer no more.

    Args:
        states: by node.

    Raises:
        GateError: no node of a kind can build it, or the one that would has no room.
    """
    groups: dict[str, dict[str, BuildState]] = {}
    for name, state in states.items():
        if state.system != "Linux":
            raise GateError(
                f"Node {name!r} runs {state.system!r}, where the driver builds nothing; install "
                f"{engine} there by hand."
            )
        groups.setdefault(state.kind, {})[name] = state
    return [_kind(group, recipe, engine) for group in groups.values()]


def _kind(states: Mapping[str, BuildState], recipe: NodeBuild, engine: str) -> NodeKind:
    alike = next(iter(states.values())).kind
    digest = fingerprint([recipe.sha256, recipe.options, recipe.script, alike])[:_DIGITS]
    source = f"{recipe.version}-{digest}"
    built = {n: s.build for n, s in states.items() if s.build.startswith(f"{source} ")}
    able = {n: f"{source} {s.features}" for n, s in states.items() if not s.missing}
    if not built and not able:
        name, state = next(iter(states.items()))
        others = f", nor can {', '.join(list(states)[1:])}" if len(states) > 1 else ""
        raise GateError(
            f"Node {name!r} cannot build {engine} without {state.missing.replace(' ', ', ')}"
            f"{others}; run {state.tools!r} on one of them and repeat this, or take an image by "
            "--toolbox."
        )
    offers = {n: max(built.get(n, ""), able.get(n, ""), key=_abilities) for n in {**built, **able}}
    first = max(offers, key=lambda n: (_abilities(offers[n]), offers[n] == built.get(n)))
    builds = offers[first] != built.get(first)
    if builds and states[first].free_kib < recipe.free_kib:
        raise GateError(
            f"Node {first!r} has {states[first].free_kib / 2**20:.2f} GiB free in "
            f"{states[first].root!r} and a build of {engine} needs {recipe.free_kib / 2**20:.0f}; "
            "remove what is not needed."
        )
    wanted = offers[first]
    copies = (n for n, s in states.items() if n != first and s.build != wanted)
    return NodeKind(first, builds, wanted, tuple(states), tuple(copies))


def _abilities(build: str) -> int:
    return len(build.split())
