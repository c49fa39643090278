"""The model of a run, brought to the nodes that read it once in a session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from nixwulf.llm import Model, PlacedModel, place
from nixwulf.nodes.ssh import Connection
from nixwulf.nodes.transfer import put
from nixwulf.ops.models.machines import sha256_on
from nixwulf.ops.models.push import push, require_all
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.replicas import replicas
from nixwulf.plugins.runtime.run import Run

_SHOWN_AFTER_S = 1.0
Key = tuple[str, ...]
Observer = Callable[[str, float], None]
"""Called with what is being done, and how much of it is, 0 to 1."""


@dataclass
class Models:
    """What a session has brought to its nodes.

    fetch: whether models that nodes lack are pushed there; observer: shows what takes long.
    """

    fetch: bool = False
    observer: Observer = lambda words, share: None
    _placed: dict[Key, PlacedModel] = field(default_factory=dict)

    def bring(self, run: Run, model: Model, nodes: Mapping[str, Connection]) -> PlacedModel:
        """The run's model on the nodes that read it.

        What is made, copied or hashed meanwhile has limits of its own, and moves that of the run.

        Args:
            nodes: all of the session, any of which may have the model.

        Raises:
            NixwulfError: it cannot be made or brought there, or a node did not answer.
        """
        engine = engines.find(run.case.engine or "")
        readers = run.nodes
        if not engine.model_on_every_node:
            readers = tuple(one.head for one in replicas(run))
        names = [node.node.name for node in readers]
        key = (engine.name, model.digest, *names)
        if key in self._placed:
            return self._placed[key]

        def copy(node: Connection, file: Path, remote: str) -> None:
            words = f"Copying {Path(remote).name} to {node.node.name}"
            with _uncounted(run):
                put(node.until(None), file, remote, self._shown(words))

        if model.random:
            with _uncounted(run):
                engine.random_model(model.random)
        placed = place(model, readers, engine.random_model, copy)
        if self.fetch and placed.missing_on:
            with _uncounted(run):
                self._push(run, placed.path, names, nodes)
            placed = place(model, readers, engine.random_model, copy)
        if model.path and placed.bytes:
            with _uncounted(run):
                shown = self._shown(f"Reading the sha256 of {placed.path}")
                placed = replace(placed, sha256=sha256_on(run.head.until(None), placed.path, shown))
        self._placed[key] = placed
        return placed

    def _push(self, run: Run, path: str, names: list[str], nodes: Mapping[str, Connection]) -> None:
        """Bring a model of the folder of models to nodes; the gate refuses one of elsewhere."""
        name = run.cluster.model_name(path)
        if name is None:
            return
        shown = {one: self._shown(f"Pushing {name} to {one}") for one in names}

        def show(node: str, count: int, size: int) -> None:
            shown[node](count, size)

        require_all(push(run.cluster, nodes, name, names, None, show))

    def _shown(self, words: str) -> Callable[[int, int], None]:
        """An observer of bytes, which shows only what takes long."""
        begin = time.monotonic()

        def show(count: int, size: int) -> None:
            if time.monotonic() - begin > _SHOWN_AFTER_S:
                self.observer(words, count / max(1, size))

        return show


@contextmanager
def _uncounted(run: Run) -> Iterator[None]:
    """What takes as long as it moves is not the run's time."""
    begin = time.monotonic()
    try:
        yield
    finally:
        run.extend(time.monotonic() - begin)
