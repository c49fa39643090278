"""Sweeps, read from YAML, and their plans: the cases on a cluster, and why others were left out."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_input, read_yaml, require_no_links, write_json
from nixwulf.core.query import matches, parse_query
from nixwulf.core.registry import Parameter, parameters_of
from nixwulf.core.schema import check
from nixwulf.core.secrets import HIDDEN
from nixwulf.core.text import as_typed, did_you_mean
from nixwulf.inventory.cluster import Cluster, parse_cluster
from nixwulf.inventory.platforms import is_macos
from nixwulf.llm import Model, parse_model
from nixwulf.nodes import container
from nixwulf.perf.scenarios.candidates import LeftOut, Placement, placements
from nixwulf.plugins import benchmarks, engines, gates, meters, switches
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.plugins.runtime.case import Case, Limits
from nixwulf.results.record import sealed
from nixwulf.results.store import read_plan

SEED = 1
"""Of the random numbers of a case, where a sweep gives none."""


@dataclass(frozen=True)
class Sweep:
    """What to run. Each block (the matrix, then the includes) is a product of its axes.

    long_prompts: whether texts are judged on them too.
    """

    name: str
    description: str
    models: dict[str, Model]
    blocks: tuple[dict[str, Any], ...]
    exclude: tuple[dict[str, Any], ...]
    repetitions: int
    samples: int
    warm_up: bool
    seed: int
    limits: Limits
    recover_after_hang: bool
    long_prompts: bool
    source: str
    document: dict[str, Any]
    expect: tuple[dict[str, Any], ...] = ()

    def model(self, name: str) -> Model:
        """The model of a name, the first of an empty one, or of a path; raises InputError."""
        if name.startswith("/"):
            return parse_model(name, {"path": name}, self.source)
        if name and name not in self.models:
            raise InputError(
                f"{self.source}: the model {name!r} is not among models: {', '.join(self.models)}."
            )
        return self.models[name or next(iter(self.models))]

    @property
    def toolboxes(self) -> set[str]:
        """Those that its cases name."""
        given = (block.get("parameters", {}).get(container.NAME, ()) for block in self.blocks)
        return {str(name) for names in given for name in names}


def load_sweep(name_or_path: str | Path) -> Sweep:
    """The sweep of a YAML file, or of sweeps/NAME.yaml; raises InputError."""
    path = find_input(str(name_or_path), "sweeps", ".yaml")
    return parse_sweep(read_yaml(path), str(path))


def parse_sweep(document: Any, source: str) -> Sweep:
    """The sweep of a document; raises InputError when it breaks the schema or names no model."""
    check(document, "sweep", source)
    models = {
        name: parse_model(name, values, f"{source}: models.{name}")
        for name, values in document.get("models", {}).items()
    }
    parsers = {speculation.DRAFT: speculation.as_text}
    blocks = tuple(
        passthrough.as_texts(block, source, parsers)
        for block in (document["matrix"], *document.get("include", ()))
    )
    points = document.get("exclude", ())
    exclude = tuple(passthrough.as_texts(point, source, parsers) for point in points)
    for block in (*blocks, *exclude):
        used = block.get("model", [])
        for name in [used] if isinstance(used, str) else used:
            if name not in models:
                raise InputError(
                    f"{source}: the model {name!r} is not among models; "
                    f"{did_you_mean(name, models)}"
                )
        _check_drafts(block.get("parameters", {}), models, source)
    return Sweep(
        name=document["name"],
        description=document.get("description", ""),
        models=models,
        blocks=blocks,
        exclude=exclude,
        repetitions=document.get("repetitions", 1),
        samples=document.get("samples", 3),
        warm_up=document.get("warm_up", True),
        seed=document.get("seed", SEED),
        limits=Limits(**document.get("limits", {})),
        recover_after_hang=document.get("on_hang") == "recover",
        long_prompts=document.get("sanity") != "short",
        source=source,
        document=document,
        expect=tuple(document.get("expect", ())),
    )


def _check_drafts(given: dict[str, Any], models: dict[str, Model], source: str) -> None:
    """Refuse a draft that is no model: a case would fail long after the sweep began."""
    drafts = given.get(speculation.DRAFT, [])
    for value in drafts if isinstance(drafts, list) else [drafts]:
        name = speculation.draft_model({speculation.DRAFT: value})
        if name and name not in models and not name.startswith("/"):
            raise InputError(
                f"{source}: the draft {name!r} is none of {speculation.NONE}, {speculation.NGRAM}, "
                f"{speculation.MTP} and not among models: {', '.join(models)}; add it there, or "
                "give its path on the nodes."
            )


SCHEMA_VERSION = "1.1"
COORDINATES = ("engine", "benchmark", "model", "nodes", "fabric", "transport", "parallelism")
"""Of a point of a sweep, beside its parameters."""
OF_EVERY_ENGINE = parameters_of("every engine")
"""Parameters that each engine has beside its own."""
MOST_POINTS = 10_000
_MOST_REASONS = 10
_LOGIN = re.compile(r"://[^/]*@")


@dataclass(frozen=True)
class Baseline:
    """Cases of a sweep that the others are compared with; over: what they differ in."""

    ids: frozenset[str]
    over: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What will run, decided before anything does."""

    sweep: Sweep
    cluster: Cluster
    only: str
    waived: tuple[str, ...]
    cases: tuple[Case, ...]
    left_out: tuple[LeftOut[dict[str, Any]], ...]

    def runs(self) -> Iterator[tuple[Case, int]]:
        """Every run in order: passes over all cases, so that cases compared are interleaved.

        Each pass is the other way round than the one before: machines that slowly heat up, or cool
        down, then do so alike for all cases.
        """
        for repetition in range(self.sweep.repetitions):
            for case in self.cases if repetition % 2 == 0 else self.cases[::-1]:
                yield case, repetition

    def baseline(self, query: str) -> Baseline:
        """The cases of a query, to compare the others with; raises InputError where that fails."""
        terms = parse_query(query, _keys(self.cases))
        over = tuple(dict.fromkeys(term.key for term in terms))
        chosen = frozenset(case.id for case in _chosen(self.cases, query))
        rest: list[list[str]] = [[], []]
        for case in self.cases:
            asked = {**case.document(), **_parameters(case)}
            kept = {key: asked[key] for key in asked.keys() - {"id", "parameters", *over}}
            rest[case.id not in chosen].append(json.dumps(kept, sort_keys=True))
        if not set(rest[0]) & set(rest[1]):
            raise InputError(
                f"--baseline {query!r}: {len(chosen)} of the sweep's {len(self.cases)} cases are "
                f"so, and none of the others differs from one in {', '.join(over)} alone; name a "
                "run folder, or a value of a key of which the sweep has two."
            )
        if any(len(set(side)) < len(side) for side in rest):
            raise InputError(
                f"--baseline {query!r} leaves several values of {', '.join(over)} on a side; "
                "choose one for each with --only."
            )
        return Baseline(chosen, over)

    def document(self) -> dict[str, Any]:
        """The plan as it is saved."""
        return sealed(
            {
                "schema_version": SCHEMA_VERSION,
                "sweep": {"source": self.sweep.source, "document": self.sweep.document},
                "cluster": {"source": self.cluster.source, "document": self.cluster.document},
                **({"only": self.only} if self.only else {}),
                **({"waived": list(self.waived)} if self.waived else {}),
                "repetitions": self.sweep.repetitions,
                "cases": [case.document() for case in self.cases],
                "left_out": [{"case": left.what, "reason": left.reason} for left in self.left_out],
            }
        )


def make_plan(sweep: Sweep, cluster: Cluster, only: str = "", waived: Sequence[str] = ()) -> Plan:
    """Expand a sweep on a cluster; `only` is a query that a case has to meet, empty for all.

    Raises InputError: for unknown names, or when no case is left.
    """
    waived = gates.known_names(waived)
    meters.require_known(cluster)
    switches.require_known(cluster)
    cases, left_out = _possible(sweep, cluster)
    chosen, refused = cases, left_out
    if only:
        chosen = _chosen(cases, only)
        terms = parse_query(only, _keys(cases))
        refused = tuple(o for o in refused if matches(terms, {**o.what["parameters"], **o.what}))
    if not chosen:
        what = f"--only {only!r} leaves" if only and cases else "the sweep yields"
        reasons = [f"{reason} ({count})" for reason, count in by_reason(refused).items()]
        more = ["..."] if len(reasons) > _MOST_REASONS else []
        why = "; ".join(reasons[:_MOST_REASONS] + more)
        raise InputError(
            f"{sweep.source}: {what} no case on cluster {cluster.name!r}{why and f': {why}'}."
        )
    return Plan(sweep, cluster, only, waived, chosen, left_out)


def _keys(cases: Iterable[Case]) -> frozenset[str]:
    """What a query may ask of these cases."""
    return frozenset(COORDINATES) | {key for case in cases for key in _parameters(case)}


def _parameters(case: Case) -> dict[str, Any]:
    """Of a case, with those that it lacks because they are the default."""
    return _left_out(known_parameters(case.benchmark, case.engine, "")) | case.parameters


def _left_out(known: Mapping[str, Parameter]) -> dict[str, Any]:
    """The values with which a parameter is not in a case, by its name."""
    return {key: one.default for key, one in known.items() if one.omitted}


def _chosen(cases: Sequence[Case], query: str) -> tuple[Case, ...]:
    terms = parse_query(query, _keys(cases))
    return tuple(case for case in cases if matches(terms, {**_parameters(case), **case.document()}))


def _possible(
    sweep: Sweep, cluster: Cluster
) -> tuple[tuple[Case, ...], tuple[LeftOut[dict[str, Any]], ...]]:
    """The points of a sweep that are cases on a cluster, and those that are none."""
    cases: dict[str, Case] = {}
    left_out: list[LeftOut[dict[str, Any]]] = []
    excluded = [{**one, **one.get("parameters", {})} for one in sweep.exclude]
    for conditions in excluded:
        conditions.pop("parameters", None)
    for point, placement in _points(sweep, cluster):
        reason = _excluded(point, excluded) or impossible(
            point, placement, cluster, sweep.models.get(point.get("model", ""))
        )
        if reason:
            left_out.append(LeftOut(point, reason))
        else:
            case = _case(point, sweep, cluster)
            cases.setdefault(case.id, case)
    return tuple(cases.values()), tuple(left_out)


def by_reason(left_out: Iterable[LeftOut[dict[str, Any]]]) -> dict[str, int]:
    """How many points were left out for each reason, the most first."""
    return dict(Counter(left.reason for left in left_out).most_common())


def save_plan(plan: Plan, path: Path) -> None:
    """Write the plan atomically."""
    document = plan.document()
    check(document, "plan", str(path))
    write_json(path, document)


def load_plan(path: Path) -> Plan:
    """The plan of a run's folder; raises InputError when it was edited or no longer holds."""
    document = read_plan(path)
    sweep = parse_sweep(document["sweep"]["document"], document["sweep"]["source"])
    cluster = parse_cluster(document["cluster"]["document"], document["cluster"]["source"])
    plan = make_plan(sweep, cluster, document.get("only", ""), document.get("waived", ()))
    if plan.document()["cases"] != document["cases"]:
        raise InputError(
            f"{path}: this version of nixwulf plans other cases than the one that started the run; "
            "resume it with that version, or start a new run."
        )
    return plan


def resuming(plan: Plan, folder: Path, verb: str = "bench") -> str:
    """The command line that goes on with a plan that this user has started, or agrees to."""
    consent = " --allow-commands" if _commands(plan) else ""
    return f"nixwulf {verb} --resume {shlex.quote(str(folder))}{consent}"


def _commands(plan: Plan) -> list[str]:
    """What a plan itself runs on this machine, not on its nodes."""
    switches = [node.power_switch for node in plan.cluster.nodes if node.power_switch]
    used = switches if plan.sweep.recover_after_hang else []
    return list(dict.fromkeys(shlex.join(switch.command) for switch in used if switch.command))


def plan_to_resume(
    folder: Path, named: Plan | None, *, allow_commands: bool = False, verb: str = "bench"
) -> Plan:
    """The plan of a run's folder, which somebody else may have written.

    named: the plan that the command line gives, of the user's own files; None: it gives none.
    allow_commands: whether the plan may run commands on this machine that no such file has.

    Raises InputError: it is another one than the command line names, or has commands of its own, or
    the folder has a link.
    """
    require_no_links(folder)
    path = folder / "plan.json"
    if not path.exists():
        raise InputError(
            f"{str(folder)!r} is not the folder of a run: it has no plan.json; name one that "
            "'nixwulf bench' printed at its end, or start a run without --resume."
        )
    kept = load_plan(path)
    if named is not None and named.document()["digest"] != kept.document()["digest"]:
        raise InputError(
            f"{str(folder)!r} was started with another plan than this command line gives; resume "
            f"it with {as_typed('bench', '--resume', folder)} alone, or start a new run with --out."
        )
    if named is None and not allow_commands and (commands := _commands(kept)):
        raise InputError(
            f"{path} runs on this machine, after a hang, {', '.join(map(repr, commands))} "
            "(power_switch of its cluster); if that is yours, go on with "
            f"'{resuming(kept, folder, verb)}'."
        )
    return kept


def _pairs(block: dict[str, Any], sweep: Sweep, cluster: Cluster) -> list[tuple[str, str | None]]:
    """Benchmarks of a block with each engine, None for one of the machines; raises InputError."""
    for engine in block.get("engine", ()):
        engines.find(engine, sweep.source)
    for fabric in block.get("fabric", ()):
        if fabric not in cluster.fabrics:
            raise InputError(
                f"{sweep.source}: the fabric {fabric!r} is not in {cluster.source}, which has: "
                f"{', '.join(cluster.fabrics)}; leave fabric out to take all."
            )
    found: list[tuple[str, str | None]] = []
    for name in block.get("benchmark", [engines.find(engines.DEFAULT).native_benchmark]):
        machines = _of_machines(name, block, sweep.source)
        own = [None] if machines else block.get("engine", [engines.DEFAULT])
        found += [(name, engine) for engine in own]
    return found


def _points(sweep: Sweep, cluster: Cluster) -> Iterator[tuple[dict[str, Any], Placement]]:
    """Every point of every block, complete, each once, with its placement."""
    seen: set[str] = set()
    count = 0
    for block in sweep.blocks:
        pairs = _pairs(block, sweep, cluster)
        known = [known_parameters(name, engine, sweep.source) for name, engine in pairs]
        given = block.get("parameters", {})
        _check_parameters(given, known, sweep.source)
        for (name, engine), own in zip(pairs, known, strict=True):
            parameters = {key: given.get(key, [known.default]) for key, known in own.items()}
            found = [
                place
                for nodes, fabrics in _counts(block, cluster)
                for place in placements(
                    [nodes],
                    fabrics,
                    block.get("transport", ["tcp"]),
                    block["parallelism"] if engine else [None],
                )
            ]
            models = block["model"] if engine else [None]
            unsaid = _left_out(own)
            count += len(models) * len(found) * math.prod(map(len, parameters.values()))
            if count > MOST_POINTS:
                raise InputError(
                    f"{sweep.source}: the product of its axes is more than {MOST_POINTS} points; "
                    "take fewer values, or make several sweeps of it."
                )
            for model, place, *values in itertools.product(models, found, *parameters.values()):
                coordinates = {"engine": engine, "model": model, **asdict(place), "benchmark": name}
                point = {key: value for key, value in coordinates.items() if value is not None}
                point["parameters"] = {
                    name: value
                    for name, value in zip(parameters, values, strict=True)
                    if name not in unsaid or value != unsaid[name]
                }
                key = json.dumps(point, sort_keys=True)
                if key not in seen:
                    seen.add(key)
                    yield point, place


def _counts(block: Mapping[str, Any], cluster: Cluster) -> Iterator[tuple[int, Sequence[str]]]:
    """The numbers of nodes of a block, each with the fabrics between them."""
    fabrics = block.get("fabric")
    for count in block.get("nodes", ()):
        shared = [name for name in cluster.fabrics if cluster.joined(name, count)]
        # Where none joins so many, all are left out with the reason.
        yield count, fabrics or shared or [*cluster.fabrics]
    if "nodes" not in block:
        for fabric in fabrics or cluster.fabrics:
            on_it = range(len(cluster.nodes_on(fabric)), 0, -1)
            yield next((n for n in on_it if cluster.joined(fabric, n)), 1), [fabric]
        if not cluster.fabrics:
            yield 1, []


def _of_machines(benchmark: str, block: dict[str, Any], source: str) -> bool:
    """Whether a benchmark measures the machines; what measures an engine needs more axes."""
    if benchmarks.find(benchmark, source).engines == ():
        return True
    for key in ("model", "nodes", "parallelism"):
        if key not in block:
            raise InputError(f"{source}: {benchmark!r} measures an engine; add {key}: [...].")
    return False


def known_parameters(benchmark: str, engine: str | None, source: str) -> dict[str, Parameter]:
    """The parameters of a benchmark and of the engine that it measures; no two have one name."""
    found = benchmarks.find(benchmark, source)
    others: Mapping[str, Parameter] = {}
    if engine:
        others = {**engines.find(engine, source).parameters, **OF_EVERY_ENGINE}
    for key in found.parameters.keys() & others.keys():
        if found.engines is None or engine in found.engines:
            raise InputError(
                f"The benchmark {benchmark!r} and the engine {engine!r} both have a parameter "
                f"{key!r}; rename one."
            )
    return {**found.parameters, **others}


def _check_parameters(
    given: dict[str, list[Any]], known: list[dict[str, Parameter]], source: str
) -> None:
    """Refuse what no benchmark and no engine of the block knows, and values that do not fit."""
    for key, values in given.items():
        owners = [parameters[key] for parameters in known if key in parameters]
        if not owners:
            names = dict.fromkeys(name for parameters in known for name in parameters)
            raise InputError(
                f"{source}: no benchmark or engine of the block has a parameter {key!r}; "
                f"{did_you_mean(key, names)}"
            )
        for value in values:
            expected = next(filter(None, (owner.problem(value) for owner in owners)), None)
            if expected:
                shown = _LOGIN.sub(f"://{HIDDEN}@", value) if isinstance(value, str) else value
                raise InputError(
                    f"{source}: the parameter {key!r} is {shown!r}, expected {expected}."
                )


def _excluded(point: dict[str, Any], excluded: Iterable[dict[str, Any]]) -> str | None:
    flat = {**point, **point["parameters"]}
    for conditions in excluded:
        if all(flat.get(key) == value for key, value in conditions.items()):
            words = ", ".join(f"{key} {value}" for key, value in conditions.items())
            return f"the sweep excludes {words}"
    return None


def impossible(
    point: Mapping[str, Any], placement: Placement, cluster: Cluster, model: Model | None
) -> str | None:
    """Why a cluster cannot run a point of a sweep, or None; model None: machines are measured."""
    benchmark = benchmarks.find(point["benchmark"])
    if problem := placement.problem(cluster):
        return problem
    if benchmark.linux_only and any(
        is_macos(node.platform) for node in placement.nodes_of(cluster)
    ):
        return f"{benchmark.name} runs on Linux only, not on Macs"
    if benchmark.engines and point["engine"] not in benchmark.engines:
        return f"{benchmark.name} measures {', '.join(benchmark.engines)} only"
    if model:
        engine = engines.find(point["engine"])
        if model.id and not engine.hub_models:
            return f"{engine.name} reads a file, not a model by its name on Hugging Face"
        known = {**point, "random": model.random, "shape": model.shape}
        known["served"] = model.served or model.id if engine.elsewhere else model.served
        reason = placement.refusal(engine, cluster, placement.nodes_of(cluster), known)
        if reason:
            return reason
    return benchmark.unsupported({**point, **placement.crossing(cluster)})


def _case(point: dict[str, Any], sweep: Sweep, cluster: Cluster) -> Case:
    toolbox = point["parameters"].get(container.NAME)
    axes: dict[str, Any] = {key: point.get(key) for key in COORDINATES}
    return Case(
        **axes,
        parameters=point["parameters"],
        seed=sweep.seed,
        samples=sweep.samples,
        warm_up=sweep.warm_up,
        model_digest=_digest(point, sweep) if "model" in point else None,
        image=container.resolve(toolbox, sweep.source, cluster.source) if toolbox else None,
    )


def _digest(point: Mapping[str, Any], sweep: Sweep) -> str:
    """Of the model's definition, and behind it that of a model that drafts for it."""
    names = (point["model"], speculation.draft_model(point["parameters"]))
    return " ".join(sweep.model(name).digest for name in names if name)
