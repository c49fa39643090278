"""vllm-bench: `vllm bench serve`, vLLM's own client, on the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.nodes.power import Window
from nixwulf.outputs import vllm as parser
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines.vllm import ENGINE, base_url, environment
from nixwulf.plugins.runtime.run import Run, RunFailure, failure_of

# What the run's line shows comes first.
_LAST_METRICS = ("tpot", "request_throughput")
_LAST = "Maximum request concurrency:"
_UNKNOWN_SHARE = 0.1


class VllmBench(Benchmark):
    """Random prompts of one length; the data set that vLLM would download is never used.

    `ttft`, `itl`, `tpot` (ms), `decode` (the inverse of the mean time of an output token),
    `throughput` (generated tokens only) and `request_throughput` (req/s), by vLLM's client on the
    head, with another fixed seed in each sample.
    """

    name = "vllm-bench"
    parameters: ClassVar = parameters_of("vllm-bench")
    engines = (ENGINE.name,)

    def measure(self, run: Run) -> list[Metric]:
        """Every sample is a pass of all requests; raises RunFailure when one of them failed."""
        case, requests = run.case, run.case.parameters["requests"]
        with ENGINE.endpoint(run):
            if case.warm_up:
                _pass(run, "warm-up", case.seed + case.samples, case.parameters["concurrency"])
            measured = [
                _pass(run, str(number), case.seed + number, requests)
                for number in range(case.samples)
            ]
        run.warnings += warnings(run, [one for one, _ in measured])
        return metrics(run, [one for one, _ in measured], [when for _, when in measured])


BENCHMARK = VllmBench()


def arguments(run: Run, seed: int, requests: int, result: str) -> list[str]:
    """The command line of one pass; each has its own seed, so that no cache has its prompts.

    Without --num-warmups and the ready check, the default before 0.14: both send the first prompt
    of the pass, which the server then has in its prefix cache (vllm/benchmarks/serve.py).

    result: path of the JSON that the client writes on the head.
    """
    values = run.case.parameters
    argv = [run.program(ENGINE.name), "bench", "serve", "--backend", ENGINE.name]
    argv += ["--base-url", base_url(run), "--model", run.model]
    argv += ["--dataset-name", "random", "--random-input-len", str(values["n_prompt"])]
    argv += ["--random-output-len", str(values["n_gen"]), "--random-range-ratio", "0"]
    argv += ["--num-prompts", str(requests), "--ready-check-timeout-sec", "0"]
    argv += ["--max-concurrency", str(values["concurrency"])]
    argv += ["--ignore-eos", "--temperature", "0", "--seed", str(seed)]
    folder, _, name = result.rpartition("/")
    return [
        *argv,
        *["--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", name],
    ]


def metrics(
    run: Run, passes: Sequence[parser.ServeResult], windows: Sequence[Window | None]
) -> list[Metric]:
    """Metrics of the passes, as an import of vLLM's own result has them.

    passes: what vLLM's client saved of each. windows: when each was, seconds, where that is known.

    Raises RunFailure: where the times of single requests were not saved.
    """
    values = run.case.parameters
    conditions = {key: values[key] for key in VllmBench.parameters}
    state = "warm" if run.case.warm_up else "cold"
    found = {one.name: one for one in parser.metrics(passes, conditions, state)}
    if not {"ttft", "itl"} <= {name for name, one in found.items() if one.distribution} or (
        "decode" not in found
    ):
        raise RunFailure("vllm bench serve saved no times of single requests.")
    if None not in windows:
        known = tuple(filter(None, windows))
        found["throughput"] = replace(found["throughput"], windows=known)
    return sorted(found.values(), key=lambda one: one.name in _LAST_METRICS)


def warnings(run: Run, passes: Sequence[parser.ServeResult]) -> list[str]:
    """What a reader of the numbers has to know: prompts that were not as long as asked for.

    vLLM makes them of random tokens and decodes them, and the text may encode to others; 0.16
    counts no special tokens.
    """
    values = run.case.parameters
    wanted = values["requests"] * values["n_prompt"]
    found = [one.input_tokens for one in passes if one.input_tokens != wanted]
    if not found:
        return []
    return [
        f"Of {len(passes)} passes {len(found)} had prompts of another length than n_prompt by "
        f"vLLM's count, the first {found[0]} tokens in {values['requests']} requests instead of "
        f"{wanted}."
    ]


def window(text: str, came: Sequence[float], seconds: float) -> Window | None:
    """When the requests of a pass were, from the client's output; None where that is not certain.

    The client prints a line before the first request, and the next one when it computes its result
    (vllm/benchmarks/serve.py), with queries of the server's own metrics beside: all of that has to
    be hardly more than the duration that the client reports for the requests.

    text: the client's output.
    """
    last = next((i for i, line in enumerate(text.split("\n")) if line.startswith(_LAST)), None)
    if last is None or last + 1 >= len(came):
        return None
    end, around = came[last + 1], came[last + 1] - came[last]
    return (end - seconds, end) if 0 <= around - seconds <= _UNKNOWN_SHARE * seconds else None


def _pass(
    run: Run, name: str, seed: int, requests: int
) -> tuple[parser.ServeResult, Window | None]:
    label = f"vllm-bench-{name}"
    result = f"{run.scratch}/{label}.json"
    # Unbuffered: the times of its lines are those of the requests.
    variables = {**environment(run, run.head), "PYTHONUNBUFFERED": "1"}
    process = run.execute(run.head, label, arguments(run, seed, requests, result), variables)
    if process.returncode != 0:
        raise failure_of(process, "vllm bench serve")
    text = run.head.script('cat "$1"; rm -f "$1"', result)
    (run.raw / f"{label}.json").write_text(text, encoding="utf-8")
    found = parser.parse_serve(text)
    tokens = requests * run.case.parameters["n_gen"]
    if found.completed != requests or found.failed or found.output_tokens != tokens:
        raise RunFailure(
            f"vllm bench serve completed {found.completed} of {requests} requests with "
            f"{found.output_tokens} of {tokens} tokens."
        )
    output = process.output
    return found, window(output, process.stdout_times, found.duration_s)
