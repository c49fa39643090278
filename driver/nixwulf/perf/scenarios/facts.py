"""What is asked about: the model, and facts of a strategy's nodes, link and engine.

The model is a known name, a table of facts, a GGUF, or a folder of weights. The facts are as known,
as measured, or taken to be different. What-ifs: one fact taken to be another, as
'fabric.usb4.latency_us=7'.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, Final

from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import cache_dir, first_bytes, inside, read_json
from nixwulf.core.text import GIB, did_you_mean, some
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.inventory.platforms import gpu_vendor, load_platform
from nixwulf.llm import catalog, gguf, safetensors
from nixwulf.llm.catalog import find, is_known, only, weights_of
from nixwulf.llm.model_facts import NOT_OF_A_MODEL, ModelFacts, Sizes, Weights
from nixwulf.perf import inputs
from nixwulf.results.store import read_records
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_MOST_SHARDS = 400
_MOST_BYTES = 64 << 20  # of a config.json or a header
_NATIVE = 16.0
_FEW_BITS = "MXFP4"  # gpt-oss, with what is no expert in eight bits, as its GGUF has it
_LEAST_BITS, _MOST_BITS = 0.5, 40.0
_IMPOSSIBLE = 1e15


@dataclass(frozen=True)
class ModelDescription:
    """A model's shown name, its facts, and its sizes by layer where its files were read."""

    name: str
    facts: ModelFacts
    sizes: Sizes | None = None


def read_model(name: str, quant: str = "", size_gib: float = 0.0) -> ModelDescription:
    """The model of a name or path.

    name: of a known model, of a GGUF, a TOML file of facts, or a folder of safetensors. quant: may
    be empty where the name gives it. size_gib: of all its files, GiB; 0: unknown.

    Raises InputError: for what is not known or cannot be read, with what to give instead.
    """
    if not name.strip():
        raise InputError("The name of the model is empty; give one such as gpt-oss-20b, or a GGUF.")
    path = Path(name)
    if path.suffix == ".gguf" or path.is_dir():
        if quant or size_gib:
            raise InputError(
                f"{name!r} has its quantization in its header; leave --quant and --size-gib out."
            )
        return _of_gguf(path) if path.suffix == ".gguf" else _of_folder(path)
    if path.is_file() and path.suffix != ".toml":
        raise InputError(
            f"{name!r} is no GGUF and no TOML file of facts; give one, or the folder of the model."
        )
    if path.suffix != ".toml" and (known := _of_hub(name, quant, size_gib)):
        return known
    facts = only(path) if path.suffix == ".toml" else find(name)
    more = f" {quant}" if quant else f" of {size_gib:g} GiB" if size_gib else ""
    weights = _weights(name, facts, quant, size_gib)
    return ModelDescription(f"{facts.name}{more}" if more else name, facts.quantized(weights))


def _weights(name: str, facts: ModelFacts, quant: str, size_gib: float) -> Weights:
    if size_gib:
        bits = 8 * size_gib * GIB / facts.parameters
        if not _LEAST_BITS <= bits <= _MOST_BITS:
            raise InputError(
                f"--size-gib {size_gib:g} are {bits:.3g} bits for each of the weights of "
                f"{facts.name!r}; give the size of all of its files, in GiB."
            )
    try:
        return weights_of(quant or name, facts, size_gib)
    except InputError:
        if quant:
            raise
    # A model that was published in few bits is whole without a quantization in its name.
    own = facts.weights
    if own.other_bits < _NATIVE:
        assumption = f"{own.routed_bits:g} and {own.other_bits:g} bits a weight, as first published"
        return replace(own, assumptions=(assumption,))
    if own.routed_bits < _NATIVE:
        return weights_of(_FEW_BITS, facts)
    raise InputError(
        f"Model {name!r} names no quantization; give --quant such as Q4_K_M or FP8, "
        "or --size-gib, the size of its files."
    )


def _of_gguf(path: Path) -> ModelDescription:
    try:
        header = gguf.read(str(path), _first_bytes)
        return ModelDescription(path.stem, _possible(header.facts(path.stem)), header.sizes)
    except NOT_OF_A_MODEL:
        raise InputError(
            f"{str(path)!r} is no GGUF of a language model, or is cut short; give another file, "
            "or the model's name and --quant."
        ) from None


def _of_folder(folder: Path) -> ModelDescription:
    paths = sorted(map(str, folder.glob("*.safetensors")))
    if not paths:
        raise InputError(
            f"{str(folder)!r} holds no *.safetensors; give a folder with them and config.json, or "
            "a GGUF."
        )
    name = folder.resolve().name
    try:
        header = safetensors.read(paths, read_json(folder / "config.json"), _first_bytes)
        return ModelDescription(name, _possible(header.facts(name)), header.sizes)
    except NOT_OF_A_MODEL:
        raise InputError(
            f"{str(folder)!r} is no folder of a language model that can be read; give the model's "
            "name and --quant."
        ) from None


def _of_hub(name: str, quant: str, size_gib: float) -> ModelDescription | None:
    """Read a hub's unknown ORG/REPO, keeping config.json and headers; None for another name."""
    if not _REPOSITORY.fullmatch(name) or is_known(name):
        return None
    try:
        folder = inside(cache_dir() / "headers", name)
        if not folder.is_dir():
            _keep(name, folder)
        found = replace(_of_folder(folder), name=name)
    except (OSError, NixwulfError, *NOT_OF_A_MODEL):
        raise InputError(
            f"Model {name!r} is not known, and the hub gave no config.json and headers of it; "
            "give a GGUF, a folder with config.json and *.safetensors, or a TOML file of its facts."
        ) from None
    if quant or size_gib:
        weights = _weights(name, found.facts, quant, size_gib)
        return ModelDescription(name, found.facts.quantized(weights))
    return found


def _keep(name: str, folder: Path) -> None:
    """Put config.json and the headers alone of a repository's *.safetensors into a new folder."""
    found = catalog.look(name)
    files = sorted(file.name for file in found.files)
    shards = [one for one in files if one.endswith(".safetensors") and "/" not in one]

    def first(url: str, count: int) -> bytes:
        return catalog.read(url, _MOST_BYTES, first=count)

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as new:
        (Path(new) / "config.json").write_bytes(catalog.read(found.url("config.json"), _MOST_BYTES))
        for number, shard in enumerate(shards[:_MOST_SHARDS], 1):
            header = safetensors.header(found.url(shard), first)
            (Path(new) / f"{number:05}.safetensors").write_bytes(header)
        _of_folder(Path(new))  # what cannot be read is not kept
        Path(new).rename(folder)
        Path(new).mkdir()  # to be removed in its place


def _possible(facts: ModelFacts) -> ModelFacts:
    """The same; raises ValueError for counts that no model has, as bytes that were lost give."""
    counts = [getattr(facts, one.name) for one in fields(facts)]
    if not all(0 <= one < _IMPOSSIBLE for one in counts if isinstance(one, int | float)):
        raise ValueError("no model")
    return facts


def _first_bytes(path: str, count: int) -> bytes:
    try:
        return first_bytes(Path(path), count)
    except InputError as error:
        raise InputError(
            f"{error.message.removesuffix('.')}; give a GGUF, a folder of safetensors, or the name "
            "of a known model."
        ) from None


BANDWIDTH: Final = "memory_bandwidth_gbs"
KEYS: Mapping[str, tuple[str, ...]] = {
    "fabric": ("latency_us", "rtt_us", "bandwidth_gbps"),
    "platform": (BANDWIDTH, "compute_tflops", "memory_gib"),
    "engine": ("layer_us", "hop_us", "sync_us"),
}
"""What can be changed. latency_us is one way, rtt_us a round trip: twice of it."""
_ONE_WAY = "latency_us"
_FIELDS = {BANDWIDTH: "bandwidth_gbs", "compute_tflops": "tflops"}  # of PlatformFacts
# Far outside of what a machine can have, and still far from where numbers overflow.
_LEAST, _MOST = 1e-6, 1e9


@dataclass(frozen=True)
class WhatIf:
    """A fact of a group's member and the value that it is taken to have, in the key's unit."""

    group: str
    name: str
    key: str
    value: float

    @property
    def about(self) -> tuple[str, str, str]:
        """The fact: its group, name and key, a latency being half of a round trip."""
        return self.group, self.name, "rtt_us" if self.key == _ONE_WAY else self.key

    @property
    def text(self) -> str:
        """The what-if as it is given on the command line."""
        return f"{self.group}.{self.name}.{self.key}={self.value:g}"


def parse(text: str) -> WhatIf:
    """The what-if of a text GROUP.NAME.KEY=VALUE; raises InputError."""
    place, equals, number = text.partition("=")
    group, _, rest = place.strip().partition(".")
    name, _, key = rest.rpartition(".")
    if not (equals and name and key):
        raise InputError(
            f"What-if {quoted(text)} is not GROUP.NAME.KEY=VALUE; give one such as "
            "fabric.cable.latency_us=7 or platform.framework-desktop.memory_bandwidth_gbs=500."
        )
    if group not in KEYS:
        raise InputError(
            f"What-if {quoted(text)}: {quoted(group)} is unknown; {did_you_mean(group, KEYS)}"
        )
    if key not in KEYS[group]:
        raise InputError(
            f"What-if {quoted(text)}: a {group} has no {quoted(key)}; it has "
            f"{', '.join(KEYS[group])}."
        )
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and _LEAST <= value <= _MOST):
        raise InputError(
            f"What-if {quoted(text)}: {quoted(number)} is no number from {_LEAST:g} to {_MOST:g}; "
            f"give it alone, as in {place.strip()}=7."
        )
    return WhatIf(group, name, key, value)


def parse_all(texts: Iterable[str], names: Mapping[str, Sequence[str]]) -> tuple[WhatIf, ...]:
    """Parse what-ifs; raises InputError for two about one fact, and for names not in `names`."""
    found = tuple(map(parse, texts))
    for number, one in enumerate(found):
        if one.name not in names[one.group]:
            raise InputError(
                f"What-if {one.text!r}: there is no {one.group} {quoted(one.name)} in this "
                f"question; {did_you_mean(one.name, names[one.group])}"
            )
        for other in found[:number]:
            if one.about == other.about:
                raise InputError(
                    f"What-ifs {other.text!r} and {one.text!r} are about one fact; give one of "
                    "them."
                )
    return found


def of_platform(facts: inputs.PlatformFacts, what_ifs: Iterable[WhatIf]) -> inputs.PlatformFacts:
    """The facts with what is taken to be different; what was assumed of it is assumed no more."""
    for one in what_ifs:
        if (one.group, one.name) == ("platform", facts.name):
            changed: dict[str, Any] = {_FIELDS.get(one.key, one.key): one.value}
            changed |= {"assumptions": ()} if one.key == BANDWIDTH else {}
            facts = replace(facts, **changed)
    return facts


def of_link(fabric: str, what_ifs: Iterable[WhatIf]) -> dict[str, float]:
    """rtt_us and bandwidth_gbps of a fabric where they are taken to be different."""
    return {
        one.about[2]: 2 * one.value if one.key == _ONE_WAY else one.value
        for one in what_ifs
        if (one.group, one.name) == ("fabric", fabric)
    }


_LAB_TRIP_US = 20.0  # what the kernel takes where a fabric of the lab has no delay
_LAB_GBPS = 10.0


def platform(node: Node, changes: Sequence[WhatIf]) -> inputs.PlatformFacts:
    """Facts of a node, of its platform or its own; the bandwidth of its memory may be given."""
    name, own = node.platform, node.memory_bandwidth_gbs
    document = load_platform(name)
    if own:
        document = {**document, BANDWIDTH: {"value": own}}
        # Of a platform that lacks it, what is given is of the nodes that have none of their own.
        missing = (name, BANDWIDTH) if lacks(name, BANDWIDTH) else None
        changes = [one for one in changes if (one.name, one.key) != missing]
    elif lacks(name, BANDWIDTH):
        given = [one for one in changes if (one.name, one.key) == (name, BANDWIDTH)]
        if not given:
            raise InputError(
                f"Platform {name!r} has no memory bandwidth; give what was measured of it, GB/s: "
                f"--what-if platform.{name}.{BANDWIDTH}=60."
            )
        document = {**document, BANDWIDTH: {"value": given[0].value}}
    return of_platform(inputs.platform_facts(document), changes)


def lacks(name: str, key: str) -> bool:
    """Tell whether the platform's file lacks a fact that a what-if can give."""
    document = load_platform(name)
    if key == BANDWIDTH:
        return not {key, "memory_bandwidth_nominal_gbs"} & document.keys()
    # HPL measures it of a CPU.
    of_hpl = key == "compute_tflops" and kind_of(name) == "cpu" and "hpl_gflops" in document
    return key not in document and not of_hpl


def kind_of(platform: str) -> str:
    """Return the maker of the device that computes, or 'cpu'."""
    return gpu_vendor(platform) or "cpu"


def link(
    fabric: Fabric, transport: str, measured: Mapping[str, float], changes: Sequence[WhatIf]
) -> inputs.FabricFacts:
    """Facts of a fabric; measured: its rtt_us and bandwidth_gbps of TCP, valid for TCP alone."""
    known = dict(measured) if transport == "tcp" else {}
    known |= of_link(fabric.name, changes)
    return inputs.fabric_facts(fabric.kind, transport, fabric.speed_gbps, **known)


def constants(
    strategy: inputs.Strategy, model: ModelFacts, kind: str, changes: Sequence[WhatIf]
) -> inputs.Constants | None:
    """The constants of an engine with what-ifs about it; None: those that the model chooses."""
    if not any(one.group == "engine" for one in changes):
        return None
    known = inputs.choose(inputs.family(strategy, kind), kind).of(strategy, model)
    own = (one for one in changes if (one.group, one.name) == ("engine", strategy.engine))
    changed: dict[str, Any] = {one.key: one.value for one in own}
    return replace(known, **changed)


def stated_links(cluster: Cluster) -> dict[str, dict[str, float]]:
    """Return the round trips and rates that a lab's fabrics are made to have; else none."""
    if not cluster.is_lab:
        return {}
    return {
        name: {
            "rtt_us": _LAB_TRIP_US + 2 * (fabric.shape.delay_us if fabric.shape else 0.0),
            "bandwidth_gbps": (fabric.shape.rate_gbps if fabric.shape else None) or _LAB_GBPS,
        }
        for name, fabric in cluster.fabrics.items()
    }


def links_of(path: Path, cluster: Cluster) -> dict[str, dict[str, float]]:
    """Return medians of a cluster's TCP records by fabric; raises InputError for none."""
    seen: dict[str, list[tuple[float | None, float | None]]] = {}
    others = set()
    for record in read_records(path):
        name = record.get("fabric", {}).get("name")
        if record.get("cluster", {}).get("name") != cluster.name:
            others.add(str(record.get("cluster", {}).get("name")))
        elif name in cluster.fabrics:
            pair = (record_rtt_us(record), record_bandwidth_gbps(record))
            seen.setdefault(name, []).append(pair)
    found: dict[str, dict[str, float]] = {}
    for name, pairs in seen.items():
        for key, values in zip(("rtt_us", "bandwidth_gbps"), zip(*pairs, strict=True), strict=True):
            known = [value for value in values if value]
            if known:
                found.setdefault(name, {})[key] = median(known)
    if not found:
        whose = f" (its records are of {some(sorted(others))})" if others else ""
        raise InputError(
            f"{str(path)!r} has no measured link of the cluster {cluster.name!r}{whose}; name a "
            "run of this cluster on several nodes."
        )
    return found
