"""Engines: each starts on the nodes of a case, answers, and proves what it crossed.

An engine is one module or folder of this package with an object ENGINE of the class below. All that
is known of an engine is there: no other room has its name.

Whether an engine can split a model over some nodes: what sweeps, predict and tune ask.

Experts decide nothing: no engine is started with expert parallelism, so each node has all experts
of a layer in a pipeline, and a part of each expert where tensors are split.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import shipped_table
from nixwulf.core.registry import Parameter, choose, discover
from nixwulf.llm.model_facts import ModelShape
from nixwulf.nodes import container
from nixwulf.plugins.engines import local
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.plugins.runtime.case import OverCables, cables_problem

if TYPE_CHECKING:
    from nixwulf.llm.random_model import RandomModel
    from nixwulf.plugins.engines.serving import MeasuredRun, Serving
    from nixwulf.plugins.runtime.openai import Completer, Endpoint
    from nixwulf.plugins.runtime.run import Run


def equal_kv_heads(kv_heads: int, nodes: int) -> bool:
    """As many on each node."""
    return kv_heads % nodes == 0


def equal_or_latent_kv_heads(kv_heads: int, nodes: int) -> bool:
    """As many on each node; a single one may be latent attention, which is not cut."""
    return kv_heads == 1 or kv_heads % nodes == 0


def equal_or_repeated_kv_heads(kv_heads: int, nodes: int) -> bool:
    """As many on each node, or each on as many nodes."""
    return kv_heads % nodes == 0 or nodes % kv_heads == 0


@dataclass(frozen=True)
class Splits:
    """How an engine splits a model over several nodes.

    even_heads: whether by tensors each node has to get as many attention heads. kv_heads: whether a
    count of key-value heads goes with a number of nodes. powers_of_two: of nodes. most: nodes by
    parallelism, where the engine has a limit of its own.
    """

    even_heads: bool = False
    kv_heads: Callable[[int, int], bool] = lambda kv_heads, nodes: True
    powers_of_two: bool = False
    most: Mapping[str, int] = field(default_factory=dict)


def splitting_problem(
    engine: str, splits: Splits, shape: ModelShape, nodes: int, parallelism: str
) -> str | None:
    """Why an engine cannot split a model so, as a clause, or None; what is not known is no reason.

    parallelism: single, pipeline or tensor.
    """
    if nodes == 1:
        return None
    if splits.powers_of_two and nodes & (nodes - 1):
        return f"{engine} runs on 1, 2, 4, 8, ... nodes, not {nodes}"
    most = splits.most.get(parallelism, nodes)
    if nodes > most:
        return f"{engine} splits a model by {parallelism} over {most} devices at most"
    if parallelism == "pipeline" and 0 < shape.layers < nodes:
        return f"{shape.layers} layers are too few for {nodes} nodes"
    if parallelism != "tensor":
        return None
    if splits.even_heads and shape.heads % nodes:
        return f"{engine} gives each node as many heads, and {nodes} do not divide {shape.heads}"
    if shape.kv_heads and not splits.kv_heads(shape.kv_heads, nodes):
        return f"{engine} cannot share {shape.kv_heads} key-value heads out to {nodes} nodes"
    return None


DEFAULT = "llama.cpp"
"""The engine of a sweep or a prediction that names none; a lab builds it where it is missing."""


@dataclass(frozen=True)
class Performance:
    """What the performance model has to know of an engine beside its fitted constants.

    family: the engine whose constants hold for it; empty: its own. eager_family: whose hold where
    it starts kernels one by one, by itself on the kinds of device in eager_on; empty: it is no
    other engine then. collective: how nodes sum what they computed: 'ring', 'tree' (or a ring,
    whichever is faster for the size), 'mesh' (each sends its whole sum to all others at once),
    'star' (the root serves one after the other), 'rpc' (all through the client). star_before: the
    version from which on the collective is that, and before it a star. prompt_chunk: tokens of a
    prompt computed at once. activation_bytes: of a value that kernels and nodes hand on. tiles:
    tokens of a tile of a product of matrices by kind of device, 64 on those that are not named.
    unpacking: how much longer such products take with weights of at most 3.2 bits. verifying: what
    checking one guessed token adds to a step beside what it reads, as a part of the step.
    """

    family: str = ""
    eager_family: str = ""
    eager_on: tuple[str, ...] = ()
    collective: Literal["ring", "tree", "mesh", "star", "rpc"] = "tree"
    star_before: tuple[int, ...] = ()
    prompt_chunk: int = 2048
    activation_bytes: int = 2
    tiles: Mapping[str, int] = field(default_factory=dict)
    unpacking: float = 1.0
    verifying: float = 0.0


class Engine(ABC):
    """What the driver asks of an engine.

    Each has a name, programs, `start`, `greedy_tokens` and `endpoint`; the rest has defaults.
    """

    name: str
    also: tuple[str, ...] = ()
    """Programs that are this engine inside, as records of others name them."""
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    """Options of its own that a sweep can vary, beside those of the benchmark."""
    text_parameters: tuple[str, ...] = ()
    """Those of its options of which another value is another text, or another back end's."""
    programs: tuple[str, ...]
    """Programs looked for on PATH of every node; their places are facts."""
    version_options: tuple[str, ...] = ()
    """With them its first program prints its version; empty: see `packages`."""
    packages: tuple[str, ...] = ()
    """Python packages whose versions identify a build of it; reading them imports none."""
    wheels: local.Wheels | None = None
    """Where its programs come from on a machine without them; None: see `recipe`."""
    ports: tuple[int, ...] = ()
    """TCP ports of the nodes on which it listens."""
    api_port: int = 0
    """Where its server answers on the head's loopback."""
    apis: tuple[str, ...] = ("completions", "chat")
    """Which of OpenAI's requests its server answers."""
    parallelisms: tuple[str, ...] = ("pipeline", "tensor")
    """How it can split a model over nodes."""
    transports: tuple[str, ...] = ("tcp", "rdma")
    """By what it can cross a fabric."""
    over_cables: ClassVar[Mapping[str, OverCables]] = {}
    """By transport, what it asks of cables where more than two nodes take part."""
    model_suffixes: tuple[str, ...] = ()
    """Of the model files that it reads; empty: it reads folders of Hugging Face's form."""
    tokenizer_apart: bool = False
    """Whether its models have their tokenizer in a file of its own."""
    native_benchmark: str = ""
    """What measures it by itself, without requests; empty: nothing does."""
    performance: Performance = Performance()
    rdma_known_by: str = ""
    """How it shows RDMA where no counter does, as after 'because'; empty: it does not."""
    clients: tuple[str, ...] = ()
    """Beginnings of command lines that are clients: they measure or answer once."""
    measuring_variables: tuple[str, ...] = ()
    """Variables that a server is given because it is measured."""
    local_programs: tuple[str, ...] = ()
    """What an installation on this machine calls them, where it has names of its own."""
    built_from: str = ""
    """What a build on this machine takes and how long, as a phrase; empty: none is built."""
    lacking: str = ""
    """What to do on a machine that lacks an engine that is not built, as a sentence."""
    model_on_every_node: bool = False
    """Whether each node reads the model, and not the head alone."""
    hub_models: bool = False
    """Whether it takes a model by its name on Hugging Face."""
    elsewhere: bool = False
    """Whether it is no program of the driver's, but a server that somebody else has started."""
    drafts: tuple[str, ...] = ()
    """Kinds of drafts of which it decodes speculatively, those of runtime/speculation.py."""
    splits: Splits = Splits()
    """Its rules of how many nodes a model can be split over."""
    gpus: tuple[str, ...] = ("amd", "nvidia", "apple")
    """Vendors whose GPUs it has kernels for; beside any other's it computes on the CPU."""

    @property
    def reserved_arguments(self) -> Mapping[str, str]:
        """So its flags, in words apart: data/reserved_arguments.toml."""
        return dict(shipped_table("reserved_arguments").get(self.name, {}))

    @property
    def reserved_variables(self) -> Mapping[str, str]:
        """Variables that the driver sets, with what a sweep uses instead; of a family with '*'."""
        return passthrough.reserved_variables(self.name)

    def recipe(self) -> local.Recipe | None:
        """How its programs are made on this machine; None: they are only looked for on PATH."""
        return self.wheels.recipe() if self.wheels else None

    def node_build(self) -> local.NodeBuild | None:
        """How its programs are built on a node; None: they have to be there."""
        return None

    def find_local(self) -> local.Installation | None:
        """The engine's programs on this machine, all of them, or None."""
        if recipe := self.recipe():
            return recipe.find()
        found = local.programs_in(os.get_exec_path(), {name: (name,) for name in self.programs})
        return local.Installation("path", found, "unknown") if found else None

    def install_local(self, progress: local.Progress) -> local.Installation:
        """The programs on this machine, made where there is a recipe; raises NixwulfError."""
        if found := self.find_local():
            return found
        if recipe := self.recipe():
            return local.make_once(recipe, progress)
        raise NixwulfError(self.lacking)

    def random_model(self, model: RandomModel) -> Path:
        """A file or folder of random weights in the engine's format; raises InputError."""
        raise InputError(f"{self.name} runs no random weights; give the model by its path or id.")

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Why a point of a sweep cannot be run, or None.

        point: Its coordinates and `parameters`. `random` is its RandomModel and `fabric_kind` the
        kind of its fabric, or None; `cables` and `control` are as for `cables_problem`; `served` is
        the name that a server has for the model, if the sweep gives one; `shape` is the model's, as
        far as it is known; `gpus` are the vendors of its nodes' GPUs, with an empty one where a
        platform has none, and `bandwidths` those of their memory by node, GB/s, 0 where one is not
        known.
        """
        given = point["parameters"]
        if taken := passthrough.problem(given, self.reserved_arguments, self.reserved_variables):
            return taken
        if point.get("served") and not self.elsewhere:
            return f"{self.name} reads a model itself, and 'served' names one that a server has"
        if problem := speculation.problem(self.name, self.drafts, given):
            return problem
        if given.get(container.NAME) and speculation.draft_model(given):
            return "a toolbox is given one model, and the draft is another"
        nodes, parallelism = point["nodes"], point["parallelism"]
        if nodes > 1 and parallelism not in self.parallelisms:
            return f"{self.name} splits a model by {' and '.join(self.parallelisms)} only"
        shape = point.get("shape", ModelShape())
        if problem := splitting_problem(self.name, self.splits, shape, nodes, parallelism):
            return problem
        if point.get("transport", "tcp") not in (None, *self.transports):
            return f"{self.name} crosses a fabric by {' and '.join(self.transports)} only"
        api = self.apis[0]
        if given.get("api", api) not in self.apis:
            return f"{self.name} answers {api} only; give the parameter api: [{api}]"
        return cables_problem(self.name, self.over_cables, point)

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """What a node with these programs lacks, or None: any node may be the head."""
        return next((repr(name) for name in self.programs if name not in programs), None)

    def version_command(self, programs: Mapping[str, str]) -> list[str]:
        """What prints the version on a node with these programs; empty where nothing does.

        A version is one line with a number in it, or the lines that have the word 'version'.
        """
        from nixwulf.plugins.engines import devices

        place = programs.get(self.programs[0])
        if place and self.packages:
            return devices.in_python(place, devices.PRINT_VERSIONS, *self.packages)
        return [place, *self.version_options] if place and self.version_options else []

    def build_problem(self, printed: str, *, several: bool) -> str | None:
        """What is wrong with a build, by what the version command printed, as after 'it has'.

        several: whether more than one node has the engine.
        """
        return None

    @abstractmethod
    def start(self, run: Run) -> None:
        """Start what must listen on the nodes and wait until it does; raises RunFailure."""

    def transport_problem(self, run: Run) -> str | None:
        """What contradicts the case's transport in the engine's own output, after a measurement.

        None when it proves the transport, or has no words for it: the counters are judged anyway.
        """
        return None

    @contextmanager
    def completer(self, run: Run, context: int) -> Iterator[Completer]:
        """What continues prompts with log-probabilities; raises RunFailure.

        Without them, as here, texts are compared by `greedy_tokens`.

        context: tokens that it should have room for.
        """
        from nixwulf.plugins.runtime.openai import TokensOnly

        yield TokensOnly(lambda count: self.greedy_tokens(run, count))

    def on_cpu(self, run: Run) -> Run | str | None:
        """A run of the same model and build on the head's CPU alone, which is asked for its text.

        Why its text would say nothing, as a sentence without its stop; None where no other back end
        computes, or where the engine can do no such thing.
        """
        return None

    def greedy_tokens(self, run: Run, count: int) -> list[int] | list[str]:
        """The tokens of a fixed prompt at temperature 0 and the case's seed; raises RunFailure.

        Their numbers; their texts where the engine gives no numbers. Of engines whose completer
        gives log-probabilities it is not asked.
        """
        raise NotImplementedError

    @abstractmethod
    def endpoint(self, run: Run) -> AbstractContextManager[Endpoint]:
        """An OpenAI-compatible server of the started engine; raises RunFailure."""

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """How to serve what a run measured: as it was started, on the same port."""
        from nixwulf.plugins.engines.serving import serving

        return serving(self, run, run.started)


def runs_of(name: str) -> list[dict[str, Any]]:
    """This project's own runs of an engine that ended ok; empty where it was only described."""
    return [one for one in shipped_table("engines_ran")["runs"] if one["engine"] == name]


def engines_without_run(names: Iterable[str | None]) -> list[str]:
    """Those of some engines, None for none, that this project has only described."""
    driven = (name for name in sorted(filter(None, set(names))) if not find(name).elsewhere)
    return [name for name in driven if not runs_of(name)]


@cache
def all_engines() -> dict[str, Engine]:
    """Every engine by name."""
    return cast(dict[str, Engine], discover(sys.modules[__name__], "ENGINE"))


def find(name: str, source: str = "plan") -> Engine:
    """The engine of a name; raises InputError."""
    return choose(all_engines(), name, "engine", source)


@cache
def performance(name: str) -> Performance:
    """Of an engine, or of a program that contains one; the default for an unknown name."""
    known = (one for one in all_engines().values() if name in (one.name, *one.also))
    return next((one.performance for one in known), Performance())
