"""Engines: each starts on the nodes of a case, answers, and proves what it crossed.

An engine is one module of this package with an object ENGINE that meets the protocol below.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from nixwulf.core.errors import NixwulfError
from nixwulf.core.registry import choose, discover
from nixwulf.plugins.engines.local import Installation, Progress

if TYPE_CHECKING:
    from nixwulf.core.registry import Parameter
    from nixwulf.llm.random_model import RandomModel
    from nixwulf.plugins.runtime.endpoint import Endpoint
    from nixwulf.plugins.runtime.run import Run


class Engine(Protocol):
    """What the driver asks of an engine; what most have in common need not be said again."""

    name: str
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    """Options of its own that a sweep can vary, beside those of the benchmark."""
    programs: tuple[str, ...]
    """Programs looked for on PATH of every node; their places are facts."""
    local_programs: tuple[str, ...] = ()
    """What an installation on this machine calls them, where it has names of its own."""
    built_from: str = ""
    """What a build on this machine takes and how long, as a phrase; empty: none is built."""
    lacking: str = ""
    """What to do on a machine that lacks an engine that is not built, as a sentence."""

    def find_local(self) -> Installation | None:
        """The engine's programs on this machine, all of them, or none: those on PATH."""
        places = {name: shutil.which(name) for name in self.programs}
        found = {name: Path(place) for name, place in places.items() if place}
        return Installation("path", found, "unknown") if len(found) == len(places) else None

    def install_local(self, progress: Progress) -> Installation:
        """The programs on this machine, built where it can be; raises NixwulfError."""
        found = self.find_local()
        if found is None:
            raise NixwulfError(self.lacking)
        return found

    model_on_every_node: bool
    """Whether each node reads the model, and not the head alone."""

    hub_models: bool
    """Whether it takes a model by its name on Hugging Face."""

    gpus: tuple[str, ...] = ("amd", "nvidia", "apple")
    """Vendors whose GPUs it has kernels for; beside any other's it computes on the CPU."""

    def random_model(self, model: RandomModel) -> Path:
        """A file or folder of random weights in the engine's format; raises InputError."""

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Why a point of a sweep cannot be run, or None.

        `random` is its RandomModel, `fabric_kind` the kind of its fabric, each or none; `gpus` the
        vendors of its nodes' GPUs, an empty one where a platform has none.
        """
        return None

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """What a node with these programs lacks, or none: any node may be the head."""
        return next((repr(name) for name in self.programs if name not in programs), None)

    def version_command(self, programs: Mapping[str, str]) -> list[str]:
        """What prints the version on a node with these programs; empty where nothing does.

        A version is one line with a number in it, or the lines that say 'version'.
        """

    def build_problem(self, printed: str, *, several: bool) -> str | None:
        """What is wrong with a build, by what the version command printed, as after 'it has'.

        several: whether more than one node has the engine.
        """
        return None

    def start(self, run: Run) -> None:
        """Start what must listen on the nodes and wait until it does; raises RunFailure."""

    def transport_problem(self, run: Run) -> str | None:
        """What the engine's own output says against the case's transport, after a measurement.

        None when it proves the transport, or has no words for it: the counters are judged anyway.
        """
        return None

    def greedy_tokens(self, run: Run, count: int) -> list[int] | list[str]:
        """The tokens of a fixed prompt at temperature 0 and the case's seed; raises RunFailure.

        Their numbers; their texts where the engine gives no numbers.
        """

    def endpoint(self, run: Run) -> AbstractContextManager[Endpoint]:
        """An OpenAI-compatible server of the started engine; raises RunFailure."""


@cache
def all_engines() -> dict[str, Engine]:
    """Every engine by name."""
    return cast(dict[str, Engine], discover(sys.modules[__name__], "ENGINE"))


def find(name: str, source: str = "plan") -> Engine:
    """The engine of a name; raises InputError."""
    return choose(all_engines(), name, "engine", source)
