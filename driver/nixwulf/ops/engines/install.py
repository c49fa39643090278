"""An engine brought to nodes that have none, verified on each, and removed.

Which node builds it and which get a copy follows from what the nodes answered. A toolbox's tag is
held to its first digest, and the image pulled by that.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import Any

from nixwulf.core import interrupts, web
from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.files import cache_dir, read_json, shipped_text, write_json
from nixwulf.core.text import as_typed, fingerprint
from nixwulf.nodes import container
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection, each
from nixwulf.nodes.transfer import put, relay
from nixwulf.plugins.engines import Engine, all_engines
from nixwulf.plugins.engines.local import NodeBuild

_DIGITS = 12


@dataclass(frozen=True)
class BuildState:
    """A node's answer about its build.

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
        """The features of the build, such as 'cpu vulkan'."""
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
    """List kinds of nodes: a build that is there serves; raises GateError where none can build."""
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


Observer = Callable[[str, str, float], None]
"""Called with a machine's name, the step that goes on there and the share of it that is done."""

_TIMEOUT_S, _MOST_BYTES = 30.0, 1 << 20
_PULL_S = 6 * 3600.0
_NOT_FOUND = 127
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'(realm|service|scope)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Where the images of a name are that is no host's.
_HOSTS = {"docker.io": "registry-1.docker.io"}


def hold(names: Iterable[str], cluster: str) -> Iterator[str]:
    """Hold tags that have no digest yet, with a sentence for each; raises NixwulfError."""
    for name in names:
        if name == container.NONE or "@" in name:
            continue
        entry = container.image_of(name, "toolbox", cluster)
        if entry["digest"] is None:
            yield _keep(name, entry, digest_of(entry), cluster)


def hold_again(name: str, cluster: str, *, accept: bool) -> str | None:
    """Compare the digest that a tag is held to with that of today; what changed, or None.

    A registry that does not answer, or has the tag no more, changes nothing.

    Raises GateError: the tag has another digest, which is not accepted.
    """
    entry = container.image_of(name, "--toolbox", cluster)
    if not entry["tag"]:
        return None
    try:
        today = digest_of(entry)
    except NixwulfError:
        return None
    if today == entry["digest"]:
        return None
    if accept:
        return _keep(name, entry, today, cluster)
    image = f"{entry['image']}@{entry['digest']}"
    again = as_typed("engines", "install", "--cluster", cluster, "--toolbox", name, "--accept")
    raise GateError(
        f"The tag '{entry['image']}:{entry['tag']}' is {today} today and held to "
        f"{entry['digest']}; take today's by {again}, or stay by '--toolbox {image}'."
    )


def _keep(name: str, entry: Mapping[str, str], digest: str, cluster: str) -> str:
    lock = container.lock_beside(cluster)
    held: dict[str, Any] = read_json(lock) if lock.exists() else {"version": 1, "images": {}}
    kept = {"image": entry["image"], "tag": entry["tag"], "digest": digest}
    held["images"] = dict(sorted({**held.get("images", {}), name: kept}.items()))
    write_json(lock, held)
    return f"The toolbox {name!r} is held to {digest} from now on, in {str(lock)!r}."


def digest_of(entry: Mapping[str, str]) -> str:
    """The digest that a tag has in its registry today; raises NixwulfError."""
    host, _, path = entry["image"].partition("/")
    scheme = "http" if host.partition(":")[0] in {"localhost", "127.0.0.1"} else "https"
    url = f"{scheme}://{_HOSTS.get(host, host)}/v2/{path}/manifests/{entry['tag']}"

    def ask(
        method: str, url: str, headers: Mapping[str, str], query: Mapping[str, str] | None = None
    ) -> web.Reply:
        client = web.client(url, headers=headers, proxies=True)
        return web.fetch(client, method, url, _TIMEOUT_S, _MOST_BYTES, params=query)

    headers = {"Accept": ", ".join(_MANIFESTS)}
    try:
        answer = ask("HEAD", url, headers)
        asked = dict(_CHALLENGE.findall(answer.headers.get("WWW-Authenticate", "")))
        if answer.status == web.UNAUTHORIZED and "realm" in asked:
            granted = ask("GET", asked.pop("realm"), {}, asked).json or {}
            token = granted.get("token") or granted.get("access_token")
            answer = ask("HEAD", url, {**headers, "Authorization": f"Bearer {token}"})
    except (web.NoAnswer, ValueError, AttributeError) as error:
        raise NixwulfError(_unknown(entry, " ".join(str(error).split()))) from None
    found = str(answer.headers.get("Docker-Content-Digest", ""))
    if not answer.ok:
        raise NixwulfError(_unknown(entry, f"it answers {answer.status}"))
    if not _DIGEST.fullmatch(found):
        raise NixwulfError(_unknown(entry, f"it says {found!r}"))
    return found


def _unknown(entry: Mapping[str, str], why: str) -> str:
    return (
        f"The registry does not say the digest of '{entry['image']}:{entry['tag']}': {why}; "
        "correct the tag or give IMAGE@sha256:DIGEST."
    )


def pull(nodes: Sequence[Connection], image: str, observer: Observer) -> dict[str, list[str]]:
    """Bring an image to nodes; of each node the programs of engines that are inside.

    Raises NixwulfError: a node lacks podman, cannot pull it or cannot run it.
    """
    wanted = [program for engine in all_engines().values() for program in engine.programs]

    def bring(node: Connection) -> list[str]:
        name = node.node.name
        observer(name, f"Pull {image}", 0.0)
        done = node.run(["podman", "pull", "--quiet", image], timeout_s=_PULL_S)
        if done.returncode == _NOT_FOUND:
            raise NixwulfError(f"Node {name!r} lacks podman; install it, or leave out --toolbox.")
        if done.returncode != 0:
            words = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise NixwulfError(f"podman on node {name!r} did not pull {image!r}: {words}")
        found = container.look(node, image, "", wanted)
        if isinstance(found, str):
            raise NixwulfError(found)
        return sorted(found.programs)

    return {node.node.name: found for node, found in zip(nodes, each(bring, nodes), strict=True)}


def remove_images(node: Connection, image: str) -> bool:
    """Remove an image from a node; whether it was there."""
    there = node.run(["podman", "image", "exists", image]).returncode == 0
    if there:
        node.script('podman image rm "$1"', image)
    return there


_SCRIPT = shipped_text("ops/engines/node.sh")
_HERE = "this machine"
_POLL_S = 0.2
_COPY_S = 3600.0


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
    return node.script(_SCRIPT, *arguments, timeout_s=_COPY_S)


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
    node: Connection, engine: Engine, recipe: NodeBuild, kind: NodeKind, observer: Observer
) -> None:
    """Until it ends or the driver is interrupted, whereupon the node removes what there is."""
    arguments = [engine.name, kind.build, recipe.sha256, recipe.folder, recipe.script]
    argv = ["sh", "-c", _SCRIPT, "sh", "build", *arguments, *recipe.options]
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
    send, receive = (["sh", "-c", _SCRIPT, "sh", way, engine.name] for way in ("send", "receive"))
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
