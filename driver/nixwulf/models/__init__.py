"""Models: what a sweep names, as a file on the head or as random weights that the driver makes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from nixwulf.models.random_gguf import ensure
from nixwulf.models.random_model import RandomModel, parse_random_model
from nixwulf.ssh import Connection


@dataclass(frozen=True)
class Model:
    """A model by its name in the sweep: random weights, or the path of a GGUF on the head."""

    name: str
    random: RandomModel | None = None
    path: str | None = None

    @property
    def digest(self) -> str:
        """sha256 of the definition; of a file, its path only."""
        definition = asdict(self.random) if self.random else {"path": self.path}
        return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class PlacedModel:
    """A model on a node: where it lies and how many bytes it has; none when it is missing."""

    model: Model
    path: str
    bytes: int | None

    def document(self) -> dict[str, Any]:
        """As in a record."""
        size = {"bytes": self.bytes} if self.bytes else {}
        random = self.model.random
        if random is None:
            return {"name": self.model.name, "file": self.path, **size}
        return {
            "name": self.model.name,
            "random_weights": True,
            "architecture": random.architecture,
            "parameters": random.parameters,
            "active_parameters": random.active_parameters,
            "weights": random.weights,
            **size,
        }


def parse_model(name: str, values: dict[str, Any], source: str) -> Model:
    """The model of a sweep's entry that passed the schema; raises InputError."""
    if "path" in values:
        return Model(name, path=values["path"])
    return Model(name, random=parse_random_model(values["random"], f"{source}.random"))


def place(model: Model, node: Connection) -> PlacedModel:
    """Bring a model to a node unless a file of the same name and size is there."""
    if model.random is None:
        path = model.path or ""
        return PlacedModel(model, path, _size(node, path))
    local = ensure(model.random)
    home = node.script('echo "$HOME"').strip()
    path = f"{home}/.cache/nixwulf/models/{local.name}"
    if _size(node, path) != local.stat().st_size:
        node.put(local, path)
    return PlacedModel(model, path, local.stat().st_size)


def _size(node: Connection, path: str) -> int | None:
    text = node.script('[ ! -f "$1" ] || wc -c <"$1"', path).strip()
    return int(text) if text else None
