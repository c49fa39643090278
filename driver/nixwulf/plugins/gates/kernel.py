"""Gates: the kernel is new enough; no kernel, firmware or llama.cpp that is known to be bad.

Also: the nodes have one build of an engine, of a version that the driver can drive.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.schema import check
from nixwulf.inventory.cluster import Node
from nixwulf.nodes.facts import Facts
from nixwulf.plugins.gates import Gate, GateContext, Verdict, on_lab, refused, unknown
from nixwulf.plugins.runtime import upstream


def is_older(version: str, than: str) -> bool:
    """Whether a release is before another; 6.19 and 6.19.0 are the same, and so is 6.19-rc2."""
    ours, theirs = (upstream.number(text.partition("-")[0]) for text in (version, than))
    return ours < theirs


def _judge_kernel(context: GateContext, node: Node) -> Iterator[Verdict]:
    platform = context.platform(node)
    kernel, floor = context.facts[node.name].kernel, platform["kernel_floor"]["value"]
    if not kernel[:1].isdecimal():
        yield unknown(f"Node {node.name!r} has the kernel {kernel!r}, which has no number.")
    elif is_older(kernel, floor):
        yield refused(
            f"Node {node.name!r} runs kernel {kernel!r}, and {platform['name']!r} needs {floor} "
            f"({platform['kernel_floor']['source']}); deploy it, or install a newer kernel and "
            "reboot."
        )


# "version: 9842 (COMMIT)", and of later ones "version: 0.1.0-dev (build 10440, commit COMMIT)".
_BUILD = re.compile(r"^version: (?:.*\(build )?(\d+)", re.MULTILINE)
_PATH = DATA / "known_bad.toml"


@cache
def table() -> dict[str, dict[str, Any]]:
    """The known bad ones by name; raises InputError."""
    document: dict[str, dict[str, Any]] = read_toml(_PATH)
    check(document, "known-bad", str(_PATH))
    return document


def _targets(context: GateContext, node: Node) -> frozenset[str]:
    """The GPUs that the kernel sees; else the one that the platform is sold with."""
    seen = context.facts[node.name].hardware.targets
    sold = context.platform(node).get("gpu", {}).get("target")
    return seen or (frozenset([sold]) if sold else frozenset())


def _judge_known_bad(context: GateContext, node: Node) -> Iterator[Verdict]:
    facts = context.facts[node.name]
    for name, entry in table().items():
        if entry["gpu"] not in _targets(context, node):
            continue
        found = {what: holds(entry, facts) for what, holds in _CONDITIONS.items()}
        found["engine's build"] = _llama_cpp(entry, context, node)
        if False in found.values():
            continue
        lacking = [what for what, holds in found.items() if holds is None]
        if lacking:
            yield unknown(
                f"Node {node.name!r} does not report its {' nor its '.join(lacking)}, so whether "
                f"it is {name!r} is not known: {entry['reason']} ({entry['source']})."
            )
        else:
            yield refused(
                f"Node {node.name!r} has {_what(entry, context, node)}, known to be bad on "
                f"{entry['gpu']}: {entry['reason']} ({entry['source']}); {entry['fix']}."
            )


def _kernel(entry: Mapping[str, Any], facts: Facts) -> bool:
    if "kernel_from" not in entry:
        return True
    above = not is_older(facts.kernel, entry["kernel_from"])
    return above and is_older(facts.kernel, entry["kernel_before"])


def _firmware(entry: Mapping[str, Any], facts: Facts) -> bool | None:
    if "firmware_from" not in entry:
        return True
    release = facts.hardware.linux_firmware
    if not release:
        return None
    return not is_older(release, entry["firmware_from"]) and not is_older(
        entry["firmware_to"], release
    )


def _mes(entry: Mapping[str, object], facts: Facts) -> bool | None:
    if "mes" not in entry:
        return True
    seen = {gpu.mes for gpu in facts.hardware.gpus if gpu.mes}
    return entry["mes"] in seen if seen else None


def _build(context: GateContext, node: Node) -> int | None:
    found = _BUILD.search(context.answer("versions", node))
    return int(found[1]) if found else None


def _llama_cpp(entry: Mapping[str, Any], context: GateContext, node: Node) -> bool | None:
    """Of a case that names ROCm: whether a build has ROCm too is only seen when it starts."""
    if "llama_cpp_from" not in entry:
        return True
    case = context.case
    if case is None or case.engine != entry["engine"] or case.parameters.get("backend") != "rocm":
        return False
    build = _build(context, node)
    if build is None:
        return None
    return bool(entry["llama_cpp_from"] <= build < entry["llama_cpp_before"])


# Whether each condition of an entry holds of a node; None where the node does not report it.
_CONDITIONS: Mapping[str, Callable[[Mapping[str, Any], Facts], bool | None]] = {
    "kernel": _kernel,
    "linux-firmware release": _firmware,
    "MES firmware": _mes,
}


def _what(entry: Mapping[str, object], context: GateContext, node: Node) -> str:
    facts, parts = context.facts[node.name], []
    if "llama_cpp_from" in entry:
        parts.append(f"{entry['engine']} build {_build(context, node)}")
    if "kernel_from" in entry:
        parts.append(f"kernel {facts.kernel!r}")
    if "firmware_from" in entry:
        parts.append(f"linux-firmware {facts.hardware.linux_firmware!r}")
    if "mes" in entry:
        parts.append(f"MES firmware {entry['mes']:#x}")
    return " with ".join(parts)


if TYPE_CHECKING:
    from nixwulf.plugins.engines import Engine

_STORE = "/nix/store/"
_MARK = "nixwulf-engine:"


def _engines(context: GateContext, node: Node) -> list[Engine]:
    """The case's; without a case all that are on the node's PATH."""
    from nixwulf.plugins.engines import all_engines

    if context.engine is not None:
        return [] if context.engine.elsewhere else [context.engine]
    if context.case is not None:
        return []
    programs = context.facts[node.name].programs
    return [engine for engine in all_engines().values() if engine.version_command(programs)]


def _command(context: GateContext, node: Node) -> Sequence[str] | None:
    programs = context.facts[node.name].programs
    script = ""
    for engine in _engines(context, node):
        command = engine.version_command(programs)
        place = next((programs[name] for name in engine.programs if name in programs), None)
        if command and place:
            script += f"echo {shlex.quote(_MARK + engine.name)}; readlink -f {shlex.quote(place)}\n"
            script += f"{shlex.join(command)}\necho\n"
    return ["sh", "-c", script] if script else None


def _judge(context: GateContext, node: Node) -> Iterator[Verdict]:
    for engine in _engines(context, node):
        lacking = engine.missing(context.facts[node.name].programs)
        if lacking and context.engine is None:  # of a case the gate 'programs' reports it
            yield refused(
                f"Node {node.name!r} has a part of {engine.name} and lacks {lacking} on PATH; "
                f"deploy it or {context.installing(engine)}."
            )
        others = [other for other in context.nodes if engine in _engines(context, other)]
        yield from _compare(context, node, others[0], engine)
        text = _answer(context, node, engine.name)
        problem = upstream.problem(engine.name, text, _given(context))
        problem = problem or engine.build_problem(text, several=len(others) > 1)
        if problem:
            yield refused(f"Node {node.name!r} has {problem}")


def _given(context: GateContext) -> dict[str, str]:
    if context.case is None:
        return upstream.of_cluster(len(context.nodes))
    pairs = len(context.nodes) > len("ab")
    cables = pairs and any(c.rdma and c.fabric.link_prefix for c in context.crossings)
    return upstream.of_case(context.case) | ({"cables": "rdma"} if cables else {})


def _compare(context: GateContext, node: Node, first: Node, engine: Engine) -> Iterator[Verdict]:
    if node is first:
        return
    ours, theirs = (_build_of(context, each, engine.name) for each in (node, first))
    if not ours or not theirs:
        silent = (node if theirs else first).name
        yield unknown(f"{engine.name} prints no version on {silent!r}.")
    elif ours != theirs:
        yield refused(
            f"Node {node.name!r} has {engine.name} {ours!r} and {first.name!r} has {theirs!r}; "
            f"deploy both from one flake or {context.installing(engine)}."
        )


def _answer(context: GateContext, node: Node, engine: str) -> str:
    """What a node printed of an engine: the place of its program, then its version."""
    text = context.answer("versions", node)
    parts = (part.partition("\n") for part in f"\n{text}".split(f"\n{_MARK}")[1:])
    return next((lines.strip() for name, _, lines in parts if name == engine), "")


def _build_of(context: GateContext, node: Node, engine: str) -> str:
    """The version; the store path itself where every node has the same one."""
    own = _answer(context, node, engine)
    place, _, printed = own.partition("\n")
    answers = (_answer(context, other, engine) for other in context.nodes)
    if place.startswith(_STORE) and {text.partition("\n")[0] for text in answers} <= {place, ""}:
        return place
    lines = [line.strip() for line in printed.splitlines()]
    alone = len(lines) == 1 and re.search(r"\d\.\d", lines[0])
    return " ".join(line for line in lines if alone or "version" in line.lower())


GATES = (
    Gate(
        name="kernel",
        slows="nodes",
        holds="the kernel is not older than the platform's `kernel_floor`",
        reads="`/proc/sys/kernel/osrelease`",
        fix="install a newer kernel and reboot",
        concerns=lambda context, node: "kernel_floor" in context.platform(node),
        judge=_judge_kernel,
    ),
    Gate(
        name="known-bad",
        slows="nodes",
        holds="kernel, GPU firmware and an engine's ROCm build are not among `data/known_bad.toml`",
        reads="`osrelease`; the MES in `/sys/class/drm/*/device/fw_version`; the linux-firmware "
        "release that booted, which only nodes of this flake report",
        fix="take the kernel, firmware or build that the sentence names",
        concerns=lambda context, node: (
            not on_lab(node)
            and any(entry["gpu"] in _targets(context, node) for entry in table().values())
        ),
        judge=_judge_known_bad,
    ),
    Gate(
        name="versions",
        holds="all nodes have one build of an engine, of a version that has every word that the "
        "driver "
        "uses; without a case, of every engine on PATH",
        reads="the store path of its program (`readlink -f`), the version that it prints, and "
        "[the tables](versions.md)",
        fix="deploy all nodes from one flake, or install one version that the sentence names",
        # Images are named by digest, and so are one build.
        concerns=lambda context, node: (
            (context.case is None or context.case.image is None) and bool(_engines(context, node))
        ),
        judge=_judge,
        command=_command,
        systems=None,
    ),
)
