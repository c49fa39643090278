"""Sweeps: a matrix of cases, read from YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_input, read_yaml
from nixwulf.core.schema import check
from nixwulf.core.text import did_you_mean
from nixwulf.llm import Model, parse_model
from nixwulf.nodes import container
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.plugins.runtime.case import Limits

SEED = 1
"""Of the random numbers of a case, where a sweep gives none."""


@dataclass(frozen=True)
class Sweep:
    """What to run. Each block (the matrix, then the includes) is a product of its axes.

    long_prompts: whether texts are judged on them too.
    """

    name: str
    description: str
    models: dict[str, Model]
    blocks: tuple[dict[str, Any], ...]
    exclude: tuple[dict[str, Any], ...]
    repetitions: int
    samples: int
    warm_up: bool
    seed: int
    limits: Limits
    recover_after_hang: bool
    long_prompts: bool
    source: str
    document: dict[str, Any]
    expect: tuple[dict[str, Any], ...] = ()

    def model(self, name: str) -> Model:
        """The model of a name, the first of an empty one, or of a path; raises InputError."""
        if name.startswith("/"):
            return parse_model(name, {"path": name}, self.source)
        if name and name not in self.models:
            raise InputError(
                f"{self.source}: the model {name!r} is not among models: {', '.join(self.models)}."
            )
        return self.models[name or next(iter(self.models))]

    @property
    def toolboxes(self) -> set[str]:
        """Those that its cases name."""
        given = (block.get("parameters", {}).get(container.NAME, ()) for block in self.blocks)
        return {str(name) for names in given for name in names}


def load_sweep(name_or_path: str | Path) -> Sweep:
    """The sweep of a YAML file, or of sweeps/NAME.yaml; raises InputError."""
    path = find_input(str(name_or_path), "sweeps", ".yaml")
    return parse_sweep(read_yaml(path), str(path))


def parse_sweep(document: Any, source: str) -> Sweep:
    """The sweep of a document; raises InputError when it breaks the schema or names no model."""
    check(document, "sweep", source)
    models = {
        name: parse_model(name, values, f"{source}: models.{name}")
        for name, values in document.get("models", {}).items()
    }
    parsers = {speculation.DRAFT: speculation.as_text}
    blocks = tuple(
        passthrough.as_texts(block, source, parsers)
        for block in (document["matrix"], *document.get("include", ()))
    )
    points = document.get("exclude", ())
    exclude = tuple(passthrough.as_texts(point, source, parsers) for point in points)
    for block in (*blocks, *exclude):
        used = block.get("model", [])
        for name in [used] if isinstance(used, str) else used:
            if name not in models:
                raise InputError(
                    f"{source}: the model {name!r} is not among models; "
                    f"{did_you_mean(name, models)}"
                )
        _check_drafts(block.get("parameters", {}), models, source)
    return Sweep(
        name=document["name"],
        description=document.get("description", ""),
        models=models,
        blocks=blocks,
        exclude=exclude,
        repetitions=document.get("repetitions", 1),
        samples=document.get("samples", 3),
        warm_up=document.get("warm_up", True),
        seed=document.get("seed", SEED),
        limits=Limits(**document.get("limits", {})),
        recover_after_hang=document.get("on_hang") == "recover",
        long_prompts=document.get("sanity") != "short",
        source=source,
        document=document,
        expect=tuple(document.get("expect", ())),
    )


def _check_drafts(given: dict[str, Any], models: dict[str, Model], source: str) -> None:
    """Refuse a draft that is no model: a case would fail long after the sweep began."""
    drafts = given.get(speculation.DRAFT, [])
    for value in drafts if isinstance(drafts, list) else [drafts]:
        name = speculation.draft_model({speculation.DRAFT: value})
        if name and name not in models and not name.startswith("/"):
            raise InputError(
                f"{source}: the draft {name!r} is none of {speculation.NONE}, {speculation.NGRAM}, "
                f"{speculation.MTP} and not among models: {', '.join(models)}; add it there, or "
                "give its path on the nodes."
            )
