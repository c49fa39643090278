"""nixwulf predict: what each strategy to run a model on a cluster should give, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nixwulf.cli.options import ENGINE, MODEL, ClusterOption, FilePath, print_form, table_format
from nixwulf.plugins.engines import DEFAULT

# Far above what is run, and far from where numbers overflow.
_MOST = 10**9
_COUNT = click.IntRange(0, _MOST)
_SOME = click.IntRange(1, _MOST)


@click.command()
@click.option("--cluster", cls=ClusterOption, required=True, help="A cluster file, or its name.")
@click.option(
    "--model",
    required=True,
    type=MODEL,
    metavar="M",
    help="A known model, a GGUF, a folder of safetensors, ORG/REPO of the hub, or a TOML file.",
)
@click.option("--quant", default="", help="Its quantization, where the name lacks it: Q4_K_M.")
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
    help="replicas: a server on each node, and requests spread over them; repeatable.",
)
@click.option("--engine", type=ENGINE, default=DEFAULT, show_default=True)
@click.option("--n-prompt", default=512, show_default=True, type=_COUNT, help="Tokens of a prompt.")
@click.option("--n-gen", default=128, show_default=True, type=_SOME)
@click.option(
    "--depth", default=0, show_default=True, type=_COUNT, help="Tokens before the prompt."
)
@click.option(
    "--concurrency",
    "batch",
    default=1,
    show_default=True,
    type=_SOME,
    help="Sequences that are decoded at once.",
)
@click.option("--backend", default="", help="Such as rocm; default: the platform's first.")
@click.option("--draft-tokens", "drafts", default=0, type=_COUNT, help="Guessed ahead in a step.")
@click.option(
    "--draft-acceptance", "acceptance", default=0.0, type=click.FloatRange(0, 1), help="Kept share."
)
@click.option(
    "--measured",
    metavar="RUN",
    type=FilePath(),
    help="Take round trips and bandwidth of TCP from the records of this cluster in a folder.",
)
@click.option(
    "--what-if",
    "what_ifs",
    multiple=True,
    metavar="GROUP.NAME.KEY=VALUE",
    help="Beside it, the speed with a fact changed, such as fabric.cable.latency_us=7; repeatable.",
)
@table_format
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
    from nixwulf.perf.scenarios.facts import links_of, stated_links
    from nixwulf.perf.scenarios.forecast import answer
    from nixwulf.perf.scenarios.source import read_model

    loaded = load_cluster(cluster)
    links = stated_links(loaded) | (links_of(measured, loaded) if measured else {})
    known = read_model(model, quant, size_gib)
    question = Question(loaded, known, **asked, backend=backend.lower(), measured=links)
    print_form(form, render, answer(question, what_ifs))
