"""llama-benchy: PyPI's client of any OpenAI-compatible server, whose numbers others post.

It runs on the driver's machine, where `serve` measures from too: there it is installed once, and
all engines are reached alike. https://github.com/eugr/llama-benchy
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.core.secrets import cut
from nixwulf.llm.random_model import tokenizer
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import THIS_MACHINE
from nixwulf.outputs import llama_benchy as parser
from nixwulf.outputs import present
from nixwulf.plugins import engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime.loopback import loopback_port
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure, failure_of

_PROGRAM = "llama-benchy"
_INSTALL = "pip install 'llama-benchy>=0.3.8'"
_POLL_S = 0.1
_BOOK = "https://www.gutenberg.org/files/1661/1661-0.txt"
# It looks there before it downloads (llama_benchy/corpus.py).
BOOK_FILE = (
    f".cache/llama-benchy/{hashlib.md5(_BOOK.encode(), usedforsecurity=False).hexdigest()}.txt"
)
"""Where its book is kept, below the home folder."""
# What a chat template and a cut through a word make of a prompt.
_LENGTH_SHARE = 0.02


class LlamaBenchy(Benchmark):
    """llama-benchy on the driver's machine, a pass of `concurrency` requests for each sample.

    `prompt` (tok/s): the prompt over the time to the first answer of any kind (`ttfr`, ms) less
    what GET /v1/models takes (`prompt_time`, ms). `ttft` (ms): to the first text, nothing taken
    off. `decode` (tok/s): the tokens of a request after the first. With several requests also
    `throughput` and `prompt_throughput`, of all together; `peak_throughput` is of the best second.

    Prompts are from a book, at random places without a seed, and answers are sampled as the server
    does by itself. `context` is in the conditions of what loads the depth where prefixes are
    cached. The book and a tokenizer come from the internet once, or from files: see docs.
    """

    name = _PROGRAM
    parameters: ClassVar = parameters_of(_PROGRAM)
    engines = None
    required_here: ClassVar = {_PROGRAM: f'run "{_INSTALL}"'}

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Also caching without a depth, and an engine that answers no chats."""
        values = point["parameters"]
        if values["prefix_caching"] == "on" and values["depth"] == 0:
            return "prefix_caching caches the depth, and that is 0; give a depth"
        if "chat" not in engines.find(point["engine"]).apis:
            return f"{self.name} sends chats, and {point['engine']} answers none"
        return super().unsupported(point)

    def measure(self, run: Run) -> list[Metric]:
        """Run it once with all samples; raises RunFailure or ParseError."""
        engine = engines.find(run.case.engine or "")
        with _tokenizer(run) as tokenizer, engine.endpoint(run) as endpoint:
            clocks = Clocks(run, endpoint.server)
            with loopback_port(endpoint, clocks.on_event) as port:
                url = f"http://127.0.0.1:{port}{urlsplit(endpoint.base_url).path}/v1"
                argv = arguments(run, url, endpoint.model, tokenizer)
                process = OwnedProcess.start(THIS_MACHINE, self.name, argv, _environment(), run.raw)
                run.owned.append(process)
                try:
                    while process.running:
                        time.sleep(_POLL_S)
                        endpoint.require_running()
                        clocks.check()
                        _refuse(process.output)
                finally:
                    process.stop()
        _refuse(process.output)
        if process.returncode != 0:
            raise failure_of(process, self.name)
        report = parser.report_in(process.output)
        found = parser.metrics_of(report)
        run.warnings += warnings(found, run.case.parameters)
        return metrics(report, found, run)


BENCHMARK = LlamaBenchy()


def arguments(run: Run, url: str, model: str, tokenizer: str) -> list[str]:
    """Its command line.

    The driver has its own check of the text. With --exact-tg every answer has all its tokens.

    url: of the server's API.
    """
    case, values = run.case, run.case.parameters
    argv = [shutil.which(_PROGRAM) or _PROGRAM, "--base-url", url, "--model", case.model or model]
    argv += ["--served-model-name", model, "--tokenizer", tokenizer]
    argv += ["--pp", str(values["n_prompt"]), "--tg", str(values["n_gen"]), "--exact-tg"]
    argv += ["--depth", str(values["depth"]), "--concurrency", str(values["concurrency"])]
    argv += ["--runs", str(case.samples), "--skip-coherence", "--exit-on-first-fail"]
    argv += ["--enable-prefix-caching" if values["prefix_caching"] == "on" else "--no-cache"]
    argv += [] if case.warm_up else ["--no-warmup"]
    return [*argv, "--format", "json"]


def metrics(report: Mapping[str, object], found: Sequence[Metric], run: Run) -> list[Metric]:
    """Its metrics, speeds first, with what they hold for and its version beside them."""
    if not {"prompt", "decode"} <= {one.name for one in found}:
        raise RunFailure(f"{_PROGRAM} reports no speed: no answer had two tokens.")
    observed = {"llama_benchy": report.get("version"), "latency_ms": report.get("latency_ms")}
    caching = {"prefix_caching": run.case.parameters["prefix_caching"]}
    return [
        replace(
            one,
            state="warm" if run.case.warm_up else "cold",
            conditions=present({**one.conditions, **caching}),
            observed=present(observed),
        )
        for one in sorted(found, key=lambda one: one.unit == "ms")
    ]


def warnings(found: Sequence[Metric], values: Mapping[str, Any]) -> list[str]:
    """What a reader of the numbers has to know: prompts of another length than asked for.

    A prompt's tokens are its speed times its time. They are the server's count where that is within
    20 % of what llama-benchy expects, and else what it expects (llama_benchy/results.py).

    values: the case's parameters.
    """
    by_name = {one.name: one for one in found if not one.conditions.get("context")}
    pairs = zip(by_name["prompt"].samples, by_name["prompt_time"].samples, strict=False)
    lengths = [round(speed * ms / 1000) for speed, ms in pairs]
    wanted = values["n_prompt"] + (values["depth"] if values["prefix_caching"] == "off" else 0)
    wrong = [one for one in lengths if abs(one - wanted) > _LENGTH_SHARE * wanted]
    if not wrong:
        return []
    return [
        f"Of {len(lengths)} prompts {len(wrong)} had another length than asked for, the first "
        f"{wrong[0]} tokens instead of {wanted}: the parameter tokenizer names another model's, or "
        "the server's template is long for such prompts, which llama-benchy then miscounts."
    ]


def problem_in(output: str) -> str | None:
    """Why its numbers are none, by what it printed, or None; it may end with 0 even so."""
    if found := re.search(r"^Error downloading or processing book: (.*)$", output, re.MULTILINE):
        return (
            f"{_PROGRAM} cannot download its book ({cut(found[1], 120)}); on a machine with "
            f"internet run 'curl -o book.txt {_BOOK}', and copy book.txt to '~/{BOOK_FILE}' on "
            "this one."
        )
    if found := re.search(r"^Error loading tokenizer '(.*?)': ", output, re.MULTILINE):
        return (
            f"{_PROGRAM} found no tokenizer {found[1]!r}; give the parameter tokenizer the model's "
            "name on Hugging Face, or a folder with its tokenizer.json on this machine."
        )
    failed = r"^(?:\[Error\] Stopping due to error in [\w ]+|Warmup failed): (.*)$"
    if found := re.search(failed, output, re.MULTILINE):
        return f"{_PROGRAM} had a request that failed: {cut(' '.join(found[1].split()), 200)}"
    return None


def _refuse(output: str) -> None:
    if problem := problem_in(output):
        raise RunFailure(problem)


@contextmanager
def _tokenizer(run: Run) -> Iterator[str]:
    """What --tokenizer gets; raises RunFailure where none is known."""
    given, model = run.case.parameters["tokenizer"], run.bring_model(run.case.model or "").model
    if given.startswith(("/", "~", ".")) and not Path(given).expanduser().exists():
        raise RunFailure(
            f"There is no tokenizer {given!r} on this machine; put the model's tokenizer.json "
            "there, or give its name on Hugging Face.",
            "skipped",
        )
    if given:
        yield str(Path(given).expanduser()) if given.startswith("~") else given
    elif model.random:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tokenizer.json"
            file.write_text(json.dumps(tokenizer()), "utf-8")
            yield str(file)
    elif name := model.id or model.hub:
        yield name
    else:
        raise RunFailure(
            f"The tokenizer of {run.case.model!r} is not known; give the parameter tokenizer its "
            "name on Hugging Face, or a folder with its tokenizer.json on this machine.",
            "skipped",
        )


def _environment() -> dict[str, str]:
    """No proxy stands before this machine's own port; each line is there when it is printed."""
    direct = ",".join(filter(None, (os.environ.get("no_proxy"), "127.0.0.1")))
    return {"no_proxy": direct, "NO_PROXY": direct, "PYTHONUNBUFFERED": "1"}
