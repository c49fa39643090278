"""session: conversations that grow turn by turn, as agents have them with a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, cycle, islice, pairwise
from statistics import fmean
from typing import Any, ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.plugins import engines
from nixwulf.plugins.benchmarks import Benchmark, serve
from nixwulf.plugins.runtime import speculation
from nixwulf.plugins.runtime.openai_stream import Answer, Content, require_speeds
from nixwulf.plugins.runtime.request_load import Drafted, Load, LoadTarget, Pass, watched
from nixwulf.plugins.runtime.run import Run
from nixwulf.plugins.runtime.texts import KINDS, ROWS, Counting

_HIT = "hit"
_SHARE = "cached_share"
# Of a turn's prompt: a server that has less of the prompt before in its cache has dropped it. Whole
# blocks alone are kept by some, and an answer need not be the same tokens when it is read again.
_DROPPED_SHARE = 0.05
_OTHER_SHARE = 0.05


class SessionBenchmark(Benchmark):
    """Conversations at once, each a system prompt and turns that the one before has to end first.

    A turn is a user's message of `message` tokens, every so many turns with `insertion` more, as of
    a tool's output, and an answer of `n_gen` tokens, which stands in the next turn's prompt as the
    server wrote it. A metric of a turn has its number as condition `turn`.

    `ttft` (ms): from sending a turn to its first text. `cached_share` (%): of the turn's prompt,
    what the server had in its cache, by its usage or timings, with both numbers of tokens as
    observed; left out where it does not tell.
    `turn_decode` (tok/s): of the turn's answer. `server_prompt`, `server_decode`: its own timings.
    `session_time` (s): a whole session. `throughput` (tok/s): the answers of all sessions over the
    time of all. `client_busy` (%): the client's CPU time over that.

    With `cache: miss` each turn begins with another system prompt, as where it has the time of day,
    so that nothing can be taken from a cache; conversations of different sessions never begin
    alike. `raw/ID-rN/answers.jsonl` has the moment of each chunk.
    """

    name = "session"
    parameters: ClassVar = {
        **parameters_of("session", text=(ROWS, *KINDS)),
        "api": serve.Serve.parameters["api"],
    }
    engines = None
    shows_acceptance = True

    def measure(self, run: Run) -> list[Metric]:
        """Have all sessions once for each sample; raises RunFailure or StreamError."""
        with engines.find(run.case.engine or "").endpoint(run) as endpoint:
            return asyncio.run(watched([endpoint], partial(_load, run)))


BENCHMARK = SessionBenchmark()


@dataclass(frozen=True)
class Script:
    """What each session says, in tokens, as the parameters of the benchmark have it."""

    turns: int
    system: int
    message: int
    insertion: int
    every: int
    n_gen: int
    cache: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Script:
        """By the parameters of a case."""
        return cls(**{one.name: values[one.name] for one in fields(cls)})

    def said(self, turn: int) -> int:
        """Tokens of what the user says in a turn, of which the first is 1."""
        return self.message + (0 if turn % self.every else self.insertion)

    def prompt(self, turn: int) -> int:
        """Tokens of a turn's whole prompt, a template's not counted."""
        before = sum(self.said(one) + self.n_gen for one in range(1, turn))
        return self.system + before + self.said(turn)


@dataclass(frozen=True)
class Lines:
    """What one session says: the system prompt of each turn, and the user's messages."""

    systems: tuple[str, ...]
    messages: tuple[str, ...]

    def prompt(self, api: str, answers: Sequence[str]) -> Content:
        """Of the turn after so many answers, which it has as the server wrote them."""
        turn = len(answers)
        system, latest = self.systems[turn], self.messages[turn]
        before = list(zip(self.messages, answers, strict=False))
        if api == "completions":
            return " ".join([system, *(said + answer for said, answer in before), latest])
        chat = [{"role": "system", "content": system}]
        for said, answer in before:
            chat += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
        return [*chat, {"role": "user", "content": latest}]


@dataclass(frozen=True)
class Conversations:
    """The sessions of one pass: the answers of each by turn, and what the client cost.

    drafted: tokens of a draft, where they are counted.
    """

    answers: tuple[tuple[Answer, ...], ...]
    client_seconds: float
    drafted: Drafted | None = None

    def documents(self) -> Iterator[dict[str, Any]]:
        """Each answer as a line of the raw file, with its session and turn."""
        for session, answers in enumerate(self.answers):
            for turn, answer in enumerate(answers, 1):
                yield {"session": session, "turn": turn, **answer.document()}

    @property
    def whole(self) -> Pass:
        """All of it, as of one load."""
        answers = tuple(chain.from_iterable(self.answers))
        return Pass(answers, self.client_seconds, drafted=self.drafted)


async def _load(run: Run, servers: Sequence[LoadTarget]) -> list[Metric]:
    case, values = run.case, run.case.parameters
    script = Script.of(values)
    load = Load(servers, values["api"], case.seed, script.message, values["text"], keeps_text=True)
    counting = await load.learn()
    if counting:
        load.require("system", script.system, counting)
        load.require("message", script.message + counting.own, counting)
    sessions = values["concurrency"]
    if case.warm_up:
        short = replace(script, turns=1, n_gen=min(script.n_gen, serve.WARM_UP_TOKENS))
        await _converse(load, counting, short, sessions)
    passes = []
    for index in range(case.samples):
        sending = _converse(load, counting, script, sessions)
        one, drafted = await speculation.counted(values, servers, sending, lambda sent: sent.whole)
        passes.append(replace(one, drafted=drafted))
        serve.keep(run, ({"pass": index, **document} for document in one.documents()))
    wholes = [one.whole for one in passes]
    drafts = speculation.drafts(values, wholes)
    run.warnings += warnings(passes, script, counting, drafts=drafts)
    holds = conditions({**values, "ignore_eos": bool(load.extra)}, passes, counting)
    state = "warm" if case.warm_up else "cold"
    found = metrics(passes, script, state, holds, drafts=drafts)
    return speculation.with_acceptance(found, wholes, run) if drafts else found


async def _converse(
    load: Load, counting: Counting | None, script: Script, sessions: int
) -> Conversations:
    """So many sessions at once, from their first turn on; raises StreamError."""
    texts = [await _lines(load, counting, script) for _ in range(sessions)]
    cpu = time.thread_time()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_session(load, one, script.n_gen)) for one in texts]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return Conversations(tuple(task.result() for task in tasks), time.thread_time() - cpu)


async def _lines(load: Load, counting: Counting | None, script: Script) -> Lines:
    own = counting.own if counting else 0
    turns = range(1, script.turns + 1)
    several = 1 if script.cache == _HIT else script.turns
    systems = [await load.text_of(counting, script.system) for _ in range(several)]
    said = [await load.text_of(counting, script.said(turn) + own) for turn in turns]
    return Lines(tuple(islice(cycle(systems), script.turns)), tuple(said))


async def _session(load: Load, lines: Lines, n_gen: int) -> tuple[Answer, ...]:
    found: list[Answer] = []
    for _ in lines.messages:
        prompt = lines.prompt(load.api, [answer.text for answer in found])
        found.append(await load.ask(0, prompt, n_gen))
    return tuple(replace(answer, text="") for answer in found)


def conditions(
    values: Mapping[str, Any], passes: Sequence[Conversations], counting: Counting | None
) -> dict[str, Any]:
    """What all metrics hold for; values and counting are as of serve."""
    found = {key: values[key] for key in SessionBenchmark.parameters}
    if found["text"] in KINDS:
        found["text_digest"] = KINDS[found["text"]].digest
    answers = [answer for one in passes for answer in one.whole.answers]
    whole = all(serve.is_whole(answer, values["n_gen"]) for answer in answers)
    found["ignore_eos"] = values["ignore_eos"] and whole
    if counting is None:
        found["prompts_in"] = "words"
    if not all(answer.counted for answer in answers):
        found["counted_by"] = "chunks"
    return found


def metrics(
    passes: Sequence[Conversations],
    script: Script,
    state: str,
    conditions: Mapping[str, object],
    *,
    drafts: bool = False,
) -> list[Metric]:
    """Those of each turn, over all sessions and passes, then those of whole sessions.

    state and drafts are as of serve.
    """
    found = []
    for turn in range(1, script.turns + 1):
        answers = [session[turn - 1] for one in passes for session in one.answers]
        found += _of_turn(answers, state, {**conditions, "turn": turn}, drafts=drafts)
    every = [answers for one in passes for answers in one.answers]
    seconds = [answers[-1].came[-1] - answers[0].sent for answers in every]
    wholes = [one.whole for one in passes]
    speeds = [one.tokens / one.seconds for one in wholes]
    busy = [one.client_share * 100 for one in wholes]
    told = any(answer.cached_tokens is not None for one in wholes for answer in one.answers)
    return [
        *(one for one in found if told or one.name != _SHARE),
        Metric(
            "session_time", "s", speculation.rounded(seconds), state, conditions, distribution=True
        ),
        replace(
            Metric("throughput", "tok/s", speculation.rounded(speeds), state, conditions),
            windows=tuple(one.window for one in wholes),
        ),
        Metric("client_busy", "%", speculation.rounded(busy), state, conditions),
    ]


def _of_turn(
    answers: Sequence[Answer], state: str, holds: Mapping[str, object], *, drafts: bool
) -> list[Metric]:
    """One sample for each session; its share of the cache where prompts were counted."""

    def metric(name: str, unit: str, samples: Sequence[float], *, spread: bool = False) -> Metric:
        return Metric(name, unit, speculation.rounded(samples), state, holds, distribution=spread)

    found = [metric("ttft", "ms", [answer.ttft_ms for answer in answers], spread=True)]
    prompts = [answer.prompt_tokens or 0 for answer in answers]
    if all(prompts):
        cached = [answer.cached_tokens or 0 for answer in answers]
        shares = [100 * part / whole for part, whole in zip(cached, prompts, strict=True)]
        means = {"prompt_tokens": fmean(prompts), "cached_tokens": fmean(cached)}
        found.append(replace(metric(_SHARE, "%", shares), observed=means))
    rates = [answer.decode for answer in answers if answer.decode is not None]
    decode = bool(rates) and not any(serve.came_in_bulk(one, drafts=drafts) for one in answers)
    require_speeds(answers, decode=decode, drafts=drafts)
    if decode:
        found.append(metric("turn_decode", "tok/s", rates, spread=True))
    for name, (key, unit) in serve.SERVER_FIGURES.items():
        if all(answer.timings.get(key, 0) > 0 for answer in answers):
            found.append(metric(name, unit, [answer.timings[key] for answer in answers]))
    return found


def warnings(
    passes: Sequence[Conversations],
    script: Script,
    counting: Counting | None,
    *,
    drafts: bool = False,
) -> list[str]:
    """What a reader has to know: lost caches, odd counts, a busy client; given is as of serve."""
    sessions = [answers for one in passes for answers in one.answers]
    answers = list(chain.from_iterable(sessions))
    found = [*_of_cache(sessions, script, counting), *_of_prompts(sessions, script, counting)]
    short = [answer for answer in answers if not serve.is_whole(answer, script.n_gen)]
    if short:
        found.append(
            f"Of {len(answers)} answers {len(short)} had another length than n_gen, the first "
            f"{short[0].tokens} instead of {script.n_gen} (finish_reason {short[0].finish!r})."
        )
    if bulk := sum(serve.came_in_bulk(one, drafts=drafts) for one in answers):
        found.append(
            f"Of {len(answers)} answers {bulk} came in bulk, as of serve: turn_decode of those "
            "turns would not be of the server, and is left out."
        )
    busy = max(one.whole.client_share for one in passes)
    return [*found, *serve.busy_client(busy)]


def _of_cache(
    sessions: Sequence[Sequence[Answer]], script: Script, counting: Counting | None
) -> Iterator[str]:
    """A sentence where the server lost what it had in its cache, or does not tell."""
    if counting is None:
        yield (
            "The server does not count prompts: they have words of three letters, or of a text, "
            "and how many tokens is not known."
        )
    elif all(answer.cached_tokens is None for answer in chain.from_iterable(sessions)):
        yield (
            "The server does not tell what it had in its cache: ttft of a later turn is of the new "
            "tokens or of all of them."
        )
    elif script.cache == _HIT:
        pairs = [pair for one in sessions for pair in pairwise(one)]
        lost = [pair for pair in pairs if _dropped(*pair, counting)]
        if lost:
            before, first = lost[0]
            yield (
                f"Of {len(pairs)} turns after the first {len(lost)} had less in the cache than the "
                f"prompt of the turn before, the first {first.cached_tokens or 0} tokens of "
                f"{before.prompt_tokens}: the server gave the slot away, or cannot go back in it."
            )


def _of_prompts(
    sessions: Sequence[Sequence[Answer]], script: Script, counting: Counting | None
) -> Iterator[str]:
    """A sentence where prompts have other lengths than planned, by a server that counts them."""
    planned = [script.prompt(turn) for turn in range(1, script.turns + 1)]
    prompts = [
        (one.prompt_tokens or 0, plan)
        for own in sessions
        for one, plan in zip(own, planned, strict=True)
    ]
    odd = [pair for pair in prompts if abs(pair[0] - pair[1]) > _OTHER_SHARE * pair[1]]
    if counting and odd:
        has, plan = odd[0]
        yield (
            f"Of {len(prompts)} prompts {len(odd)} had another length than planned by the server's "
            f"usage, the first {has} tokens instead of {plan}: a chat's template, or answers that "
            "are other tokens when they are read again, as of random weights."
        )


def _dropped(before: Answer, answer: Answer, counting: Counting) -> bool:
    """Whether less than the prompt of the turn before was in the cache."""
    prompt = before.prompt_tokens or 0
    spare = counting.own + max(serve.CACHE_BLOCK, _DROPPED_SHARE * prompt)
    return (answer.cached_tokens or 0) < prompt - spare
