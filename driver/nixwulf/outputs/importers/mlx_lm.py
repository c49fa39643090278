"""mlx_lm.benchmark: prompt, decode and memory of MLX, as the benchmark of that name has them."""

from __future__ import annotations

import re

from nixwulf.outputs import mlx as parser
from nixwulf.outputs.importers import ANY, Found, Tool, exactly, metric, model_of

# Lines of mlx.launch and of the two backends.
_RUNNING = re.compile(r"\[INFO\] Running (?:\S*/)?mlx_lm\.benchmark (?P<arguments>[^\x1b\n]*)")
_MODEL = re.compile(r"--model[ =](\S+)")
_COMPLETED = re.compile(r"\[INFO\] Node with rank (\d{1,6}) completed")
_CUT_SHORT = "The output has no averages: it ended before all trials were done."
_TRANSPORTS = {"[ring]": "tcp", "[jaccl]": "rdma"}


def _read(text: str) -> list[Found]:
    result = parser.parse(text)
    sizes = {"n_prompt": result.prompt_tokens, "n_gen": result.generation_tokens}
    conditions = {**sizes, "n_batch": result.batch_size}
    samples = {
        ("prompt", "tok/s"): [trial.prompt_tps for trial in result.trials],
        ("decode", "tok/s"): [trial.generation_tps for trial in result.trials],
        ("peak_memory", "GB"): [trial.peak_memory_gb for trial in result.trials],
    }
    metrics = [
        metric(name, unit, samples=values, state="warm", conditions=conditions)
        for (name, unit), values in samples.items()
    ]
    running = _RUNNING.search(text)
    arguments = running["arguments"] if running else ""
    model = _MODEL.search(arguments)
    ranks = len(set(_COMPLETED.findall(text)))
    nodes = exactly(ranks, f"{ranks} nodes") if ranks else ANY
    transports = [how for mark, how in _TRANSPORTS.items() if mark in text]
    return [
        Found(
            "mlx_lm.benchmark",
            metrics,
            nodes=nodes,
            parameters=sizes,
            engine={"name": "mlx"},
            model=model_of(model[1]) if model else {},
            transport=transports[0] if len(transports) == 1 else None,
            parallelism=_parallelism(arguments) if running else None,
            warnings=() if "Averages: " in text else (_CUT_SHORT,),
        )
    ]


TOOL = Tool("mlx_lm.benchmark", parser, _read)


def _parallelism(arguments: str) -> str:
    """Of several ranks: without the option, mlx_lm splits each layer."""
    return "pipeline" if "--pipeline" in arguments else "tensor"
