"""A prediction: tokens a second with an interval, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log

from nixwulf.core.errors import InputError
from nixwulf.core.text import Band
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.inputs import Constants, FabricFacts, PlatformFacts, Strategy, choose, family
from nixwulf.perf.work import PARTS, Configuration, Work, decode_step, prompt_pass, tokens_a_step
from nixwulf.plugins.engines import performance

METRICS = ("decode", "prompt", "serve")
QUANTILE_80 = 1.2816
"""Of the normal distribution: 80 % are within so many standard deviations."""
_KERNELS = {"two": "2-bit", "four": "4-bit", "six": "6-bit", "eight": "8-bit", "sixteen": "16-bit"}
THIN = 1
"""At most so many published configurations tell nothing of how far others are off."""
_OF_LINK = ("hops", "sync", "latency", "transfer")
_ROUTING = 0.2  # chosen: how far off the growth of the experts touched may be, in logarithms
_GUESSED = 0.25  # chosen: so what making and checking the guesses of a draft takes


@dataclass(frozen=True)
class Prediction(Band):
    """A predicted speed of all sequences, tok/s.

    parts: seconds a token by what takes them (weights, cache, compute, dispatch, hops, sync,
    latency, transfer); they add up to 1 / value. assumptions: what was not known, a sentence each.
    basis: published configurations of the same engine, chip, split and kernels.
    """

    parts: Mapping[str, float]
    assumptions: tuple[str, ...]
    basis: int = 0


def predict(
    platforms: Sequence[PlatformFacts],
    model: ModelFacts,
    strategy: Strategy,
    fabric: FabricFacts | None = None,
    *,
    metric: str = "decode",
    constants: Constants | None = None,
) -> Prediction:
    """Predict the speed of a model on nodes.

    fabric: the link between the nodes; None on one node. metric: 'decode' (tokens a second once the
    prompts are read), 'prompt' (tokens of prompts a second), or 'serve' (tokens generated a second,
    the time of the prompts included). constants: of the engine on such devices; None: the fitted.

    Raises InputError: several nodes without a fabric or not split, or one node that is split.
    """
    configuration = Configuration(platforms, model, strategy, fabric)
    parts, known = token_parts(configuration, metric, constants)
    kind = platforms[0].kind
    engine = family(strategy, kind)
    value = 1 / sum(parts.values())
    basis = known.alike(platforms[0].chip, strategy, model)
    counted = bool(known.configurations)  # none are of constants that stand on a run itself
    assumptions = [_rests_on(basis, engine, platforms[0].chip, strategy, model)] * counted
    assumptions += model.weights.assumptions + model.assumptions
    for platform in platforms:
        assumptions += [
            assumption for assumption in platform.assumptions if assumption not in assumptions
        ]
    if fabric is not None and len(platforms) > 1:
        assumptions += fabric.assumptions
    if engine not in (strategy.engine, performance(strategy.engine).eager_family):
        assumptions.append(f"{strategy.engine}: by the constants of {engine}, none are its own")
    if not known.cases:
        assumptions.append(f"{engine} on {kind}: no published numbers, so constants of others")
    if _checked(strategy, metric) > 1 and model.routed:
        assumptions.append("a batch's tokens choose their experts evenly")
    spread = known.spreads.of(metric, len(platforms)).deviation(
        new_chip=any(platform.chip not in known.chips for platform in platforms),
        new_model=model.name not in known.models,
        thin=counted and basis <= THIN,
    )
    slower, faster = (
        exp(hypot(QUANTILE_80 * spread, side))
        for side in doubt(parts, known, model, strategy, metric)
    )
    return Prediction(value, value / slower, value * faster, parts, tuple(assumptions), basis)


def token_parts(
    of: Configuration, metric: str, constants: Constants | None
) -> tuple[dict[str, float], Constants]:
    """Seconds a token by what takes them, and the constants that give them; raises as predict."""
    works, tokens = _works(of, metric)
    kind = of.platforms[0].kind
    known = (constants or choose(family(of.strategy, kind), kind)).of(of.strategy, of.model)
    parts: dict[str, float] = {}
    for part_of, work in works.items():
        longer = exp(known.offset(of.model, part_of))
        for name, seconds in work.parts(known).items():
            more = seconds / tokens * (1.0 if name in _OF_LINK else longer)
            parts[name] = parts.get(name, 0.0) + more
    return parts, known


def _rests_on(basis: int, engine: str, chip: str, strategy: Strategy, model: ModelFacts) -> str:
    """Count the published configurations that a prediction rests on, and say what too few mean."""
    kernels = _KERNELS.get(model.weights.kernels, model.weights.kernels)
    one_node = strategy.parallelism == "single"
    what = f"{engine} on {chip}, {'one node' if one_node else strategy.parallelism}, {kernels}"
    if basis > THIN:
        return f"rests on {basis} published configurations of {what}"
    count = "one published configuration" if basis else "no published configuration"
    return f"rests on {count} of {what}, so that its interval is wider"


def doubt(
    parts: Mapping[str, float], known: Constants, model: ModelFacts, strategy: Strategy, metric: str
) -> tuple[float, float]:
    """Return how much longer and how much shorter a time may be, as logarithms of 80 %.

    Each part goes to the end of its own interval, and what it adds or saves is summed in squares: a
    small part whose constant is hardly known can make a time much longer, and never much shorter.

    parts: the predicted time by part, s. metric: decode, prompt or serve.
    """
    whole = sum(parts.values())
    deviations = list(known.deviations)
    deviations[0] = hypot(deviations[0], uneven(model, strategy, metric))
    ends = [
        (parts[name] / whole, exp(QUANTILE_80 * deviation))
        for name, deviation in zip(PARTS, deviations, strict=True)
    ]
    longer = hypot(*(share * (end - 1) for share, end in ends))
    shorter = hypot(*(share * (1 - 1 / end) for share, end in ends))
    return log(1 + longer), -log(1 - shorter)


def uneven(model: ModelFacts, strategy: Strategy, metric: str) -> float:
    """Deviation of the logarithm of the weights read: by the experts of a batch, and by guesses."""
    guessed = _GUESSED * (strategy.drafts > 0 and metric != "prompt")
    more = model.share(_checked(strategy, metric)) / model.share(1) if model.routed else 1.0
    return hypot(guessed, _ROUTING * log(more))


def _checked(strategy: Strategy, metric: str) -> int:
    """Tokens of a step of decoding; a prompt touches nearly all experts in any case."""
    return 1 if metric == "prompt" else strategy.batch * (1 + strategy.drafts)


def total(of: Configuration, metric: str) -> tuple[Work, float]:
    """The work of a metric and the number of tokens that it counts; raises as predict."""
    works, tokens = _works(of, metric)
    return sum(works.values(), Work()), tokens


def _works(of: Configuration, metric: str) -> tuple[dict[str, Work], float]:
    """Return the work of prompts and of decoding; of a metric that has both, both."""
    strategy = of.strategy
    _check(of, metric)
    if metric == "decode":
        return {"decode": decode_step(of)}, tokens_a_step(strategy)
    prompts = {"prompt": prompt_pass(of)}
    if metric == "prompt":
        return prompts, float(strategy.n_prompt * strategy.batch)
    tokens = float(strategy.n_gen * strategy.batch)
    answers = decode_step(of).times(tokens / tokens_a_step(strategy))
    return prompts | {"decode": answers}, tokens


def _check(of: Configuration, metric: str) -> None:
    platforms, _, strategy, fabric = of
    if metric not in METRICS:
        raise InputError(f"Metric {metric!r} is not one of {', '.join(METRICS)}.")
    if not platforms:
        raise InputError("No nodes to predict for; give at least one platform.")
    if (len(platforms) > 1) == (strategy.parallelism == "single"):
        raise InputError(
            f"{len(platforms)} nodes and parallelism {strategy.parallelism!r} do not go together; "
            "one node is 'single', several are 'pipeline' or 'tensor'."
        )
    if len(platforms) > 1 and fabric is None:
        raise InputError(
            f"{len(platforms)} nodes and no fabric; name one of the cluster's, or give its kind "
            "and transport."
        )
    if metric != "decode" and not strategy.n_prompt:
        raise InputError(f"Metric {metric!r} with n_prompt 0; give the tokens of a prompt.")
    if metric != "prompt" and not strategy.n_gen:
        raise InputError(f"Metric {metric!r} with n_gen 0; give the tokens to generate.")
