"""The model's inputs for a measured case, from its record and its machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import GIB, did_you_mean, plural
from nixwulf.inventory.platforms import Platform, load_platform, platform_names
from nixwulf.llm import gguf
from nixwulf.llm.catalog import find, weights_of
from nixwulf.llm.model_facts import ModelFacts, TensorSize
from nixwulf.llm.random_model import RandomModel, parse_random_model
from nixwulf.perf import inputs
from nixwulf.plugins.engines import DEFAULT, all_engines
from nixwulf.plugins.runtime.run import servers_of
from nixwulf.plugins.runtime.upstream import number
from nixwulf.results.record import Record
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us, waiting_us

_MOST_NODES = 1024
_MACHINES = DATA / "model" / "machines.toml"
_N_GEN = 128
_BANDWIDTH: Final = "memory_bandwidth_gbs"
_PLACED = re.compile(r": (\d{1,12}\.\d) MiB")
_TOO_MANY = 2**40
# Names count parameters with and without embeddings, heads that draft, and encoders of images.
_ALIKE = 0.12
_UNITS = {"B": 1e9, "M": 1e6, "GiB": GIB, "MiB": GIB / 1024}
_DECIMAL = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_GUESSES = ("speculative", "drafts", "num_speculative_tokens", "draft")
_BY_NAME = {"ethernet": "ethernet", "roce": "roce", "infiniband": "infiniband"}
_NONE = (None, False, 0, "", "off", "no", "none")


@cache
def facts_of(name: str) -> Platform | None:
    """Find a machine's facts, as a platform's file has them; None where nobody gave any."""
    if name in platform_names():
        return load_platform(name)
    for machine in read_toml(_MACHINES)["machines"]:
        if machine["name"] == name:
            own: Platform | None = machine.get("facts")
            return own or load_platform(machine["platforms"][0])
    return None


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run, as far as predictions need it; empty where a record has none.

    random: the models that the driver made, by name. bandwidths: of the nodes' memory, GB/s, where
    the cluster file has them. fabrics: name, kind, nominal Gbit/s and number of nodes of each.
    """

    cluster_file: str = ""
    random: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    bandwidths: Mapping[str, float] = field(default_factory=dict)
    fabrics: tuple[tuple[str, str, float, int], ...] = ()


def run_plan(document: Mapping[str, Any] | None) -> RunPlan:
    """Read a plan's document; None gives an empty one."""
    if not document:
        return RunPlan()
    cluster, models = document.get("cluster", {}), document["sweep"]["document"].get("models", {})
    described = cluster.get("document", {})
    nodes = described.get("nodes", ())
    on_nodes = [node.get("fabrics", ()) for node in nodes]
    return RunPlan(
        cluster.get("source", ""),
        {name: one["random"] for name, one in models.items() if one.get("random") is not None},
        {one["name"]: one[_BANDWIDTH] for one in nodes if one.get(_BANDWIDTH)},
        tuple(
            (key, one["kind"], one.get("speed_gbps", 0.0), sum(key in each for each in on_nodes))
            for key, one in described.get("fabrics", {}).items()
        ),
    )


@dataclass(frozen=True)
class CaseInputs:
    """A case as the model sees it; platforms is None for machines without facts of their own."""

    model: ModelFacts
    fabric: inputs.FabricFacts | None
    platforms: tuple[inputs.PlatformFacts, ...] | None
    nodes: int
    engine: str
    parallelism: str
    version: str = ""
    backend: str = ""
    age: float = 0.0
    shares: tuple[float, ...] = ()

    def strategy(self, conditions: Mapping[str, object]) -> inputs.Strategy:
        """Return a metric's strategy; raises InputError for what the model does not cover."""
        _no_guesses(conditions)
        return inputs.Strategy(
            self.engine,
            self.parallelism,
            n_prompt=_count(conditions, "n_prompt"),
            n_gen=_count(conditions, "n_gen") or _N_GEN,
            depth=_count(conditions, "n_depth"),
            batch=batch(conditions),
            chunk=_count(conditions, "n_ubatch"),
            version=self.version,
            backend=self.backend,
            age=self.age,
            shares=self.shares,
        )


def _no_guesses(parameters: Mapping[str, object]) -> None:
    for key in _GUESSES:
        if parameters.get(key) not in _NONE:
            raise InputError(
                "It decodes speculatively, and the number of accepted tokens is missing."
            )


def batch(conditions: Mapping[str, object]) -> int:
    """Sequences at once; raises InputError where that is no number."""
    return _count(conditions, "concurrency") or 1


def _count(conditions: Mapping[str, object], key: str) -> int:
    """A condition is as a tool or a source states it."""
    value = conditions.get(key) or 0
    if not isinstance(value, int | float) or not 0 <= value < _TOO_MANY or int(value) != value:
        raise InputError(f"The record has {key} {value!r}, which is no count.")
    return int(value)


def subject_of(record: Record, plan: RunPlan) -> CaseInputs:
    """Make a record's inputs; raises InputError, a sentence that names what is missing."""
    case = record["case"]
    if missing := [key for key in ("engine", "model") if key not in case]:
        options = " and ".join(f"--{key}" for key in missing)
        raise InputError(
            f"The record names no {' and no '.join(missing)}, without which no speed is predicted; "
            f"import its output again with {options}."
        )
    known = all_engines().get(case["engine"])
    if known and known.elsewhere:
        raise InputError(
            f"The record is of a server that somebody else started ({case['engine']}): with which "
            "weights, options and nodes is not known, so that nothing of it is predicted."
        )
    if (servers := servers_of(case)) > 1:
        what = plural(case["nodes"] // servers, "node")
        raise InputError(
            f"The record is of replicas, each a server of {what}; explain a run of {what}."
        )
    _no_guesses(case.get("parameters", {}))
    version = record.get("engine", {}).get("version", "")
    # Of an engine without a day of its own when it was run or published, as far as that is stated.
    day = record.get("started") or record.get("source", {}).get("date", "")
    return CaseInputs(
        _model(record, plan),
        fabric_of(record),
        _platforms(record, plan),
        case["nodes"],
        case["engine"],
        case.get("parallelism", "single"),
        version,
        record.get("engine", {}).get("backends", "").partition(",")[0].lower(),
        inputs.age_of(inputs.day_of(version, day)),
        _shares(record),
    )


def newer_than_fitted(record: Record) -> str:
    """A sentence where a record's build is newer than any that was fitted; empty where not."""
    version, known = record.get("engine", {}).get("version", ""), inputs.newest()[DEFAULT]
    of_default = record["case"].get("engine") == DEFAULT and version.startswith("b")
    if not of_default or number(version) <= number(known):
        return ""
    return f"{DEFAULT} {version} is newer than any build that was fitted, {known} at most."


def _shares(record: Record) -> tuple[float, ...]:
    """Return shares of the weights by node, as the engine placed them; empty if unknown."""
    sizes = [float(size) for size in _PLACED.findall(record.get("engine", {}).get("placed", ""))]
    if len(sizes) != record["case"]["nodes"] or not sum(sizes):
        return ()
    return tuple(size / sum(sizes) for size in sizes)


def _model(record: Record, plan: RunPlan) -> ModelFacts:
    name: str = record["case"]["model"]
    described: Mapping[str, Any] = record.get("model", {})
    if name in plan.random:
        random = parse_random_model(plan.random[name], name)
        return facts_of_random(name, random, described.get("bytes", 0))
    if described.get("random_weights"):
        # Without a plan, as of the examples that come with the driver: one of the usual layers.
        usual = RandomModel(described.get("architecture", "llama"))
        if usual.parameters == described.get("parameters"):
            return facts_of_random(name, usual, described.get("bytes", 0))
        raise InputError(
            f"The record lacks the layers of the random model {name!r}, which plan.json of its run "
            "has; name the run's folder."
        )
    found = None
    for text in (described.get("hub"), described.get("file"), described.get("name"), name):
        try:
            found = find(str(text)) if text else None
        except InputError:
            continue
        if found:
            break
    if found is None:
        again = "; import it with --model NAME" if record["kind"] == "imported" else ""
        raise InputError(
            f"The model {name!r} is not known by that name: driver/nixwulf/data/model/models.toml "
            f"lacks it{again}."
        )
    label = described.get("weights") or f"{described.get('file', '')} {name}".strip()
    size = (described.get("bytes") or _stated(described.get("size", ""))) / GIB
    found = _pruned(found, described.get("parameters") or _stated(described.get("params", "")))
    try:
        return found.quantized(weights_of(label, found, size))
    except InputError:
        if size:
            raise
        raise InputError(
            f"The record lacks the quantization of {name!r} and the size of its files."
        ) from None


def _stated(text: str) -> float:
    """Read '78.80 GiB' or '138.80 B', as in llama.cpp's tables: bytes or parameters."""
    number, _, unit = text.partition(" ")
    return float(number) * _UNITS[unit] if unit in _UNITS and _DECIMAL.fullmatch(number) else 0


def _pruned(model: ModelFacts, stated: float) -> ModelFacts:
    """A model by as many parameters as its record states: experts are what is taken away.

    Raises InputError where it is another model than the one of that name.
    """
    missing = model.parameters - stated
    if not stated or abs(missing) <= _ALIKE * model.parameters:
        return model
    kept = round(model.experts * (model.routed - missing) / model.routed) if model.routed else 0
    if not model.experts_used < kept < model.experts:
        raise InputError(
            f"The record states {stated / 1e9:.4g} B parameters, and {model.name} has "
            f"{model.parameters / 1e9:.4g} B: it is another model; import it with its own --model."
        )
    said = f"{kept} of its {model.experts} experts, by the {stated / 1e9:.4g} B of the record"
    return replace(
        model,
        parameters=stated,
        routed=model.routed - missing,
        experts=kept,
        assumptions=(*model.assumptions, said),
    )


@cache  # the runs of a sweep share it
def facts_of_random(name: str, model: RandomModel, size: int) -> ModelFacts:
    """Size a model by the tensors that the driver writes; size is that of the file."""
    if not size:
        raise InputError(f"The record lacks the bytes of the model {name!r}.")
    bytes_each = size / model.parameters
    tensors = {
        tensor.name: TensorSize(int(tensor.size * bytes_each), tensor.size)
        for tensor in model.tensors()
    }
    sizes = {
        "block_count": model.layers,
        "embedding_length": model.hidden,
        "attention.head_count": model.heads,
        "attention.head_count_kv": model.kv_heads,
        "expert_count": model.experts,
        "expert_used_count": model.experts_used,
    }
    fields: dict[str, object] = {f"{model.architecture}.{key}": one for key, one in sizes.items()}
    fields["general.architecture"] = model.architecture
    return gguf.interpret(fields, tensors).facts(name)


def _platforms(record: Record, plan: RunPlan) -> tuple[inputs.PlatformFacts, ...] | None:
    """Return facts of each node; None where a platform was never measured, as the lab's."""
    count = int(record["case"]["nodes"])  # JSON's 2.0 is an integer
    if count > _MOST_NODES:
        raise InputError(f"The record has {count} nodes; at most {_MOST_NODES} are predicted.")
    names = [node["platform"] for node in record.get("nodes", ())]
    cluster = record.get("cluster", {})
    platforms = list(cluster.get("platforms", ()))
    if not names:
        names = platforms * count if len(platforms) == 1 else platforms
    if len(names) != count:
        raise InputError(
            f"The record names {len(names)} platforms for {count} nodes; it takes one for each, "
            "or one for all."
        )
    documents = []
    nodes = [node.get("name", "") for node in record.get("nodes", ())] or [""] * count
    for name, node in zip(names, nodes, strict=True):
        document = facts_of(name)
        if document is None:
            raise InputError(
                f"The platform {name!r} is not known; {did_you_mean(name, platform_names())}"
            )
        if node in plan.bandwidths:
            document = {**document, _BANDWIDTH: {"value": plan.bandwidths[node]}}
        documents.append(document)
    bandwidths = {_BANDWIDTH, "memory_bandwidth_nominal_gbs"}
    if not all(bandwidths & document.keys() for document in documents):
        return None
    return tuple(map(inputs.platform_facts, documents))


def fabric_of(record: Record) -> inputs.FabricFacts | None:
    """Round trips and streams of the run are TCP's, and not valid for RDMA; lost packets wait."""
    case, fabric = record["case"], record.get("fabric", {})
    if case["nodes"] == 1:
        return None
    transport = case.get("transport")
    kind = fabric.get("kind") or _BY_NAME.get(fabric.get("name", "").partition("-")[0], "")
    if not kind or not transport:
        raise InputError("The record lacks the kind of its fabric or the transport.")
    if kind == "ethernet" and transport == "rdma":
        kind = "roce"
    tcp = transport == "tcp"
    rtt = record_rtt_us(record) if tcp else None
    return inputs.fabric_facts(
        kind,
        transport,
        fabric.get("speed_gbps", 0.0),
        rtt_us=rtt + waiting_us(record) if rtt else None,
        bandwidth_gbps=record_bandwidth_gbps(record) if tcp else None,
    )
