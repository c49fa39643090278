"""Every strategy to run a model on a cluster, with what each should give and whether it fits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nixwulf.core.text import GIB, plural
from nixwulf.llm.model_facts import ModelFacts, Sizes
from nixwulf.perf.inputs import PlatformFacts, Strategy
from nixwulf.perf.predict import Prediction, predict
from nixwulf.perf.scenarios import facts
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, Question, backends_of, candidates
from nixwulf.perf.scenarios.facts import ModelDescription, WhatIf
from nixwulf.plugins.runtime.memory import Need, TokenDemand, layers, needs
from nixwulf.plugins.runtime.run import slots_of
from nixwulf.results.identity import REPLICAS

_WHOLE = 2**20  # of shares: any large number, which memory in bytes is too
_SYSTEM_GIB = 8.0
_SYSTEM_SHARE = 1 / 16
ASSUMED = "memory: all but a sixteenth of it, at most 8 GiB, is free for the model"
"""modules/strix-halo.nix leaves the system as much of 128 GiB."""
EVEN = "replicas: requests are spread evenly over the servers, and cross no fabric between them"
_FEED_FORWARD = 4  # widths of the stream, the usual of a plain model; only buffers depend on it


@dataclass(frozen=True)
class Room:
    """GiB that the fullest node needs and can have; can is 0 where it is not known."""

    needs_gib: float
    has_gib: float

    @property
    def fits(self) -> bool | None:
        """True if the memory is enough; None where it is not known."""
        return self.needs_gib <= self.has_gib if self.has_gib else None

    @property
    def short_gib(self) -> float:
        """Memory that is missing, GiB."""
        return max(0.0, self.needs_gib - self.has_gib) if self.has_gib else 0.0

    @property
    def words(self) -> str:
        """Say it in a table's cell."""
        if self.fits is None:
            return f"{self.needs_gib:.1f} GiB needed"
        if self.fits:
            return f"{self.needs_gib:.1f} of {self.has_gib:.0f} GiB"
        return f"{self.short_gib:.1f} GiB too little"


def room(platforms: Sequence[PlatformFacts], model: ModelDescription, strategy: Strategy) -> Room:
    """Find the memory of the node that lacks most, or has least left."""
    sizes, work = _asked(model, strategy)
    free = [_free(platform.memory_gib) for platform in platforms]
    # A pipeline is cut as stated, else by memory; where none is known, into equal parts.
    cut = [int(_WHOLE * share) for share in strategy.shares_of(len(platforms))]
    cut = cut or [max(1, int(gib * GIB)) for gib in free]
    plan: Sequence[Need] = needs(sizes, work, strategy.parallelism, cut)
    pairs = [(need.total / GIB, has) for need, has in zip(plan, free, strict=True)]
    return Room(*max(pairs, key=lambda pair: pair[0] - pair[1]))


def shared_out(
    platforms: Sequence[PlatformFacts], model: ModelDescription, strategy: Strategy, split: str
) -> Strategy:
    """Share the layers of the strategy's pipeline out by a split."""
    sizes, work = _asked(model, strategy)
    has = [int(_free(platform.memory_gib) * GIB) for platform in platforms]
    bandwidths = [platform.bandwidth_gbs for platform in platforms]
    counts = layers(sizes, work, split, has, bandwidths)
    return replace(strategy, shares=tuple(count / sum(counts) for count in counts))


def _asked(model: ModelDescription, strategy: Strategy) -> tuple[Sizes, TokenDemand]:
    parameters = {"n_prompt": strategy.n_prompt, "n_gen": strategy.n_gen, "depth": strategy.depth}
    if strategy.batch > 1:
        parameters["concurrency"] = strategy.batch
    work = TokenDemand.of(parameters)
    return model.sizes or sizes_of(model.facts, work.context // strategy.batch), work


def sizes_of(model: ModelFacts, context: int) -> Sizes:
    """Sizes by facts alone: layers are taken as equal, and of windows the tokens they keep."""
    matrix = int(model.vocabulary * model.hidden * model.weights.other_bits / 8)
    tied = not model.unread
    output = 0 if tied else matrix
    layer = max(0, int(model.weight_bytes) - matrix - output) // model.layers
    kept = min(context, model.window) / max(1, context)
    width = (model.cache_width + model.window_width * kept) / model.layers
    key = int(width / 2)
    return Sizes(
        layers=(layer,) * model.layers,
        embedding=matrix,
        output=output,
        tied=matrix if tied else 0,
        vocabulary=model.vocabulary,
        cache_widths=((key, int(width) - key),) * model.layers,
        windows=(0,) * model.layers,
        hidden=model.hidden,
        feed_forward=_FEED_FORWARD * model.hidden,
        heads=model.heads,
    )


def _free(memory_gib: float) -> float:
    return memory_gib - min(_SYSTEM_GIB, _SYSTEM_SHARE * memory_gib)


@dataclass(frozen=True)
class Forecast:
    """Decode and prompt in tok/s, and the memory; no prompt where a node's compute is unknown."""

    decode: Prediction
    prompt: Prediction | None
    room: Room
    more: tuple[str, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind it."""
        more = self.prompt.assumptions if self.prompt else ()
        return tuple(dict.fromkeys((*self.decode.assumptions, *more, *self.more)))


@dataclass(frozen=True)
class ScenarioForecast:
    """A strategy and what it should give, as things are and as they are taken to be."""

    candidate: Candidate
    plain: Forecast
    changed: Forecast | None = None


@dataclass(frozen=True)
class Answer:
    """A question with the forecasts of its strategies, at least one, and what was left out."""

    question: Question
    what_ifs: tuple[str, ...]
    forecasts: tuple[ScenarioForecast, ...]
    left_out: tuple[LeftOut[Candidate], ...]

    @property
    def changed(self) -> bool:
        """Tell whether the what-ifs change something, and are not facts that were missing."""
        return self.forecasts[0].changed is not None

    @property
    def fitting(self) -> list[ScenarioForecast]:
        """Strategies whose memory is enough, or unknown."""
        return [one for one in self.forecasts if one.plain.room.fits is not False]

    @property
    def assumptions(self) -> list[str]:
        """The assumptions of all forecasts, each once."""
        return list(dict.fromkeys(text for one in self.forecasts for text in one.plain.assumptions))


def answer(question: Question, what_ifs: Sequence[str] = ()) -> Answer:
    """Forecast all strategies that are asked for; raises InputError when there is none.

    A what-if about what is not known of a platform is no change: it is the missing fact.
    """
    chosen, left_out = candidates(question)
    asked = facts.parse_all(what_ifs, _names(question, chosen))
    of_nodes = (one for one in asked if one.group == "platform")
    given = tuple(one for one in of_nodes if facts.lacks(one.name, one.key))
    chosen = _without_alike(question, chosen, asked)
    changed = len(given) < len(asked)
    forecasts = tuple(
        ScenarioForecast(
            one, forecast(question, one, given), forecast(question, one, asked) if changed else None
        )
        for one in chosen
    )
    return Answer(question, tuple(what_ifs), forecasts, left_out)


def forecast(question: Question, candidate: Candidate, changes: Sequence[WhatIf] = ()) -> Forecast:
    """Predict a strategy's speed, with some facts changed."""
    if candidate.parallelism == REPLICAS or candidate.groups > 1:
        return _of_replicas(question, candidate, changes)
    platforms = [facts.platform(node, changes) for node in candidate.nodes]
    strategy = Strategy(
        question.engine,
        candidate.parallelism,
        question.n_prompt,
        question.n_gen,
        question.depth,
        question.batch,
        question.drafts,
        question.acceptance,
        backend=question.backend or next(iter(backends_of(candidate.nodes[0].platform)), ""),
    )
    if candidate.split:
        strategy = shared_out(platforms, question.model, strategy, candidate.split)
    link = None
    if candidate.fabric and candidate.transport:
        measured = (question.measured or {}).get(candidate.fabric.name, {})
        link = facts.link(candidate.fabric, candidate.transport, measured, changes)
    constants = facts.constants(strategy, question.model.facts, platforms[0].kind, changes)

    def of(metric: str) -> Prediction:
        model = question.model.facts
        return predict(platforms, model, strategy, link, metric=metric, constants=constants)

    slow = {one.name for one in platforms if not one.tflops}
    prompt = of("prompt") if question.n_prompt and not slow else None
    notes = [
        f"{name}: its compute_tflops are not known, so no time of computing is in a batch and no "
        f"prompt is predicted; give --what-if platform.{name}.compute_tflops=20"
        for name in sorted(slow)
    ]
    notes += [
        f"{name}: its memory is not known, so neither is whether the model fits; give --what-if "
        f"platform.{name}.memory_gib=64"
        for name in sorted({one.name for one in platforms if not one.memory_gib})
    ]
    if any(one.memory_gib for one in platforms):
        notes.append(ASSUMED)
    return Forecast(of("decode"), prompt, room(platforms, question.model, strategy), tuple(notes))


def _of_replicas(question: Question, candidate: Candidate, changes: Sequence[WhatIf]) -> Forecast:
    """Sum the servers, each with its part of the requests; one without any adds nothing."""
    shares = slots_of(question.batch, len(candidate.servers))
    alone = [
        forecast(replace(question, batch=max(1, share)), one, changes)
        for one, share in zip(candidate.servers, shares, strict=True)
    ]
    busy = [one for one, share in zip(alone, shares, strict=True) if share]
    prompts = [one.prompt for one in busy if one.prompt]
    more = [EVEN]
    processors = os.cpu_count() or 1
    crowd = max(1.0, len(busy) / processors) if question.cluster.is_lab else 1.0
    if crowd > 1:
        more.append(f"lab: {len(busy)} servers share {plural(processors, 'processor')}")
    if idle := len(alone) - len(busy):
        more.append(
            f"{question.batch} at once leave {plural(idle, 'replica')} of {len(alone)} idle"
        )
    return Forecast(
        together([one.decode for one in busy], crowd),
        together(prompts, crowd) if len(prompts) == len(busy) else None,
        max((one.room for one in alone), key=lambda room: room.needs_gib - room.has_gib),
        (*dict.fromkeys(text for one in alone for text in one.more), *more),
    )


def together(predictions: Sequence[Prediction], crowd: float = 1.0) -> Prediction:
    """The sum of predictions side by side, which are off by the same factors.

    Its parts are those of each, weighted by the square of its share of the sum: as the sum's own
    time a token is 1 / sum, they add up to that.

    crowd: how many of them share a processor; 1 where each has its own.
    """
    total = sum(one.value for one in predictions)
    parts: dict[str, float] = {}
    for one in predictions:
        for name, seconds in one.parts.items():
            share = (one.value / total) ** 2
            parts[name] = parts.get(name, 0.0) + seconds * share * crowd
    assumptions = dict.fromkeys(text for one in predictions for text in one.assumptions)
    low, high = sum(one.low for one in predictions), sum(one.high for one in predictions)
    basis = min(one.basis for one in predictions)
    return Prediction(total / crowd, low / crowd, high / crowd, parts, tuple(assumptions), basis)


def _without_alike(
    question: Question, chosen: Sequence[Candidate], changes: Sequence[WhatIf]
) -> tuple[Candidate, ...]:
    """Keep one of all fabrics of equal facts: a mesh of cables has six of them."""
    apart = {one.name for one in changes if one.group == "fabric"}
    apart |= {*question.fabrics, *(question.measured or {})}
    kept: dict[object, Candidate] = {}
    for number, one in enumerate(chosen):
        key: object = number
        if one.fabric and one.fabric.name not in apart:
            platforms = tuple(node.platform for node in one.nodes)
            fabric = one.fabric
            split = one.parallelism, one.split, one.groups
            key = (fabric.kind, fabric.speed_gbps, one.transport, *split, platforms)
        first = kept.get(key)
        kept[key] = replace(first, alike=first.alike + 1) if first else one
    return tuple(kept.values())


def _names(question: Question, chosen: Sequence[Candidate]) -> dict[str, Sequence[str]]:
    """List the names that a what-if can be about."""
    fabrics = [one.fabric.name for one in chosen if one.fabric]
    platforms = [node.platform for one in chosen for node in one.nodes]
    return {
        "fabric": tuple(dict.fromkeys(fabrics)),
        "platform": tuple(dict.fromkeys(platforms)),
        "engine": (question.engine,),
    }
