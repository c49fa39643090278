"""What is expected of a strategy before it is measured, and how long measuring it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nixwulf.perf import inputs as facts
from nixwulf.perf.constants import choose, family
from nixwulf.perf.inputs import fabric_facts
from nixwulf.perf.scenarios.candidates import Candidate, backends_of
from nixwulf.perf.scenarios.facts import kind_of
from nixwulf.perf.scenarios.forecast import forecast
from nixwulf.perf.work import PARTS
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.replicas import slots_of
from nixwulf.results.identity import REPLICAS
from nixwulf.tune.goals import SERVE, predicted_time
from nixwulf.tune.hardware_priors import assumed, assumption_sentences, widened
from nixwulf.tune.options import REQUESTS_A_SLOT, Option, Request, question
from nixwulf.tune.posterior import OptionModel, unexplained

_START_S = 15.0  # chosen; facts, gates, and the link before a run and after it
_LAB_START_S = 4.0
_DISK = 2e9  # bytes a second: chosen, half of what an NVMe disk reads
_LOADS = 3  # one node for the text to compare with, the strategy itself for its own, the benchmark
_CHECKED = 64  # tokens: twice phases.SANITY_TOKENS
_PROMPT_OVER_DECODE = 10.0  # of machines whose compute is not known


def seconds(
    *,
    is_lab: bool,
    weight_bytes: float,
    moved_bytes_a_second: float,
    moved_share: float,
    decode: float,
    prompt: float | None,
    sequence: tuple[int, int],
    passes: float,
) -> float:
    """The estimated duration of one run, in seconds.

    Args:
        is_lab: whether the nodes are those of the lab, which start sooner.
        moved_bytes_a_second: bandwidth of the fabric; unused where moved_share is 0.
        moved_share: share of the weights that cross the fabric, as llama.cpp's do, 0 to 1.
        decode: tokens a second of one sequence.
        prompt: tokens of a prompt read a second; None where it is not predicted.
        sequence: tokens of the prompt and of the answer.
        passes: repetitions of the sequence, the one that warms up included.
    """
    n_prompt, n_gen = sequence
    once = weight_bytes / _DISK
    if moved_share:
        once += moved_share * weight_bytes / moved_bytes_a_second
    reading = n_prompt / (prompt or _PROMPT_OVER_DECODE * decode)
    start = _LAB_START_S if is_lab else _START_S
    return start + _LOADS * once + _CHECKED / decode + passes * (reading + n_gen / decode)


def correction(estimated: Sequence[float], took: Mapping[int, float]) -> float:
    """By which factor the runs so far took longer than estimated."""
    known = sum(estimated[n] for n in took)
    return sum(took.values()) / known if known else 1.0


@dataclass(frozen=True)
class Prior:
    """A strategy before it is measured: its prior, how long measuring takes, what is assumed."""

    model: OptionModel
    seconds: float
    assumptions: tuple[str, ...]


def prior_of(
    request: Request, option: Option, links: Mapping[str, Mapping[str, float]]
) -> Prior | None:
    """The prior of a strategy; None where it cannot be predicted.

    Args:
        links: by fabric, rtt_us and bandwidth_gbps as measured.
    """
    asked = question(request, option.engine, links)
    found = forecast(asked, option.candidate, assumed(request.cluster))
    beside = option.candidate.parallelism == REPLICAS
    slots = slots_of(request.batch, len(option.candidate.servers))
    time = predicted_time(request.goal, found, request.n_prompt, request.n_gen, slots)
    if time is None:
        return None
    kind = kind_of(option.candidate.nodes[0].platform)
    split = "single" if beside else option.candidate.parallelism
    backend = next(iter(backends_of(option.candidate.nodes[0].platform)), "")
    strategy = facts.Strategy(option.engine, split, backend=backend)
    name = family(strategy, kind)
    constants = choose(name, kind).of(strategy, request.subject.model.facts)
    platforms = sorted({node.platform for node in option.candidate.nodes})
    published = dict(zip(PARTS, constants.deviations, strict=True))
    deviations, least = widened(published, platforms)
    model = OptionModel(name, time.parts, deviations, max(least, unexplained(time, published)))
    decode, prompt = found.decode.value, found.prompt.value if found.prompt else None
    passes = request.samples + 1.0
    if option.case.benchmark == SERVE:
        # Throughput is of all requests at once, so of each slot's one after the other.
        passes = request.samples * REQUESTS_A_SLOT + 1.0
    batch = request.batch
    cost = seconds(
        is_lab=request.cluster.is_lab,
        weight_bytes=request.subject.model.facts.weight_bytes,
        moved_bytes_a_second=_bytes_a_second(option.candidate, links),
        moved_share=_moved(option),
        decode=decode / batch,
        prompt=prompt / batch if prompt else None,
        sequence=(request.n_prompt, request.n_gen),
        passes=passes,
    )
    # predict's own options do not exist here.
    known = (one.partition("; give --what-if")[0] for one in found.assumptions)
    assumptions = dict.fromkeys((*known, *assumption_sentences(platforms)))
    return Prior(model, cost, tuple(assumptions))


def _bytes_a_second(candidate: Candidate, links: Mapping[str, Mapping[str, float]]) -> float:
    """Of one stream over a strategy's fabric, as measured or as usual; 0 on one node."""
    fabric, transport = candidate.fabric, candidate.transport
    if fabric is None or transport is None:
        return 0.0
    known = links.get(fabric.name, {}) if transport == "tcp" else {}
    facts = fabric_facts(
        fabric.kind,
        transport,
        fabric.speed_gbps,
        bandwidth_gbps=known.get("bandwidth_gbps"),
    )
    return facts.bandwidth_gbps * 1e9 / 8


def _moved(option: Option) -> float:
    """Share of the weights that the head sends over the fabric: llama.cpp's workers have none."""
    each = len(option.candidate.servers[0].nodes)
    if engines.find(option.engine).model_on_every_node:
        return 0.0
    return (each - 1) / each
