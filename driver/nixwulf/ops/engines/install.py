"""An engine brought to nodes that have none, verified on each, and removed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import TemporaryFile

from nixwulf.core import interrupts
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import cache_dir
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection, each
from nixwulf.nodes.transfer import put, relay
from nixwulf.ops.engines.kinds import BuildState, NodeKind, kinds_of, parse
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.engines.local import NodeBuild

_SCRIPT = Path(str(resources.files("nixwulf"))) / "ops" / "engines" / "node.sh"
_HERE = "this machine"
_POLL_S = 0.2
_COPY_S = 3600.0
Observer = Callable[[str, str, float], None]
"""Called with a machine's name, the step that goes on there and the share of it that is done."""


@dataclass(frozen=True)
class Installed:
    """An engine on a node: how it came there, what it can use beside the CPU, and its version.

    idle: what a build would need for a GPU that this one leaves idle; empty where there is none.
    """

    node: str
    how: str
    version: str
    idle: str = ""


def install(nodes: Sequence[Connection], engine: Engine, observer: Observer) -> list[Installed]:
    """Bring one build of an engine to nodes, unless all of them have one version of their own.

    Raises:
        GateError: a node can neither build it nor get a copy; then nothing is changed.
        NixwulfError: the source, a build, a copy or a program failed.
    """
    recipe = engine.node_build()
    if recipe is None:
        raise InputError(f"{engine.name} is built on no node. {engine.lacking}".rstrip())
    found = each(lambda node: _look(node, engine, recipe), nodes)
    states = {node.node.name: state for node, state in zip(nodes, found, strict=True)}
    if own := _own(nodes, states, engine):
        return own
    kinds = kinds_of(states, recipe, engine.name)
    builders = [kind for kind in kinds if kind.builds]
    if builders:
        archive = recipe.archive(lambda step, share: observer(_HERE, step, share))
    by_name = {node.node.name: node for node in nodes}

    def carry_out(kind: NodeKind) -> list[Installed]:
        first, state = by_name[kind.first], states[kind.first]
        if kind.builds:
            put(first, archive, f"{state.root}/{engine.name}.source")
            _build(first, engine, recipe, kind, observer)
        verified = _verify(first, engine, state)

        def bring(name: str) -> Installed:
            node, how = by_name[name], "as it was"
            if name in kind.copies:
                observer(name, f"Copy from {kind.first}", 0.0)
                _copy(first, node, engine)
                how = f"copied from {kind.first}"
            elif name == kind.first and kind.builds:
                how = "built there"
            if name != kind.first and _verify(node, engine, states[name]) != verified:
                raise NixwulfError(
                    f"Node {name!r} has another build of {engine.name} than {kind.first!r}; remove "
                    "both by 'nixwulf engines remove' and install them again."
                )
            own = next(iter(states[name].own.values()), None)
            kept = f"; its own {own} is left as it is and not used" if own else ""
            idle = states[name].idle if kind.features == states[name].features else ""
            return Installed(name, f"{how}, for {kind.features}{kept}", verified[1], idle)

        return each(bring, kind.nodes)

    done = {one.node: one for some in each(carry_out, kinds) for one in some}
    return [done[name] for name in by_name]


def remove(node: Connection, engine: Engine) -> bool:
    """Remove what was installed of an engine on a node; whether there was any."""
    return bool(_run(node, "remove", engine.name))


def _run(node: Connection, *arguments: str) -> str:
    return node.script(_SCRIPT.read_text("utf-8"), *arguments, timeout_s=_COPY_S)


def _look(node: Connection, engine: Engine, recipe: NodeBuild) -> BuildState:
    text = _run(node, "state", engine.name, *engine.programs)
    return parse(text + node.script(recipe.script, "probe"))


def _own(
    nodes: Sequence[Connection], states: dict[str, BuildState], engine: Engine
) -> list[Installed]:
    """The programs that all nodes have on PATH, of one version; empty where they do not."""
    if any(s.build or engine.missing(s.own) for s in states.values()):
        return []
    try:
        versions = each(lambda node: _version(node, engine, states[node.node.name].own), nodes)
    except NixwulfError:
        return []
    if len(set(versions)) > 1:
        return []
    return [
        Installed(name, f"keeps its own {next(iter(state.own.values()))}", version)
        for (name, state), version in zip(states.items(), versions, strict=True)
    ]


def _version(node: Connection, engine: Engine, programs: Mapping[str, str]) -> str:
    """The line of an engine's version; raises NixwulfError with what it printed instead."""
    done = node.run(engine.version_command(programs))
    lines = (done.stdout + done.stderr).splitlines()
    version = next((line.strip() for line in lines if "version" in line.lower()), None)
    if version is None:
        words = lines[-1].strip() if lines else "it prints nothing"
        raise NixwulfError(f"{engine.name} on node {node.node.name!r} prints no version: {words}")
    return version


def _build(
    node: Connection,
    engine: Engine,
    recipe: NodeBuild,
    kind: NodeKind,
    observer: Observer,
) -> None:
    """Until it ends or the driver is interrupted, whereupon the node removes what there is."""
    arguments = [engine.name, kind.build, recipe.sha256, recipe.folder, recipe.script]
    argv = ["sh", "-c", _SCRIPT.read_text("utf-8"), "sh", "build", *arguments, *recipe.options]
    name, step = node.node.name, f"Build {engine.name}"
    observer(name, step, 0.0)
    process = OwnedProcess.start(node, name, argv, {}, cache_dir() / "engines")
    try:
        while process.running:
            interrupts.wait(_POLL_S)
            lines = process.output.splitlines()
            shares = (recipe.share_done(line) for line in reversed(lines))
            observer(name, step, next(filter(None, shares), 0.0))
    finally:
        process.stop()
    if process.returncode != 0:
        raise NixwulfError(
            f"Node {name!r} did not build {engine.name}: {process.last_line()} (all of it: "
            f"{str(process.stdout)!r} and {process.stderr.name!r}); nothing of it is left there."
        )


def _copy(source: Connection, node: Connection, engine: Engine) -> None:
    """Through this machine, which alone is sure to reach both."""
    script = _SCRIPT.read_text("utf-8")
    send, receive = (["sh", "-c", script, "sh", way, engine.name] for way in ("send", "receive"))
    with TemporaryFile("w+") as printed:
        sender = interrupts.popen(source.argv(send), stdout=subprocess.PIPE)
        receiver = interrupts.popen(
            node.argv(receive), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=printed
        )
        still = relay(sender, receiver)
        printed.seek(0)
        words = printed.read().strip().splitlines()
    if still or receiver.returncode != 0 or sender.returncode != 0:
        why = still or (words or [f"{source.node.name!r} sent no whole copy"])[-1]
        raise NixwulfError(f"Node {node.node.name!r} got no copy of {engine.name}: {why}")


def _verify(node: Connection, engine: Engine, state: BuildState) -> tuple[str, str]:
    """The sums of an installation's files and the version that it prints.

    What does not run is removed: it would be found before all else. Raises NixwulfError.
    """
    try:
        sums = _run(node, "check", engine.name)
        folder = f"{state.root}/{engine.name}/bin"
        names = (line.rpartition("/")[2] for line in sums.splitlines())
        return sums, _version(node, engine, {name: f"{folder}/{name}" for name in names})
    except NixwulfError as error:
        remove(node, engine)
        raise NixwulfError(
            f"Node {node.node.name!r} cannot use its build of {engine.name}, which is removed; "
            f"repeat this command. {error.message}"
        ) from None
