"""Every strategy to run a model on a cluster for a goal, each with its case of a sweep.

Those that no sweep has a case of, or that fit nowhere, are left out with the reason. Also the model
that is to be run (where the nodes have it, and its facts), the goals (what the best strategy is
best at, and which metric of a record measures it), and facts that nobody knows of a platform, as of
the lab: assumed until a strategy is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, log, sqrt
from pathlib import Path, PurePosixPath

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.query import grouped
from nixwulf.core.text import plural
from nixwulf.inventory.cluster import Cluster
from nixwulf.inventory.platforms import load_platform
from nixwulf.llm import Model, gguf, parse_model
from nixwulf.llm.catalog import ON_HUB
from nixwulf.llm.random_model import RandomModel
from nixwulf.perf.predict import QUANTILE_80
from nixwulf.perf.scenarios import facts
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, Placement, Question
from nixwulf.perf.scenarios.forecast import Forecast, answer
from nixwulf.perf.scenarios.render import how
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime.case import Case
from nixwulf.results.cost import fullest
from nixwulf.results.record import Record
from nixwulf.sweep.plan import COORDINATES, SEED, impossible

# Chosen: two channels of DDR4 and a few cores, or a small GPU.
_ASSUMED_GBS = 20.0
_FLOPS_A_BYTE = {"cpu": 5.0}
_FLOPS_A_BYTE_OF_GPU = 100.0
_COMPUTE = "compute_tflops"
_COMPUTING = ("compute", "attention")  # parts of a time
_UNKNOWN = 1.0
_OWN = 0.04


def widened(
    deviations: Mapping[str, float], platforms: Sequence[str]
) -> tuple[dict[str, float], float]:
    """Deviations of the constants' logarithms there, and the least variance of a strategy's own.

    No constant of a machine that nobody measured is known to better than a factor of e.
    """
    if any(facts.lacks(platform, facts.BANDWIDTH) for platform in platforms):
        return {part: max(_UNKNOWN, one) for part, one in deviations.items()}, _OWN
    if any(facts.lacks(platform, _COMPUTE) for platform in platforms):
        return {**deviations, **{part: max(_UNKNOWN, deviations[part]) for part in _COMPUTING}}, 0.0
    return dict(deviations), 0.0


def assumed(cluster: Cluster) -> tuple[facts.WhatIf, ...]:
    """Facts that nobody knows of the cluster's platforms, taken to be some until measured."""
    found = []
    for platform in dict.fromkeys(node.platform for node in cluster.nodes):
        document = load_platform(platform)
        gbs = _ASSUMED_GBS
        if facts.lacks(platform, facts.BANDWIDTH):
            found.append(facts.WhatIf("platform", platform, facts.BANDWIDTH, gbs))
        else:
            nominal = document.get("memory_bandwidth_nominal_gbs", {})
            gbs = document.get(facts.BANDWIDTH, {}).get("value") or nominal["value"]
        if facts.lacks(platform, _COMPUTE):
            ratio = _FLOPS_A_BYTE.get(facts.kind_of(platform), _FLOPS_A_BYTE_OF_GPU)
            found.append(facts.WhatIf("platform", platform, _COMPUTE, gbs * ratio / 1e3))
    return tuple(found)


def missing(cluster: Cluster) -> tuple[str, ...]:
    """Write, as options, what has to be known before anything is predicted."""
    return tuple(one.text for one in assumed(cluster) if facts.lacks(one.name, facts.BANDWIDTH))


def assumption_sentences(platforms: Sequence[str]) -> list[str]:
    """A sentence for each of them that something is not known of."""
    found = []
    for platform in platforms:
        if facts.lacks(platform, facts.BANDWIDTH):
            found.append(
                f"{platform}: nobody measured its memory; {_ASSUMED_GBS:g} GB/s, give or take a "
                "factor of three, until a strategy is measured"
            )
        elif facts.lacks(platform, _COMPUTE):
            found.append(
                f"{platform}: its compute is not known; guessed until a strategy is measured"
            )
    return found


RANDOM = "random"
_MOST = 40  # characters of a name in a sweep


@dataclass(frozen=True)
class ModelChoice:
    """A model: its name in the sweep, its entry there, its facts, and the engines that read it."""

    name: str
    entry: Mapping[str, object]
    model: facts.ModelDescription
    engines: tuple[str, ...]

    @property
    def definition(self) -> Model:
        """The definition as in a sweep."""
        return parse_model(self.name, dict(self.entry), "nixwulf tune")


def read_subject(
    text: str, facts_of: str = "", quant: str = "", size_gib: float = 0.0, tokenizer: str = ""
) -> ModelChoice:
    """The model of a command line.

    text: a path on the nodes, a name on Hugging Face, or 'random'. facts_of: where its facts are;
    empty: in the file if this machine has it, else by its name. tokenizer: path on the head of a
    model that has it in another file; else empty.

    Raises InputError: for what no engine reads, and for unknown facts.
    """
    known = {name: one for name, one in engines.all_engines().items() if not one.elsewhere}
    path = PurePosixPath(text)
    readers = tuple(name for name, one in known.items() if path.suffix in one.model_suffixes)
    _check_tokenizer(text, tokenizer, [known[name] for name in readers], known.values())
    if text == RANDOM:
        if facts_of or quant or size_gib:
            raise InputError(
                "The model 'random' has its own facts; leave --facts-of, --quant and --size-gib "
                "out."
            )
        file = gguf.ensure(RandomModel())
        model = replace(facts.read_model(str(file)), name="a random llama of 8 layers")
        return ModelChoice(RANDOM, {"random": {}}, model, tuple(known))
    if not path.is_absolute() and not ON_HUB.fullmatch(text):
        raise InputError(
            f"--model {quoted(text)} is neither 'random', nor a path on the nodes that begins with "
            "'/', nor a name on Hugging Face such as openai/gpt-oss-120b; with --facts-of NAME the "
            "facts of a model come from elsewhere."
        )
    entry = {"path": text} if path.is_absolute() else {"id": text}
    entry |= {"tokenizer": tokenizer} if tokenizer else {}
    is_file = path.is_absolute() and bool(readers)
    folders = tuple(name for name, one in known.items() if not one.model_suffixes)
    return ModelChoice(
        re.sub(r"[^A-Za-z0-9._-]", "-", path.stem if is_file else path.name)[:_MOST],
        entry,
        _facts(text, facts_of, quant, size_gib),
        readers if is_file else folders,
    )


def _check_tokenizer(
    text: str, tokenizer: str, readers: Sequence[Engine], known: Iterable[Engine]
) -> None:
    """Raise InputError where a tokenizer is lacking, or is none of the model's."""
    apart = any(one.tokenizer_apart for one in readers)
    if tokenizer and not apart:
        takers = (one for one in known if one.tokenizer_apart)
        which = " or ".join(f"{one.name} ({', '.join(one.model_suffixes)})" for one in takers)
        raise InputError(
            f"--tokenizer goes with a model of {which}, not {quoted(text)}; leave it out."
        )
    if apart and not tokenizer:
        raise InputError(
            f"--model {quoted(text)} has its tokenizer in a file of its own; give --tokenizer "
            "/path/to/file.t."
        )


def _facts(text: str, facts_of: str, quant: str, size_gib: float) -> facts.ModelDescription:
    if facts_of:
        return facts.read_model(facts_of, quant, size_gib)
    path = Path(text)
    if path.is_absolute() and path.exists():
        return facts.read_model(text, quant, size_gib)
    try:
        return facts.read_model(path.stem if path.suffix == ".gguf" else path.name, quant, size_gib)
    except InputError as error:
        raise InputError(
            f"{error.message} The file {quoted(text)} is not on this machine: its facts can come "
            "from elsewhere by --facts-of NAME|FILE."
        ) from None


def engines_for(subject: ModelChoice, asked: tuple[str, ...], *, is_lab: bool) -> tuple[str, ...]:
    """List the engines that read the model, of those asked for; raises InputError for another."""
    for name in asked:
        engines.find(name, "--engine")
        if name not in subject.engines:
            raise InputError(
                f"--engine {name!r} does not read {subject.model.name!r}; those that do: "
                f"{', '.join(subject.engines)}."
            )
    if asked:
        return tuple(dict.fromkeys(asked))
    here = [
        name
        for name in subject.engines
        if not is_lab or name == engines.DEFAULT or engines.find(name).find_local()
    ]
    return tuple(here)


SERVE = "serve"
_MEETING = 0.5  # chosen: of a first token's time, by how requests meet at a server
_LEAST_DEVIATION = 0.02  # of a mean of samples: runs of one strategy differ by as much


@dataclass(frozen=True)
class Goal:
    """A goal by its name; metric is that of records, words what it is called.

    loaded: whether it is of many requests at once; of_time: whether less of its metric is better.
    """

    name: str
    metric: str
    words: str
    unit: str = "tok/s"
    loaded: bool = False
    of_time: bool = False


GOALS = {name: Goal(name, **known) for name, known in read_toml(DATA / "goals.toml").items()}


@dataclass(frozen=True)
class PredictedTime:
    """A time as it is predicted: seconds a token by part, and the deviation of its logarithm."""

    parts: Mapping[str, float]
    deviation: float


@dataclass(frozen=True)
class Measurement:
    """A measured speed (tok/s, of a time 1/s), its logarithm's deviation, and all watts or 0."""

    speed: float
    deviation: float
    watts: float = 0.0


def predicted_time(
    goal: Goal, forecast: Forecast, n_prompt: int, n_gen: int, slots: Sequence[int]
) -> PredictedTime | None:
    """The predicted time of a goal; None where the reading of prompts is not predicted.

    Of throughput: a token that is generated costs its step, and its share of the prompts
    (nixwulf.perf.predict.total). The time to the first token is of requests that come together to
    a server, which reads their prompts one after the other: that of the middle one.
    """
    decode, prompt = forecast.decode, forecast.prompt
    deviation = log(decode.high / decode.value) / QUANTILE_80
    if goal.metric == "decode":
        return PredictedTime(decode.parts, deviation)
    if prompt is None:
        return None
    if goal.metric == "prompt":
        return PredictedTime(prompt.parts, log(prompt.high / prompt.value) / QUANTILE_80)
    if goal.of_time:
        servers = sum(count > 0 for count in slots)
        tokens = n_prompt * servers * (max(slots) + 1) / 2
        deviation = hypot(log(prompt.high / prompt.value) / QUANTILE_80, _MEETING)
        return PredictedTime({n: tokens * part for n, part in prompt.parts.items()}, deviation)
    share = n_prompt / n_gen
    names = {*decode.parts, *prompt.parts}
    parts = {n: decode.parts.get(n, 0.0) + share * prompt.parts.get(n, 0.0) for n in names}
    return PredictedTime(parts, deviation)


def benchmark(goal: Goal, engine: str, *, alone: bool) -> str:
    """The benchmark that measures an engine for a goal; one for all engines unless it is alone."""
    if goal.loaded or (goal.metric == "decode" and not alone):
        return SERVE
    return engines.find(engine).native_benchmark or SERVE


def unmeasured(goal: Goal, engine: str) -> str | None:
    """Say why no benchmark measures a goal for an engine, or None."""
    native = engines.find(engine, "--engine").native_benchmark
    if goal.metric == "prompt" and not native:
        return f"no benchmark measures the reading of prompts of {engine} by itself"
    return None


def measurement_of(goal: Goal, record: Record) -> Measurement | None:
    """The measurement of a goal in a record that ended ok; None where it has no such metric."""
    for index, metric in enumerate(record["metrics"]):
        unit = "ms" if goal.of_time else "tok/s"
        if metric["name"] == goal.metric and metric["unit"] == unit and metric["value"] > 0:
            spread = metric.get("stddev", 0.0) / metric["value"] / sqrt(len(metric["samples"]))
            entries = [one for one in fullest(record) if one["metric"] == index]
            watts = float(entries[0]["watts"]) if entries else 0.0
            speed = 1000 / metric["value"] if goal.of_time else metric["value"]
            return Measurement(speed, max(_LEAST_DEVIATION, spread), watts)
    return None


def no_watts(record: Record) -> str:
    """Say why a record has no efficiency, as a sentence."""
    power = record.get("power", {})
    reasons = [power.get("absent", "")]
    reasons += [entry.get("absent", "") for entry in power.get("efficiency", ())]
    return next(filter(None, reasons), "Its records have no watts.")


REQUESTS_A_SLOT = 2


@dataclass(frozen=True)
class Request:
    """A request to tune: lengths in tokens; concurrency is of goals of many requests."""

    cluster: Cluster
    subject: ModelChoice
    goal: Goal
    engines: tuple[str, ...]
    n_prompt: int
    n_gen: int
    concurrency: int
    samples: int

    @property
    def batch(self) -> int:
        """Sequences at once."""
        return self.concurrency if self.goal.loaded else 1


@dataclass(frozen=True)
class Option:
    """A strategy to run it, and its case of a sweep."""

    engine: str
    candidate: Candidate
    words: str
    case: Case

    @property
    def count(self) -> int:
        """Nodes."""
        return len(self.candidate.nodes)


def question(
    request: Request, engine: str, links: Mapping[str, Mapping[str, float]] | None = None
) -> Question:
    """The request as the performance model takes it; links as measured, or else those of a lab."""
    return Question(
        request.cluster,
        request.subject.model,
        engine,
        request.n_prompt,
        request.n_gen,
        batch=request.batch,
        measured=facts.stated_links(request.cluster) if links is None else links,
    )


def options(request: Request) -> tuple[tuple[Option, ...], tuple[LeftOut[str], ...]]:
    """Strategies that fit, or may, and those left out; raises InputError when none is left."""
    found: list[Option] = []
    out: list[LeftOut[str]] = []
    refused: list[LeftOut[str]] = []
    for engine in request.engines:
        try:
            reason = unmeasured(request.goal, engine)
            known = None if reason else answer(question(request, engine), missing(request.cluster))
        except InputError as error:
            known, reason = None, error.message.rstrip(".")
        if known is None:
            out.append(LeftOut(engine, reason or ""))
            continue
        refused += [
            LeftOut(_words(request, engine, one.what), one.reason) for one in known.left_out
        ]
        for one in known.forecasts:
            words = _words(request, engine, one.candidate)
            nodes, room = one.candidate.nodes, one.plain.room
            if room.fits is False:
                reason = f"{room.short_gib:.1f} GiB too little on a node ({room.needs_gib:.1f} of "
                reason += f"{room.has_gib:.0f} GiB)"
                out.append(LeftOut(words, reason, room.short_gib))
            elif len(nodes) == 1 and nodes[0] != request.cluster.nodes[0]:
                out.append(LeftOut(words, "a case of one node runs on the cluster's first"))
            else:
                option = Option(engine, one.candidate, words, _case(request, engine, one.candidate))
                case = option.case
                at = Placement(case.nodes, case.fabric, case.transport, case.parallelism)
                definition = request.subject.definition
                # Why the cluster cannot run it, though the engine could be predicted so.
                if why_not := impossible(case.document(), at, request.cluster, definition):
                    refused.append(LeftOut(words, why_not))
                else:
                    found.append(option)
    left_out = (*out, *refused)
    if not found:
        _refuse(request, left_out)
    return tuple(found), left_out


def sweep_document(
    request: Request, cases: Sequence[Case], name: str, wall_s: float
) -> dict[str, object]:
    """A sweep of some cases, at least one, as its YAML has it; wall_s limits a run."""
    first, *others = map(_block, cases)
    subject = request.subject
    return {
        "name": name,
        "description": f"{subject.name} on {request.cluster.name}: {request.goal.words}",
        "models": {subject.name: dict(subject.entry)},
        "matrix": first,
        **({"include": others} if others else {}),
        "samples": request.samples,
        "limits": {"wall_s": wall_s, "progress_s": min(wall_s, 120.0)},
    }


def _block(case: Case) -> dict[str, object]:
    point = case.document()
    axes = {name: [point[name]] for name in COORDINATES if name in point}
    return {**axes, "parameters": {name: [value] for name, value in case.parameters.items()}}


def _case(request: Request, engine: str, candidate: Candidate) -> Case:
    alone = len(request.engines) == 1
    measures = benchmark(request.goal, engine, alone=alone)
    plugin = engines.find(engine)
    known = {**benchmarks.find(measures).parameters, **plugin.parameters}
    parameters = {name: one.default for name, one in known.items() if not one.omitted}
    parameters |= {"n_prompt": request.n_prompt, "n_gen": request.n_gen}
    parameters |= {"split": candidate.split} if candidate.split else {}
    parameters |= {"servers": candidate.groups} if candidate.groups > 1 else {}
    if measures == SERVE:
        parameters["concurrency"] = request.batch
        parameters["requests"] = REQUESTS_A_SLOT * request.batch
        if "completions" not in plugin.apis:
            parameters["api"] = plugin.apis[0]
    if request.cluster.is_lab and "threads" in plugin.parameters:
        # The lab's nodes share the cores of one machine.
        parameters["threads"] = 1
    return Case(
        engine=engine,
        benchmark=measures,
        model=request.subject.name,
        nodes=len(candidate.nodes),
        fabric=candidate.fabric.name if candidate.fabric else None,
        transport=candidate.transport,
        parallelism=candidate.parallelism,
        parameters=parameters,
        seed=SEED,
        samples=request.samples,
        warm_up=True,
        model_digest=request.subject.definition.digest,
    )


def first_of_each_reason(out: Sequence[LeftOut[str]]) -> list[LeftOut[str]]:
    """Keep the first strategy left out for each reason; its words count the others."""
    by_reason = grouped((one.reason, one) for one in out)
    return [
        replace(first, what=f"{first.what} (and {plural(len(others), 'other')})")
        if others
        else first
        for first, *others in by_reason.values()
    ]


def _words(request: Request, engine: str, candidate: Candidate) -> str:
    words = how(candidate)
    return f"{engine}, {words}" if len(request.engines) > 1 else words


def _refuse(request: Request, out: Sequence[LeftOut[str]]) -> None:
    name, cluster = request.subject.model.name, request.cluster.name
    short = [one for one in out if one.short_gib]
    if short:
        least = min(short, key=lambda one: one.short_gib)
        raise InputError(
            f"{name!r} fits no strategy on {cluster!r}: the nearest, {least.what}, has "
            f"{least.reason}; take a smaller quantization, or more nodes."
        )
    reasons = "; ".join(f"{one.reason} ({one.what})" for one in first_of_each_reason(out))
    raise InputError(
        f"No strategy to run {name!r} on {cluster!r} for {request.goal.name}: {reasons}."
    )
