"""Speculative decoding: what drafts tokens, and how many of them the model accepted.

A step of the model checks a few drafted tokens at once and makes one of its own, so that decode is
as fast as tokens are accepted, which depends on the text.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from nixwulf.core import web
from nixwulf.core.errors import InputError
from nixwulf.core.metric import Metric
from nixwulf.core.query import grouped
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.openai_stream import require_counts
from nixwulf.plugins.runtime.request_load import Drafted, LoadTarget, Pass
from nixwulf.plugins.runtime.run import Run, RunFailure

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
DRAFT, DRAFT_TOKENS = "draft", "draft_tokens"
NONE, NGRAM, MTP, MODEL, METHOD = "none", "ngram", "mtp", "model", "method"
"""Kinds of drafts: of nothing, of the text so far, of layers of the model itself, of a model, and
of whatever method the engine has by a word of its own."""
KINDS = (NGRAM, MTP, MODEL, METHOD)
_TOKENS = "num_speculative_tokens"
# The flags of vLLM by which somebody may have given it a draft by hand.
_BY_HAND = ("--speculative-config", "-sc")
PARAMETERS = (DRAFT, DRAFT_TOKENS)
USUAL_TOKENS = 3
_MOST_STEPS = 1e15
_SPEEDS = ("decode", "turn_decode", "throughput", "server_decode")
# vLLM's and llama-server's counters; SGLang counts steps alone
# (https://github.com/vllm-project/vllm/blob/main/vllm/v1/spec_decode/metrics.py,
# https://github.com/sgl-project/sglang: srt/observability/metrics_collector.py of 0.5.23).
_COUNTER = re.compile(
    r"^\w+:spec_(?:decode_num_)?(draft_tokens|accepted_tokens|verify_calls)(?:_total)?"
    r"(?:\{[^}]*\})? (-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Drafter:
    """What drafts in a case.

    kind: of the above. method: the engine's own word for it; empty: it is known by the kind, or by
    the model's files. model: a name among the sweep's models, or a path. tokens: for a step; 0:
    the engine's own. more: further keys for the engine. by_hand: it stands in the arguments.
    """

    kind: str
    method: str = ""
    model: str = ""
    tokens: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)
    by_hand: bool = False

    @property
    def own(self) -> bool:
        """Whether it is written in the engine's own words, which are passed on as they are."""
        return bool(self.method or self.more)


def of(parameters: Mapping[str, Any]) -> Drafter:
    """The draft of a case."""
    given = str(parameters.get(DRAFT, NONE))
    tokens = int(parameters.get(DRAFT_TOKENS, 0))
    if given == NONE:
        return _by_hand(passthrough.arguments(parameters)) or Drafter(NONE, tokens=tokens)
    if given.startswith("{"):
        return _read(json.loads(given))
    kind = given if given in (NGRAM, MTP) else MODEL
    return Drafter(kind, model=given if kind == MODEL else "", tokens=tokens)


def as_text(value: object, source: str) -> Any:
    """A draft {method, model, tokens, ...} as the text that a case has; a word as it is.

    Raises InputError: it has neither method nor model, or a number of tokens that is none.
    """
    if not isinstance(value, Mapping):
        return value
    tokens = value.get("tokens", 1)
    words = [value.get(key, "-") for key in ("method", "model")]
    if not value.keys() & {"method", "model"} or not all(w and isinstance(w, str) for w in words):
        raise InputError(
            f"{source}: the draft {dict(value)} has no method and no model, both texts; write "
            "draft: {method: eagle3, model: NAME, tokens: 5}, or one of the two."
        )
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise InputError(
            f"{source}: the draft's tokens are {tokens!r}, expected int of at least 1."
        )
    return json.dumps(value, sort_keys=True)


def _read(document: Mapping[str, Any], *, by_hand: bool = False) -> Drafter:
    """A draft {method, model, tokens, ...}."""
    rest = dict(document)
    method, model = str(rest.pop("method", "")), str(rest.pop("model", ""))
    tokens = int(rest.pop("tokens", 0))
    kind = MODEL if model else method if method in (NGRAM, MTP) else METHOD
    return Drafter(kind, "" if method == kind else method, model, tokens, rest, by_hand)


def _apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments without those that give vLLM a draft by hand, and those: JSON, or key by key."""
    rest: list[str] = []
    own: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.partition(".")[0] in _BY_HAND:
            own += [flag, *([value] if equals else [])]
        else:
            (own if len(own) % 2 else rest).append(word)
    return rest, own


def _by_hand(words: Sequence[str]) -> Drafter | None:
    """The draft that arguments give, whose model is vLLM's to find; None without one."""
    _, own = _apart(words)
    if not own:
        return None
    try:
        document = dict(json.loads(own[1]))
        tokens = {"tokens": document.pop(_TOKENS)} if _TOKENS in document else {}
        return replace(_read({**document, **tokens}, by_hand=True), model="")
    except (ValueError, TypeError, IndexError, RecursionError):
        return Drafter(METHOD, by_hand=True)  # key by key, or vLLM says what is wrong with it


def flags(prefix: str, values: Mapping[str, object]) -> list[str]:
    """Keys as flags that all begin alike, so that none is another kind of flag; True is alone."""
    words = []
    for key, value in values.items():
        text = [] if value is True else [value if isinstance(value, str) else json.dumps(value)]
        words += [f"{prefix}{key.replace('_', '-')}", *text]
    return words


def kind(parameters: Mapping[str, object]) -> str:
    """Which kind of draft a case has."""
    return of(parameters).kind


def speculates(parameters: Mapping[str, Any]) -> bool:
    """Whether a case has a draft."""
    return kind(parameters) != NONE


def draft_model(parameters: Mapping[str, Any]) -> str | None:
    """The name or path of a case's draft model, or None."""
    return of(parameters).model or None


def tokens(parameters: Mapping[str, object]) -> int:
    """Tokens that are drafted for a step; 0: the engine's own, as of a draft in its own words."""
    draft = of(parameters)
    return draft.tokens or (0 if draft.own or draft.by_hand else USUAL_TOKENS)


def problem(engine: str, kinds: Collection[str], parameters: Mapping[str, Any]) -> str | None:
    """Why an engine cannot draft as a case asks, or None."""
    given, asked = parameters.get(DRAFT_TOKENS, 0), kind(parameters)
    if asked == NONE:
        words = f"draft_tokens {given} are of no draft; give one, or draft_tokens 0"
        return words if given else None
    if not kinds:
        return f"{engine} is not driven with a draft"
    if parameters.get(DRAFT, NONE) != NONE and _apart(passthrough.arguments(parameters))[1]:
        return f"the draft is given twice, by {_BY_HAND[0]} and by the parameter draft"
    own = of(parameters).own and METHOD not in kinds
    if asked not in kinds or own:
        ways = {NGRAM: "by ngram", MTP: "by mtp", MODEL: "by a model", METHOD: "by its own methods"}
        return f"{engine} drafts {' and '.join(ways[one] for one in kinds)} only"
    return None


def without(run: Run) -> Run:
    """The same run without its draft: its text is what the draft must not change."""
    kept = {key: one for key, one in run.case.parameters.items() if key not in PARAMETERS}
    rest, own = _apart(passthrough.arguments(kept))
    if own:
        kept[passthrough.ARGUMENTS] = shlex.join(rest)
    return replace(run, case=replace(run.case, parameters=kept), draft="")


async def counted(
    parameters: Mapping[str, object],
    servers: Sequence[LoadTarget],
    sending: Awaitable[T],
    as_pass: Callable[[T], Pass],
) -> tuple[T, Drafted | None]:
    """What was sent, and what was drafted in it where the server counts.

    A server that the run did not start may draft whatever the case says.
    """
    asks = speculates(parameters) or any(server.foreign for server in servers)
    before = [await _counters(server.client) for server in servers if asks]
    sent = await sending
    found = _of_answers(as_pass(sent))
    if found is None and asks:
        after = [await _counters(server.client) for server in servers]
        found = _between(_sums(before), _sums(after), as_pass(sent), tokens(parameters))
    return sent, found


def drafts(parameters: Mapping[str, object], passes: Iterable[Pass]) -> bool:
    """Whether a case has a draft, or its server drafted without being asked to."""
    return speculates(parameters) or any(one.drafted and one.drafted.drafted for one in passes)


def _of_answers(one: Pass) -> Drafted | None:
    """By llama-server's figures of each answer, which has no such ones where nothing was drafted.

    https://github.com/ggml-org/llama.cpp/tree/master/tools/server
    """
    if not all("predicted_n" in answer.timings for answer in one.answers):
        return None
    found = [
        sum(int(answer.timings.get(key, 0)) for answer in one.answers)
        for key in ("draft_n", "draft_n_accepted")
    ]
    return Drafted(*found)


async def _counters(client: httpx.AsyncClient) -> dict[str, float]:
    """A server's counters by the end of their names; empty where it has none."""
    try:
        answer = await web.receive(client, "GET", "/metrics")
    except web.NoAnswer:
        return {}
    return counters(answer.text) if answer.ok else {}


def counters(text: str) -> dict[str, float]:
    """The counters of drafts in what /metrics answers, over all their labels."""
    return _sums({name: float(value)} for name, value in _COUNTER.findall(text))


def _sums(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    values = grouped(pair for one in found for pair in one.items())
    return {name: sum(each) for name, each in values.items()}


def _between(
    before: Mapping[str, float], after: Mapping[str, float], one: Pass, each: int
) -> Drafted | None:
    more = {name: value - before.get(name, 0.0) for name, value in after.items()}
    grown = {name: round(value) if isfinite(value) else value for name, value in more.items()}
    drafted = grown.get("draft_tokens", 0)
    require_counts(grown, dict.fromkeys(grown, _MOST_STEPS) | {"accepted_tokens": drafted})
    if "draft_tokens" in grown and "accepted_tokens" in grown:
        return Drafted(int(drafted), int(grown["accepted_tokens"]))
    steps = int(grown.get("verify_calls", -1))
    # A step makes one token, and has one more for each that it accepts.
    accepted = max(0, _after_first(one) - steps) if steps else 0
    # More than were drafted: the server drafts more for a step than is known.
    return Drafted(steps * each, accepted) if 0 <= accepted <= steps * each else None


def _after_first(one: Pass) -> int:
    """Tokens of a pass less the first of each answer, which comes of the prompt."""
    return one.tokens - len(one.answers)


def steps(one: Pass) -> int:
    """Steps of the model in a pass, each of which made a token and accepted others."""
    return _after_first(one) - (one.drafted.accepted if one.drafted else 0)


def with_acceptance(found: Sequence[Metric], passes: Sequence[Pass], run: Run) -> list[Metric]:
    """The metrics of drafted passes: speeds with their acceptance, and that itself.

    `acceptance` (%): accepted of drafted tokens, by pass. `tokens_per_step` (tok/step): tokens
    after the first of each answer over the steps that made them.

    run: gets a warning where the server does not count.

    Raises RunFailure: fallback, where a model drafted nothing.
    """
    known = [one.drafted for one in passes if one.drafted]
    drafted = sum(one.drafted for one in known)
    accepted = sum(one.accepted for one in known)
    if len(known) < len(passes):
        words = "acceptance not counted"
        run.warnings.append(
            "The server does not count drafted tokens: which share was accepted is not known, and "
            "decode holds for texts like these alone."
        )
    elif not drafted:
        words = "nothing drafted"
        if kind(run.case.parameters) in (MTP, MODEL):
            raise RunFailure(
                f"The draft {run.case.parameters.get(DRAFT)!r} drafted no token, so that decode "
                "would be that without a draft.",
                "fallback",
            )
        run.warnings.append(
            "No text of the answers repeats what was before, so that nothing was drafted and "
            "decode is that without a draft."
        )
    else:
        words = f"{100 * accepted / drafted:.1f} %"
    marked = [
        replace(one, observed={**one.observed, "acceptance": words}) if one.name in _SPEEDS else one
        for one in found
    ]
    if len(known) < len(passes):
        return marked
    shares = [one.acceptance for one in known if one.acceptance is not None]
    lengths = [_after_first(one) / steps(one) for one in passes if steps(one) > 0]
    place, first = next((n, one) for n, one in enumerate(marked) if one.name == "throughput")
    added = [
        Metric(name, unit, rounded(values), first.state, first.conditions, observed=seen)
        for name, unit, values, seen in (
            ("acceptance", "%", shares, {"drafted": drafted, "accepted": accepted}),
            ("tokens_per_step", "tok/step", lengths, {}),
        )
        if values
    ]
    return [*marked[:place], *added, *marked[place:]]


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Samples as metrics have them."""
    return tuple(round(value, 4) for value in values)
