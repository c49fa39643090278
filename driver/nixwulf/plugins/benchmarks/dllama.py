"""dllama inference: prompt processing and decode speed of distributed-llama, and its sync share."""

from __future__ import annotations

from itertools import starmap
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.nodes.process import OwnedProcess
from nixwulf.outputs.dllama import Inference, metrics
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines.distributed_llama import ENGINE, infer
from nixwulf.plugins.runtime import texts
from nixwulf.plugins.runtime.run import Run, RunFailure

# A token's times are cut off to whole milliseconds: below this, their sum is no measure.
_SHORT_MS = 10


class Dllama(Benchmark):
    """dllama inference, a process a sample, each of which loads and hands out the model anew.

    `prompt` and `decode` (tok/s), and on several nodes `sync_share` (% of the tokens' time in which
    the head exchanged values), `sent` and `received` (KiB of the head a token). dllama prints whole
    milliseconds: a warning is given when tokens are too short for the share.
    """

    name = "dllama"
    parameters: ClassVar = parameters_of("dllama")
    engines = (ENGINE.name,)

    def measure(self, run: Run) -> list[Metric]:
        """Count the prompt's tokens in two short inferences, then measure; raises RunFailure."""
        values = run.case.parameters
        prompt = _prompt(run, values["n_prompt"])
        inferences = [
            infer(run, self.name, prompt, values["n_prompt"] + values["n_gen"])
            for _ in range(run.case.samples)
        ]
        results = [result for result, _ in inferences]
        fastest = max(result.prediction.tokens_s for result in results)
        if run.case.nodes > 1 and fastest * _SHORT_MS > 1000:  # noqa: PLR2004 - ms a second
            run.warnings.append(
                f"A token took less than {_SHORT_MS} ms, and dllama prints whole milliseconds: "
                "sync_share is rough."
            )
        known = list(filter(None, starmap(window, inferences)))
        return metrics(results, run.case.nodes, known, "warm")


BENCHMARK = Dllama()


def _prompt(run: Run, n_prompt: int) -> str:
    """A prompt of which n_prompt tokens are evaluated: its last is left to the first prediction.

    Two inferences, unmeasured, count two rows of words, which also warms the nodes up.
    """
    seed = run.case.seed
    few, many = (
        infer(run, "dllama-count", _row(number, words, seed), _most(words))[0].evaluation.tokens + 1
        for number, words in enumerate(texts.PROBES)
    )
    counting = texts.counting(few, many)
    if counting is None:
        raise RunFailure(
            f"The tokenizer makes {few} tokens of {texts.PROBES[0]} short words and {many} "
            f"of {texts.PROBES[1]}: prompts of an exact length cannot be made for it."
        )
    if counting.least > n_prompt + 1:
        raise RunFailure(
            f"n_prompt is {n_prompt}, but the shortest prompts of this tokenizer have "
            f"{counting.least} tokens; raise n_prompt."
        )
    return " " + counting.prompt(len(texts.PROBES), n_prompt + 1, seed)


def _row(number: int, words: int, seed: int) -> str:
    """Words with a space before each: tokenizers treat a first word without one differently."""
    return " " + texts.row(number, words, seed)


def _most(words: int) -> int:
    """Steps for words of three letters and a space, a byte a token, and what begins and ends it."""
    return 4 * words + 2


def window(result: Inference, process: OwnedProcess) -> tuple[float, float] | None:
    """When an inference predicted: from its last batch, which dllama flushes, to its last token."""
    if result.predicted is None:
        return None
    begin, end = (process.stdout_times[line] for line in result.predicted)
    return begin, end
