"""mlx_lm.benchmark: prompt processing and decode speed of MLX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nixwulf.benchmarks import Metric, Parameter
from nixwulf.engines import mlx_ranks
from nixwulf.engines.mlx import ENGINE
from nixwulf.parsers import mlx
from nixwulf.run import Run, RunFailure

_PROGRAM = "mlx_lm.benchmark"


class MlxLm:
    """mlx_lm.benchmark, which warms up once, always, and prints each of its trials."""

    name = _PROGRAM
    parameters: ClassVar = {
        "n_prompt": Parameter(default=128, minimum=1),
        "n_gen": Parameter(default=32, minimum=2),
    }
    engines = (ENGINE.name,)
    programs = ()
    proof_bytes = 10_000

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Any point that MLX can run."""
        return None

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """It is among the engine's programs."""
        return None

    def measure(self, run: Run) -> list[Metric]:
        """Run it once with all samples; raises RunFailure, ParseError when a result is missing."""
        case, values = run.case, run.case.parameters
        arguments = [*ENGINE.arguments(run), "-p", str(values["n_prompt"])]
        arguments += ["-g", str(values["n_gen"])]

        def of_rank(rank: int) -> list[str]:
            # The other ranks begin a trial more, and are stopped in it: a stage of a pipeline that
            # ends first closes its connections before its last token is sent (mlx-lm 0.32.2).
            return [*arguments, "-n", str(case.samples + (rank > 0))]

        with mlx_ranks.started(run, "mlx-benchmark", _PROGRAM, of_rank) as ranks:
            ranks.finish(run)
        result = mlx.parse(ranks.head.stdout.read_text(errors="replace"))
        if len(result.trials) != case.samples:
            raise RunFailure(
                "failed", f"{_PROGRAM} gave {len(result.trials)} trials, expected {case.samples}."
            )
        for process in ranks.processes[1:]:
            if process.stdout.read_text(errors="replace").strip():
                raise RunFailure(
                    "fallback",
                    f"{_PROGRAM} on node {process.node!r} printed results, which only rank 0 does: "
                    "it found no group and ran the whole model alone.",
                )
        return _metrics(result)


BENCHMARK = MlxLm()


def _metrics(result: mlx.Result) -> list[Metric]:
    conditions = {
        "n_prompt": result.prompt_tokens,
        "n_gen": result.generation_tokens,
        "n_batch": result.batch_size,
    }
    samples = {
        ("prompt", "tok/s"): tuple(trial.prompt_tps for trial in result.trials),
        ("decode", "tok/s"): tuple(trial.generation_tps for trial in result.trials),
        ("peak_memory", "GB"): tuple(trial.peak_memory_gb for trial in result.trials),
    }
    return [
        Metric(name, unit, values, "warm", conditions) for (name, unit), values in samples.items()
    ]
