"""serve: streamed requests to an OpenAI-compatible server, several in flight at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.nodes.ssh import each
from nixwulf.plugins import engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime import speculation
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.openai_stream import PATHS, Answer, require_speeds
from nixwulf.plugins.runtime.request_load import Load, LoadTarget, Pass, watched
from nixwulf.plugins.runtime.run import Run, RunFailure, replicas
from nixwulf.plugins.runtime.texts import KINDS, NUMBER_WORDS, ROWS, Counting
from nixwulf.results.identity import REPLICAS

WARM_UP_TOKENS = 16
# Above it, a stream's times are the client's as much as the server's.
_CLIENT_SHARE = 0.5
# Chunks that the client reads at once are 0.01 to 0.02 ms apart; no engine is that fast.
TOGETHER_MS = 0.05
_TOGETHER_SHARE = 0.1
# More of one answer, and the time from its first chunk to its last is no time of generation.
_BULK_SHARE = 0.5
# As much of the tokens after the first may have come in the first chunk, when chunks hold several.
_FIRST_SHARE = 0.2
# Of a prompt: less is the chat template, or a first word that two prompts happen to share.
_CACHED_SHARE = 0.1
# Tokens of a block of vLLM's cache, which only whole ones are taken from.
CACHE_BLOCK = 16
# Figures that llama-server gives of itself, https://github.com/ggml-org/llama.cpp/tree/master/tools/server
SERVER_FIGURES = {
    "server_prompt": ("prompt_ms", "ms"),
    "server_decode": ("predicted_per_second", "tok/s"),
}


class Serve(Benchmark):
    """A closed loop: as many requests in flight as asked; a slot that is free sends the next.

    `ttft` (ms): from sending a request, connection included, to its first text. `itl` (ms): between
    chunks with text that follow each other. `decode` (tok/s): the tokens of a request after the
    first, over the time from the first to the last. `throughput` (tok/s): all tokens of a pass,
    which gets watts. `server_prompt`, `server_decode`: the server's own timings where it gives
    them. `client_busy` (%): the client's CPU time over the pass.

    Requests are greedy, with `ignore_eos` where the server takes it. A server without `usage` in
    streams is measured by chunks, and the conditions then have `counted_by: chunks`.
    `raw/ID-rN/answers.jsonl` has the moment of each chunk.

    `text` is of what prompts are made: rows of three-letter words, prose, a program, or prose that
    is to be repeated, which a draft guesses best. Prose and program were written for the driver,
    have some 1,600 and 2,400 tokens, and come again in longer prompts; `text_digest` is of them.
    With `depth`, each slot has a beginning of so many tokens, sent once before all passes, and its
    prompts go on from there: `depth_from` is cache where the server's counts show that it had the
    beginning there, computed where it had not, unknown where it does not tell.

    With a `draft`, `acceptance` (%) is the share of drafted tokens that the model accepted by the
    server's counts, and `tokens_per_step` (tok/step) how many a step of it made; speeds stand with
    their acceptance. There is no `itl`: the tokens of a step come together.

    Of `replicas` each node has a server, of `servers` each group of nodes: a request goes to that
    with the fewest in flight. `replica_throughput` (tok/s) is of each, by its head, over the time
    of the whole pass.
    """

    name = "serve"
    parameters: ClassVar = parameters_of("serve", text=(ROWS, *KINDS), api=PATHS)
    engines = None
    measures_replicas = True
    shows_acceptance = True

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Also a number of servers that the nodes, or the requests, are not enough for."""
        parameters, nodes = point["parameters"], point["nodes"]
        problem, servers = super().unsupported(point), parameters.get("servers", 1)
        if problem or servers == 1:
            return problem
        if point["parallelism"] in ("single", REPLICAS):
            return (
                f"servers {servers} is of groups of nodes by pipeline or tensor; replicas have a "
                "server on each node"
            )
        if nodes % servers or nodes // servers == 1:
            return f"{nodes} nodes are no {servers} groups of as many nodes, two or more each"
        if parameters["concurrency"] < servers:
            return (
                f"{parameters['concurrency']} requests at once leave one of {servers} servers "
                "without any, and its transport unproved; raise concurrency"
            )
        return None

    def measure(self, run: Run) -> list[Metric]:
        """Send all requests once for each sample; raises RunFailure or StreamError."""
        engine = engines.find(run.case.engine or "")
        with ExitStack() as stack:

            def start(one: Run) -> Endpoint:
                return stack.enter_context(engine.endpoint(one))

            several = replicas(run)
            endpoints = each(start, several) if len(several) > 1 else [start(run)]
            return asyncio.run(watched(endpoints, partial(_load, run)))


BENCHMARK = Serve()


async def _load(run: Run, servers: Sequence[LoadTarget]) -> list[Metric]:
    case, values = run.case, run.case.parameters
    slots, n_gen, n_prompt = values["concurrency"], values["n_gen"], values["n_prompt"]
    text, depth = values.get("text", ROWS), values.get("depth", 0)
    load = Load(servers, values["api"], case.seed, n_prompt, text, depth)
    counting = await load.prepare()
    if depth:
        await load.fill(counting, slots)
    if case.warm_up:
        await load.send(counting, slots, slots, min(n_gen, WARM_UP_TOKENS))
    passes = []
    for index in range(case.samples):
        sending = load.send(counting, values["requests"], slots, n_gen)
        one, drafted = await speculation.counted(values, servers, sending, lambda sent: sent)
        passes.append(replace(one, drafted=drafted))
        keep(run, ({"pass": index, **document} for document in one.documents()))
    drafts = speculation.drafts(values, passes)
    run.warnings += warnings(passes, Asked(n_prompt, n_gen, counting, depth, drafts=drafts))
    known = {**values, "ignore_eos": bool(load.extra)}
    holds = conditions(known, passes, counting)
    state = "warm" if case.warm_up else "cold"
    found = metrics(passes, state, holds, drafts=drafts)
    if drafts:
        found = speculation.with_acceptance(found, passes, run)
    if len(servers) > 1:
        names = [one.head.node.name for one in replicas(run)]
        run.warnings += idle(slots, len(servers))
        found += of_replicas(passes, names, state, holds)
    return found


def of_replicas(
    passes: Sequence[Pass], nodes: Sequence[str], state: str, conditions: Mapping[str, object]
) -> list[Metric]:
    """The tokens of each replica over the time of the whole pass, tok/s: their sum is throughput.

    nodes are names, in the order of the servers.
    """
    return [
        Metric(
            "replica_throughput",
            "tok/s",
            tuple(round(one.tokens_of(place) / one.seconds, 4) for one in passes),
            state,
            {**conditions, "node": name},
        )
        for place, name in enumerate(nodes)
    ]


def idle(slots: int, replicas: int) -> list[str]:
    """A sentence where so many requests at once leave replicas without one."""
    if slots >= replicas:
        return []
    return [
        f"Of {replicas} replicas {replicas - slots} had no request at any moment: {slots} were in "
        "flight at once; raise concurrency, or take fewer nodes."
    ]


def conditions(
    values: Mapping[str, Any], passes: Sequence[Pass], counting: Counting | None
) -> dict[str, Any]:
    """What the metrics hold for; a prompt that was not counted has no number of tokens.

    ignore_eos holds where it was asked for and no answer ended early: mlx_lm.server, exo and
    dllama-api accept the key, as any other, and end where the model does.

    values: the case's parameters, and whether requests had ignore_eos. counting: how the server
    counts prompts; None where it does not.
    """
    found = {key: values[key] for key in Serve.parameters if key in values and key != "servers"}
    if "text" in found:
        found["text_digest"] = KINDS[found["text"]].digest
    answers = [answer for one in passes for answer in one.answers]
    whole = all(is_whole(answer, values["n_gen"]) for answer in answers)
    found["ignore_eos"] = values["ignore_eos"] and whole
    if counting is None:
        found["prompt_words"] = max(NUMBER_WORDS, found.pop("n_prompt"))
    if depth := found.pop("depth", 0):
        found["n_depth" if counting else "depth_words"] = depth
        found["depth_from"] = _depth_from(answers, depth, counting)
    if not all(answer.counted for answer in answers):
        found["counted_by"] = "chunks"
    return found


def _depth_from(answers: Sequence[Answer], depth: int, counting: Counting | None) -> str:
    """Where the tokens before the prompts came from: 'cache', 'computed' or 'unknown'.

    A server that counts them says nothing of an answer that had none in its cache.
    """
    cached = [answer.cached_tokens for answer in answers]
    if counting is None or all(tokens is None for tokens in cached):
        return "unknown"
    return "cache" if all(_has_depth(answer, depth, counting) for answer in answers) else "computed"


def _has_depth(answer: Answer, depth: int, counting: Counting) -> bool:
    """Whether a prompt's beginning came from the cache, less what servers never have there.

    That is the end of a chat's template, and a block that is not full.
    """
    missing = depth - (answer.cached_tokens or 0)
    return missing <= counting.own + max(CACHE_BLOCK, _CACHED_SHARE / 2 * depth)


def keep(run: Run, documents: Iterable[Mapping[str, Any]]) -> None:
    """Each answer of a pass as a line more of a file, from which all numbers can be had again."""
    run.raw.mkdir(parents=True, exist_ok=True)
    with (run.raw / "answers.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(document)}\n" for document in documents)


def metrics(
    passes: Sequence[Pass], state: str, conditions: Mapping[str, object], *, drafts: bool = False
) -> list[Metric]:
    """The metrics of all passes.

    ttft, itl: ms, of each request and between its chunks; decode: tok/s of each request after its
    first token, both left out where an answer came in bulk; throughput: tok/s of each pass, all its
    tokens over its wall time; the server's own timings where all answers have them; client_busy: %
    of the time that the client computed.

    state: "warm" or "cold". drafts: whether tokens are drafted: those of a step come together, so
    that there is no itl.

    Raises RunFailure: no answer has a time between tokens.
    """
    answers = [answer for one in passes for answer in one.answers]
    rates = [answer.decode for answer in answers if answer.decode is not None]
    if not rates:
        raise RunFailure(
            "Every answer came in one piece: the endpoint does not stream, so there is no time "
            "between tokens."
        )

    def metric(name: str, unit: str, samples: Sequence[float], *, spread: bool = False) -> Metric:
        rounded = tuple(round(sample, 4) for sample in samples)
        return Metric(name, unit, rounded, state, conditions, distribution=spread)

    gaps = [gap for answer in answers for gap in answer.gaps_ms]
    between = [
        *([] if drafts else [metric("itl", "ms", gaps, spread=True)]),
        metric("decode", "tok/s", rates, spread=True),
    ]
    in_bulk = any(came_in_bulk(answer, drafts=drafts) for answer in answers)
    require_speeds(answers, decode=not in_bulk, drafts=drafts)
    found = [
        metric("ttft", "ms", [answer.ttft_ms for answer in answers], spread=True),
        *([] if in_bulk else between),
        replace(
            metric("throughput", "tok/s", [one.tokens / one.seconds for one in passes]),
            # perf_counter and monotonic are the same clock on Linux and on macOS (PEP 418).
            windows=tuple(one.window for one in passes),
        ),
    ]
    for name, (key, unit) in SERVER_FIGURES.items():
        if all(answer.timings.get(key, 0) > 0 for answer in answers):
            found.append(metric(name, unit, [answer.timings[key] for answer in answers]))
    return [*found, metric("client_busy", "%", [one.client_share * 100 for one in passes])]


def is_whole(answer: Answer, n_gen: int) -> bool:
    """Whether an answer has all the tokens that were asked for; chunks may hold several."""
    return answer.tokens == n_gen or (not answer.counted and answer.finish == "length")


def came_in_bulk(answer: Answer, *, drafts: bool) -> bool:
    """Whether the times of an answer's chunks are none of its tokens, of which a step drafts some.

    Most were read at once with the one before, too few came to tell how many tokens were in the
    first, or the server was seen to hold answers back.
    """
    gaps, each = answer.gaps_ms, answer.tokens / len(answer.came)
    together = sum(gap < TOGETHER_MS for gap in gaps) > _BULK_SHARE * len(gaps)
    few = bool(gaps) and each > 1 and each - 1 >= _FIRST_SHARE * (answer.tokens - 1)
    return answer.held or (not drafts and (together or few))


@dataclass(frozen=True)
class Asked:
    """What was asked of a server: tokens of prompts, of answers, and before prompts.

    counting: how the server counts prompts, None where it does not. drafts: whether the tokens of a
    step come together.
    """

    n_prompt: int
    n_gen: int
    counting: Counting | None
    depth: int = 0
    drafts: bool = False

    @property
    def wanted(self) -> int:
        """Tokens of a whole prompt."""
        return self.depth + self.n_prompt


# By the key of its words in the data.
_HOLDS: Mapping[str, Callable[[Asked, Answer], bool]] = {
    "other_chunks": lambda asked, one: not asked.drafts and len(one.came) != one.tokens,
    "in_bulk": lambda asked, one: came_in_bulk(one, drafts=asked.drafts),
    "uncounted": lambda asked, one: not one.counted,
    "other_prompt": lambda asked, one: one.counted and one.prompt_tokens != asked.wanted,
    "other_length": lambda asked, one: one.tokens != asked.n_gen,
    "from_cache": lambda asked, one: (
        (one.cached_tokens or 0) - asked.depth
        > (asked.counting.own if asked.counting else 0) + _CACHED_SHARE * asked.n_prompt
    ),
    "without_depth": lambda asked, one: (
        asked.depth > 0
        and asked.counting is not None
        and not _has_depth(one, asked.depth, asked.counting)
    ),
}


def _doubts(kind: str, asked: Asked, answers: Sequence[Answer]) -> Iterator[str]:
    for key, words in read_toml(DATA / "answer_doubts.toml")[kind].items():
        if doubted := [one for one in answers if _HOLDS[key](asked, one)]:
            first = doubted[0]
            text = words.format_map(
                {
                    **vars(asked),
                    **vars(first),
                    "chunks": len(first.came),
                    "lengths": f"{'depth and ' if asked.depth else ''}n_prompt",
                    "wanted": asked.wanted,
                    "counted_in": "tokens" if first.counted else "chunks with text",
                    "cached": first.cached_tokens or 0,
                }
            )
            yield f"Of {len(answers)} answers {len(doubted)} {text}."


def warnings(passes: Sequence[Pass], asked: Asked) -> list[str]:
    """What a reader of the numbers has to know: counts that disagree, caches, a busy client."""
    answers = [answer for one in passes for answer in one.answers]
    found = [*_doubts("chunks", asked, answers)]
    if asked.counting is None:
        found.append(
            f"The server does not count prompts: they had {max(NUMBER_WORDS, asked.n_prompt)} "
            "words of three letters, and how many tokens is not known."
        )
    found += _doubts("lengths", asked, answers)
    gaps = [gap for answer in answers for gap in answer.gaps_ms]
    together = sum(gap < TOGETHER_MS for gap in gaps)
    if not asked.drafts and together > _TOGETHER_SHARE * len(gaps):
        found.append(
            f"Of {len(gaps)} chunks {together} were read at once with the one before: the server, "
            "the network or this machine delivers several together, so itl is not between tokens."
        )
    return [*found, *busy_client(max(one.client_share for one in passes))]


def busy_client(share: float) -> list[str]:
    """A sentence where the client computed for too large a share of the time."""
    if share <= _CLIENT_SHARE:
        return []
    return [
        f"The client itself was busy for {share:.0%} of the time: its own cost is in the times."
    ]
