"""Output of mlx_lm.benchmark on rank 0: a line for each trial."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from nixwulf.core.metric import Metric
from nixwulf.outputs import ANY, Found, ParseError, Tool, exactly, model_of, without_result

ENGINE = "mlx"
_TIMING = re.compile(r"Timing with prompt_tokens=(\d+), generation_tokens=(\d+), batch_size=(\d+)")
_TRIAL = re.compile(r"Trial (\d+): +(.*)")
_NUMBER = re.compile(r"[0-9]+\.[0-9]{3}")  # any other is nan, or cut short
_KEYS = ("prompt_tps", "generation_tps", "peak_memory")
_LATER = "total_time"  # older versions lack it
# Lines of mlx.launch and of the two backends.
_RUNNING = re.compile(
    r"(?P<launcher>\[INFO\] Running (?:\S*/)?|\bmlx\.launch\b[^\n]*[ /])?"
    r"\bmlx_lm\.benchmark (?P<arguments>[^\x1b\n]*)"
)
_MODEL = re.compile(r"--model[ =](\S+)")
_COMPLETED = re.compile(r"\[INFO\] Node with rank (\d{1,6}) completed")
_CUT_SHORT = "The output has no averages: it ended before all trials were done."
_TRANSPORTS = {r"\[ring\]|--backend[ =]ring\b": "tcp", r"\[jaccl\]|--backend[ =]jaccl\b": "rdma"}


@dataclass(frozen=True)
class Trial:
    """One trial: tokens a second, the peak of rank 0's memory in GB (1e9 bytes), seconds or 0.

    line is the number (from 0) of its line, which is printed when the trial has ended.
    """

    prompt_tps: float
    generation_tps: float
    peak_memory_gb: float
    seconds: float
    line: int


@dataclass(frozen=True)
class Trials:
    """The trials of one benchmark, and the sizes that they ran with, in tokens and sequences."""

    prompt_tokens: int
    generation_tokens: int
    batch_size: int
    trials: tuple[Trial, ...]


def parse(text: str) -> Trials:
    """The trials that the text holds whole; raises ParseError when there are none.

    A ring that ends prints after the averages, so nothing is taken for the last line.
    """
    sizes: tuple[int, int, int] | None = None
    trials: list[Trial] = []
    number = 0
    for number, line in enumerate(text.split("\n"), 1):
        if match := _TIMING.match(line):
            sizes, trials = (int(match[1]), int(match[2]), int(match[3])), []
        elif match := _TRIAL.match(line):
            if int(match[1]) != len(trials) + 1:
                _refuse(number, f"trial {len(trials) + 1}")
            trials.append(_trial(match[2], number))
    if sizes is None:
        raise without_result("mlx_lm.benchmark", "a line 'Timing with prompt_tokens=...'", text)
    if not trials:
        raise without_result("mlx_lm.benchmark", "a line 'Trial 1:  prompt_tps=...'", text)
    return Trials(*sizes, tuple(trials))


def recognises(text: str) -> bool:
    """Tell whether the text looks like the benchmark's, whole or cut short."""
    return any(line in text for line in ("Running warmup..", "Timing with prompt_tokens="))


def read(text: str) -> list[Found]:
    """One case, with what mlx.launch reports of its ranks."""
    result = parse(text)
    running = _RUNNING.search(text)
    arguments = running["arguments"] if running else ""
    model = _MODEL.search(arguments)
    ranks = len(set(_COMPLETED.findall(text)))
    transports = [how for mark, how in _TRANSPORTS.items() if re.search(mark, text)]
    # Of several ranks: without the option, mlx_lm splits each layer.
    split = "pipeline" if "--pipeline" in arguments else "tensor"
    return [
        replace(
            _CASE,
            metrics=metrics(result),
            nodes=exactly(ranks, f"{ranks} nodes") if ranks else ANY,
            parameters={"n_prompt": result.prompt_tokens, "n_gen": result.generation_tokens},
            model=model_of(model[1]) if model else {},
            transport=transports[0] if len(transports) == 1 else None,
            parallelism=split if running and running["launcher"] else None,
            warnings=() if "Averages: " in text else (_CUT_SHORT,),
        )
    ]


_CASE = Found("mlx_lm.benchmark", (), engine={"name": ENGINE})
TOOL = Tool("mlx_lm.benchmark", recognises, read, failed=_CASE)


def metrics(result: Trials) -> list[Metric]:
    """Prompt, decode and peak memory, a sample a trial: mlx_lm always warms up."""
    conditions = {
        "n_prompt": result.prompt_tokens,
        "n_gen": result.generation_tokens,
        "n_batch": result.batch_size,
    }
    samples = {
        ("prompt", "tok/s"): [trial.prompt_tps for trial in result.trials],
        ("decode", "tok/s"): [trial.generation_tps for trial in result.trials],
        ("peak_memory", "GB"): [trial.peak_memory_gb for trial in result.trials],
    }
    return [
        Metric(name, unit, tuple(values), "warm", conditions)
        for (name, unit), values in samples.items()
    ]


def _trial(text: str, number: int) -> Trial:
    pairs = dict(part.partition("=")[::2] for part in text.strip().split(", "))
    for key in (*_KEYS, *([_LATER] if _LATER in pairs else ())):
        if not _NUMBER.fullmatch(pairs.get(key, "")):
            _refuse(number, f"{key}=NUMBER with three decimals")
    prompt, generation, peak = (float(pairs[key]) for key in _KEYS)
    return Trial(prompt, generation, peak, float(pairs.get(_LATER, 0)), line=number - 1)


def _refuse(number: int, expected: str) -> NoReturn:
    raise ParseError(f"mlx_lm.benchmark: line {number}: expected {expected}.")
