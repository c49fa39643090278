"""Output of `dllama inference`: a line for each batch and token, then two blocks of averages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from nixwulf.core.metric import Metric
from nixwulf.outputs import ANY, ONE, Found, ParseError, Tool, ToolFailed, exactly

ENGINE = "distributed-llama"
# The piece of text that ends a token's line may hold anything, so it may itself end lines.
_STEP = re.compile(
    r"(?:\S+ )?(Eval|Pred) *(\d+) ms Sync *(\d+) ms \| Sent *(\d+) kB Recv *(\d+) kB \| (.*)"
)
_SPEED = re.compile(r" {2,}tokens/s: (\d+\.\d\d) \(.*")
_CUT_LINE = re.compile(r"tokens/s: [^)\n]*\s*\Z")
_COUNT = re.compile(r" {2,}nTokens: (\d+)")
_ERROR = re.compile(r"(?:\S+ )?Critical error: (.+)")
_BLOCKS = ("Evaluation", "Prediction")
_WORKER = re.compile(r"Socket\[(\d{1,4})\]: connecting to \S+ worker")
_WORKERS = re.compile(r"--workers((?: +\S+:\d{1,5})+)")
_ARCHITECTURE = re.compile(r"^\S+ Arch: (\S+)$", re.MULTILINE)
# The model's header, which comes before the sockets: without it, the begin is cut off.
_HEADER = "nKvHeads: "


@dataclass(frozen=True)
class Step:
    """One batch of the prompt, or one token.

    compute_ms and sync_ms: whole milliseconds, cut off; sent_kib and received_kib: KiB (printed as
    kB) of the root node; text: the token's piece, or how many tokens the batch had.
    """

    compute_ms: int
    sync_ms: int
    sent_kib: int
    received_kib: int
    text: str


@dataclass(frozen=True)
class Speed:
    """The average of a block: its tokens, and tokens a second."""

    tokens: int
    tokens_s: float


@dataclass(frozen=True)
class Inference:
    """One inference, as the root node reports it.

    predicted: the lines, counted from 0, of the last batch and of the last token: what is between
    their moments is prediction. None where the prompt had no batch.
    """

    evaluation: Speed
    prediction: Speed
    batches: tuple[Step, ...]
    tokens: tuple[Step, ...]
    predicted: tuple[int, int] | None


def parse(text: str, *, whole: bool = True) -> Inference:
    """The inference of a text; raises ParseError, with `whole` also where lines of tokens lack."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if match := _ERROR.match(line):
            raise ToolFailed(f"dllama failed in line {number}: {match[1].rstrip('.')}.")
    batches, tokens = steps(text, "Eval"), steps(text, "Pred")
    evaluation, prediction = (_block(lines, name) for name in _BLOCKS)
    # Of the two blocks alone, as people paste them, there is no line of a token.
    if (tokens or batches) and prediction.tokens != len(tokens):
        if whole:
            _refuse(len(lines), f"{prediction.tokens} lines of tokens, not {len(tokens)}")
        batches = tokens = ()
    kinds = {n: found[1] for n, one in enumerate(lines) if (found := _STEP.fullmatch(one))}
    last = {kind: number for number, kind in kinds.items()}
    predicted = (last["Eval"], last["Pred"]) if batches and tokens else None
    return Inference(evaluation, prediction, batches, tokens, predicted)


def steps(text: str, kind: str) -> tuple[Step, ...]:
    """The lines of batches (`Eval`) or of tokens (`Pred`), also of a text that is cut short."""
    matches = (_STEP.fullmatch(line) for line in text.split("\n"))
    return tuple(
        Step(int(match[2]), int(match[3]), int(match[4]), int(match[5]), match[6])
        for match in matches
        if match and match[1] == kind
    )


def recognises(text: str) -> bool:
    """Tell whether the text looks like dllama's, whole or cut short."""
    blocks = all(f"{name}\n" in text for name in _BLOCKS) and "tokens/s: " in text
    return _HEADER in text or blocks or bool(steps(text, "Eval"))


def read(text: str) -> list[Found]:
    """One case: prompt, decode and what its nodes exchanged."""
    result = parse(text, whole=False)
    cut = bool(steps(text, "Pred")) and not result.tokens
    workers = len(set(_WORKER.findall(text)))
    if not workers and (named := _WORKERS.search(text)):
        workers = len(set(named[1].split()))
    nodes = exactly(workers + 1, f"{workers} workers and the root") if workers else ANY
    nodes = ONE if not workers and _HEADER in text else nodes
    architecture = _ARCHITECTURE.search(text)
    warnings = {
        "Lines of tokens are missing: the others are left out.": cut,
        "Its last line is cut off.": bool(_CUT_LINE.search(text)),
    }
    return [
        Found(
            "dllama",
            metrics([result], nodes.reported or 1 if result.tokens else 1),
            nodes=nodes,
            parameters={"n_prompt": result.evaluation.tokens, "n_gen": result.prediction.tokens},
            engine={"name": ENGINE},
            model={"architecture": architecture[1]} if architecture else {},
            transport="tcp" if workers else None,
            parallelism="tensor" if workers else None,
            warnings=tuple(sentence for sentence, holds in warnings.items() if holds),
        )
    ]


TOOL = Tool(ENGINE, recognises, read, failed=Found("dllama", (), engine={"name": ENGINE}))


def _block(lines: list[str], name: str) -> Speed:
    """A block of averages: its last one, because a prompt is printed too and may look like it."""
    starts = [number for number, line in enumerate(lines) if line == name]
    if not starts:
        _refuse(len(lines), f"a line {name!r}")
    count = speed = None
    for number, line in enumerate(lines[starts[-1] + 1 :], starts[-1] + 2):
        if line in _BLOCKS:
            break
        count = count or _COUNT.fullmatch(line)
        if match := _SPEED.fullmatch(line):
            speed = match
        elif "tokens/s:" in line:
            _refuse(number, "tokens/s: NUMBER (NUMBER ms/tok)")
    if count is None or speed is None:
        _refuse(len(lines), f"nTokens and tokens/s of {name}")
    return Speed(int(count[1]), float(speed[1]))


def _refuse(number: int, expected: str) -> NoReturn:
    raise ParseError(f"dllama: line {number}: expected {expected}.")


def metrics(
    results: Sequence[Inference],
    nodes: int,
    windows: Sequence[tuple[float, float]] = (),
    state: str | None = None,
) -> list[Metric]:
    """Metrics of the inferences, a sample each: prompt and decode in tok/s.

    On several nodes also sync_share, % of a token's time in which the root exchanged values; sent
    and received, KiB of the root a generated token. windows: when each predicted, seconds. state:
    warm, cold, or None where it is not known.
    """
    first = results[0]
    conditions = {"n_prompt": first.evaluation.tokens, "n_gen": first.prediction.tokens}

    def metric(name: str, unit: str, samples: Sequence[float]) -> Metric:
        return Metric(name, unit, tuple(round(one, 4) for one in samples), state, conditions)

    found = [
        metric("prompt", "tok/s", [result.evaluation.tokens_s for result in results]),
        replace(
            metric("decode", "tok/s", [result.prediction.tokens_s for result in results]),
            windows=tuple(windows),
        ),
    ]
    if nodes == 1:
        return found
    return [
        *found,
        metric("sync_share", "%", [_sync_share(result) for result in results]),
        metric("sent", "KiB/token", [_mean(r, "sent_kib") for r in results]),
        metric("received", "KiB/token", [_mean(r, "received_kib") for r in results]),
    ]


def _mean(result: Inference, key: str) -> float:
    return float(sum(getattr(step, key) for step in result.tokens) / len(result.tokens))


def _sync_share(result: Inference) -> float:
    """Return the share of synchronization in all tokens; 0 when all times are cut off to 0."""
    sync, compute = _mean(result, "sync_ms"), _mean(result, "compute_ms")
    return 100 * sync / (sync + compute) if sync + compute else 0.0
