"""nixwulf predict and tune: the best configuration for a model, predicted, or measured too."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli import options
from nixwulf.cli.bench import check_new, new_folder, own_folder
from nixwulf.core import errors
from nixwulf.plugins.engines import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nixwulf.sweep.plan import Plan
    from nixwulf.tune.search import SearchState

# Far above what is run, and far from where numbers overflow.
_MOST = 10**9
_COUNT = click.IntRange(0, _MOST)
_SOME = click.IntRange(1, _MOST)


@click.command()
@options.cluster("A cluster file, or its name.", required=True)
@click.option(
    "--model",
    required=True,
    type=options.MODEL,
    metavar="M",
    help="A known model, a GGUF, a folder of safetensors, ORG/REPO of the hub, or a TOML file.",
)
@click.option("--quant", default="", help="Quantization, if the name lacks it, e.g. Q4_K_M.")
@click.option(
    "--size-gib",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Size of its files, GiB: gives the bits of a weight better than a name.",
)
@click.option("--nodes", multiple=True, type=click.IntRange(min=1), help="Repeatable.")
@click.option("--fabric", "fabrics", multiple=True, metavar="NAME", help="Repeatable.")
@click.option("--transport", "transports", multiple=True, type=click.Choice(["tcp", "rdma"]))
@click.option(
    "--parallelism",
    "parallelisms",
    multiple=True,
    type=click.Choice(["single", "pipeline", "tensor", "replicas"]),
    help="How the model is split; replicas runs one server per node. Repeatable.",
)
@options.defaulting("--engine", type=options.ENGINE, default=DEFAULT)
@options.defaulting("--n-prompt", default=512, type=_COUNT, help="Tokens of a prompt.")
@options.defaulting("--n-gen", default=128, type=_SOME)
@options.defaulting("--depth", default=0, type=_COUNT, help="Tokens before the prompt.")
@options.defaulting(
    "--concurrency", "batch", default=1, type=_SOME, help="Sequences that are decoded at once."
)
@click.option("--backend", default="", help="E.g. rocm (default: the platform's first back end).")
@click.option("--draft-tokens", "drafts", default=0, type=_COUNT, help="Drafts in each step.")
@click.option(
    "--draft-acceptance", "acceptance", default=0.0, type=click.FloatRange(0, 1), help="Share kept."
)
@options.path(
    "--measured",
    "Take round trips and bandwidth of TCP from the records of this cluster in a folder.",
    metavar="RUN",
)
@options.repeatable(
    "--what-if",
    "GROUP.NAME.KEY=VALUE",
    "Also predict with one fact changed, e.g. fabric.cable.latency_us=7",
    "what_ifs",
)
@options.table_format
def predict(
    cluster: str,
    model: str,
    quant: str,
    size_gib: float,
    measured: Path | None,
    what_ifs: tuple[str, ...],
    form: str,
    backend: str,
    **asked: Any,
) -> None:
    """Predict the speed of a model on a cluster, before it is bought or measured.

    \b
    Examples:
      nixwulf predict --cluster framework-2 --model MiniMax-M2-UD-Q6_K_XL
      nixwulf predict --cluster framework-2 --model Llama-3.1-70B --quant Q4_K_M \\
        --nodes 2 --fabric cable --what-if fabric.cable.latency_us=7
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.perf.scenarios import render
    from nixwulf.perf.scenarios.candidates import Question
    from nixwulf.perf.scenarios.facts import links_of, read_model, stated_links
    from nixwulf.perf.scenarios.forecast import answer

    loaded = load_cluster(cluster)
    links = stated_links(loaded) | (links_of(measured, loaded) if measured else {})
    known = read_model(model, quant, size_gib)
    question = Question(loaded, known, **asked, backend=backend.lower(), measured=links)
    options.print_form(form, render, answer(question, what_ifs))


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S = 7 * 24 * 3600.0


class _Duration(click.ParamType[float]):
    """A time such as 90s, 30m or 2h, in seconds."""

    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh])", str(value))
        seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
        if not 0 < seconds <= _LONGEST_S:
            raise errors.InputError(
                f"--budget {str(value)[:40]!r} is no time up to a week; give one such as 90s, 30m "
                "or 2h."
            )
        return seconds


@click.command()
@options.cluster("The cluster to run on (default: the lab).")
@click.option(
    "--model",
    required=True,
    metavar="M",
    help="A path on the nodes, a name on Hugging Face, or 'random': a small one that is made.",
)
@click.option(
    "--facts-of",
    default="",
    type=options.MODEL,
    metavar="NAME|FILE",
    help="Take the model's facts from here; same forms as predict --model.",
)
@click.option("--quant", default="", help="Quantization, if the name lacks it, e.g. Q4_K_M.")
@click.option(
    "--size-gib", default=0.0, type=click.FloatRange(min=0), help="Size of its files, GiB."
)
@click.option(
    "--tokenizer",
    default="",
    metavar="PATH",
    help="Tokenizer file on the head node (distributed-llama).",
)
@options.defaulting(
    "--goal",
    type=click.Choice(["decode", "prompt", "throughput", "ttft", "efficiency"]),
    default="decode",
    help="ttft: time to the first token of requests at once; efficiency: tokens a joule.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=options.ENGINE,
    metavar="NAME",
    help="Repeatable; default: all there are.",
)
@options.defaulting("--budget", type=_Duration(), default="30m", help="Time to measure in.")
@options.defaulting("--n-prompt", default=512, type=click.IntRange(min=1))
@options.defaulting("--n-gen", default=128, type=click.IntRange(min=2))
@options.defaulting(
    "--concurrency",
    default=8,
    type=click.IntRange(min=1),
    help="Requests at once, for the goals throughput and ttft.",
)
@options.defaulting("--samples", default=3, type=click.IntRange(1, 1000))
@options.out
@click.option("--dry-run", is_flag=True, help="Print the ranking, and measure nothing.")
@options.json_format("Of the ranking: a dry run's, else that of the end.")
def tune(
    cluster: str | None,
    model: str,
    facts_of: str,
    quant: str,
    size_gib: float,
    tokenizer: str,
    goal: str,
    engines: tuple[str, ...],
    budget: float,
    out: Path | None,
    dry_run: bool,
    form: str,
    **asked: int,
) -> None:
    """Find the best configuration for a model: predict all, measure the few that could be best.

    \b
    Examples:
      nixwulf tune --model random --budget 5m
      nixwulf tune --cluster mine.toml --model /models/MiniMax-M2-UD-Q6_K_XL.gguf --dry-run
      nixwulf tune --cluster mine.toml --model /models/x.gguf --facts-of Llama-3.1-70B \\
        --quant Q4_K_M --goal throughput --concurrency 16
    """
    from nixwulf.core.document import output
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.tune.options import GOALS, Request, engines_for, read_subject
    from nixwulf.tune.render import document, minutes, print_ranking
    from nixwulf.tune.search import begin, decide

    if out and not dry_run:
        check_new(out)
    loaded = load_cluster(cluster or "lab")
    subject = read_subject(model, facts_of, quant, size_gib, tokenizer)
    chosen = engines_for(subject, engines, is_lab=loaded.is_lab)
    state = begin(Request(loaded, subject, GOALS[goal], chosen, **asked))
    ranked = state.ranked()
    least = min(one.seconds for one in ranked)
    if decide(ranked, budget).next is None:
        if least > _LONGEST_S:
            raise errors.InputError(
                f"The quickest of {len(ranked)} strategies takes more than a week; ask for fewer "
                "tokens by --n-prompt and --n-gen, or fewer --samples."
            )
        enough = min(2 * least + _UNITS["m"], _LONGEST_S) // _UNITS["m"]
        raise errors.InputError(
            f"A budget of {minutes(budget)} measures no strategy: the quickest takes about "
            f"{minutes(least)}; give --budget {enough:.0f}m."
        )
    if form == "json" and dry_run:
        options.print_json(document(state, budget), "ranking")
        return
    print_ranking(output(stderr=form == "json"), state, budget)
    if not dry_run:
        options.end(_measure(state, out, cluster or "lab", budget, form))


def _measure(state: SearchState, out: Path | None, cluster: str, budget: float, form: str) -> int:
    import yaml

    from nixwulf.core.document import output
    from nixwulf.core.files import write_atomically
    from nixwulf.report import load, summary_of, write
    from nixwulf.sweep.plan import make_plan, parse_sweep
    from nixwulf.sweep.recording import TerminalProgress
    from nixwulf.tune import render
    from nixwulf.tune.options import sweep_document
    from nixwulf.tune.search import Decision, best, measure

    request = state.request
    folder = out or new_folder("tune", request.cluster)
    cases = [option.case for option in state.options]
    document = sweep_document(request, cases, "tune", budget)
    plan = make_plan(parse_sweep(document, "nixwulf tune"), request.cluster)
    # The live line and the sentence after each run share a console.
    beside = output(stderr=True)
    before = state.estimates()

    def on_run_end(n: int) -> None:
        render.print_measurement(beside, state, n, before[n])
        before[:] = state.estimates()

    code: int | None = None  # of what ended it early
    decision = Decision(None, "it was interrupted")
    try:
        with _new_run(folder, plan, state), TerminalProgress(beside) as progress:
            decision = measure(state, plan, folder, budget, progress, on_run_end, load)
    except KeyboardInterrupt:
        code = errors.EXIT_INTERRUPTED
    except errors.NixwulfError as error:
        if not state.took:
            raise
        error.show()
        code, decision = error.exit_code, Decision(None, "it could not go on")
    if not state.took:
        options.tell(f"Nothing was measured: {decision.why}.")
        return errors.EXIT_RUN_FAILED if code is None else code
    top = best(state.ranked())
    again = folder / "best.yaml"
    if top is not None:
        best_sweep = sweep_document(request, [cases[top]], "best", budget)
        write_atomically(again, yaml.safe_dump(best_sweep, sort_keys=False))
    console = output(stderr=form == "json")
    render.print_result(console, state, decision, folder, cluster, again)
    click.echo(f"Report: {write(summary_of(folder))}", err=form == "json")
    if form == "json":
        options.print_json(render.document(state, budget, decision.why), "ranking")
    if state.lacks_watts and code != errors.EXIT_INTERRUPTED:
        render.print_no_watts(console, state)
    return _exit_code(state, found=top is not None) if code is None else code


def _exit_code(state: SearchState, *, found: bool) -> int:
    if state.lacks_watts:
        return errors.EXIT_RUN_FAILED
    if found:
        return errors.EXIT_OK
    phases = [record["failure"]["phase"] for record in state.records.values()]
    return errors.EXIT_GATE if all(phase == "gates" for phase in phases) else errors.EXIT_RUN_FAILED


@contextmanager
def _new_run(folder: Path, plan: Plan, state: SearchState) -> Iterator[None]:
    """Hold the folder of a new run, whose plan is removed where nothing was measured."""
    with own_folder(folder, plan):
        try:
            yield
        finally:
            if not state.took:
                (folder / "plan.json").unlink(missing_ok=True)
