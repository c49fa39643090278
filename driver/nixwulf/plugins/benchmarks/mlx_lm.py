"""mlx_lm.benchmark: prompt processing and decode speed of MLX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.outputs import mlx
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines.mlx import ENGINE, ranks
from nixwulf.plugins.runtime.run import Run, RunFailure

Windows = tuple[tuple[float, float], ...]

_PROGRAM = "mlx_lm.benchmark"
# Of the shorter of the two parts of a trial: an average over a window that is so far off is fine.
_UNKNOWN_SHARE = 0.1


class MlxLm(Benchmark):
    """mlx_lm.benchmark, which warms up once, always, and prints each of its trials.

    `prompt` and `decode` (tok/s) and `peak_memory` (GB, of rank 0), a sample a trial, of random
    tokens.
    """

    name = _PROGRAM
    parameters: ClassVar = parameters_of("mlx_lm.benchmark")
    engines = (ENGINE.name,)

    def measure(self, run: Run) -> list[Metric]:
        """Run it once with all samples; raises RunFailure, ParseError when a result is missing."""
        case, values = run.case, run.case.parameters
        arguments = [*ENGINE.arguments(run), "-p", str(values["n_prompt"])]
        arguments += ["-g", str(values["n_gen"])]

        def of_rank(rank: int) -> list[str]:
            # The other ranks begin a trial more, and are stopped in it: a stage of a pipeline that
            # ends first closes its connections before its last token is sent (mlx-lm 0.32.2).
            return [*arguments, "-n", str(case.samples + (rank > 0))]

        with ranks.started(run, "mlx-benchmark", _PROGRAM, of_rank) as started:
            started.finish(run)
        result = mlx.parse(started.head.output)
        if len(result.trials) != case.samples:
            raise RunFailure(
                f"{_PROGRAM} gave {len(result.trials)} trials, expected {case.samples}."
            )
        for process in started.processes[1:]:
            if mlx.recognises(process.output):
                raise RunFailure(
                    f"{_PROGRAM} on node {process.node!r} printed results, which only rank 0 does: "
                    "it found no group and ran the whole model alone.",
                    "fallback",
                )
        return measured(result, started.head.stdout_times)


BENCHMARK = MlxLm()


def measured(result: mlx.Trials, came: Sequence[float]) -> list[Metric]:
    """Metrics of the trials, a sample each; came: the moment of each line, in seconds."""
    when = dict(zip(("prompt", "decode"), windows(result, came), strict=True))
    return [replace(one, windows=when.get(one.name, ())) for one in mlx.metrics(result)]


def windows(result: mlx.Trials, came: Sequence[float]) -> tuple[Windows, Windows]:
    """When the trials read their prompts, and when they generated.

    A trial reads, generates, and prints its line (mlx_lm/benchmark.py). None at all where the two
    are not nearly all of some trial: then it is not known where in it they lie.
    """
    prompt, decode = [], []
    for trial in result.trials:
        end = came[trial.line]
        begin = end - trial.seconds
        reading = _seconds(result.prompt_tokens, trial.prompt_tps)
        generating = _seconds(result.generation_tokens, trial.generation_tps)
        if abs(trial.seconds - reading - generating) > _UNKNOWN_SHARE * min(reading, generating):
            return (), ()
        prompt.append((begin, begin + reading))
        decode.append((end - generating, end))
    return tuple(prompt), tuple(decode)


def _seconds(tokens: int, rate: float) -> float:
    return tokens / rate if rate > 0 else 0.0
