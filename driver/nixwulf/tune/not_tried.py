"""What a search does not try, and why: nothing of it is among the strategies that are ranked."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.plugins import engines
from nixwulf.results.identity import REPLICAS
from nixwulf.tune.options import Request


def not_tried(request: Request) -> tuple[str, ...]:
    """Sentences, those about engines first."""
    return (*_engines(request), *_strategies(request))


def _engines(request: Request) -> Iterator[str]:
    for name, engine in engines.all_engines().items():
        if name in request.engines:
            continue
        if engine.elsewhere:
            yield f"{name}: it measures a server that already runs, and starts none"
        elif name not in request.subject.engines:
            forms = " or ".join(engine.model_suffixes) or "a folder of Hugging Face's form"
            yield f"{name}: it reads {forms}, not this model"
        elif request.cluster.is_lab and not engine.find_local():
            yield f"{name}: it is not on this machine ('nixwulf engines' says how to get it)"
        else:
            yield f"{name}: --engine names others"


def _strategies(request: Request) -> Iterator[str]:
    if len(request.cluster.nodes) > 1:
        if not request.goal.loaded:
            yield f"{REPLICAS}: one request at a time is served by one node, which is ranked"
        yield "prompts on some nodes and answers on others: the driver starts no engine so"
        yield "other nodes than the first ones: a case takes the cluster's nodes in their order"
    yield "other quantizations and drafts of tokens: the model is taken as it is"
    yield "other parameters of an engine: each has its default; vary them in a sweep"
