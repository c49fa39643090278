"""Models: what a sweep names, as a file on the head or as random weights that the driver makes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from nixwulf.core.errors import InputError
from nixwulf.core.files import first_bytes
from nixwulf.core.text import fingerprint
from nixwulf.llm import catalog, dllama, gguf, safetensors
from nixwulf.llm.model_facts import NOT_OF_A_MODEL, FirstBytes, ModelShape, Sizes
from nixwulf.llm.random_model import RandomModel, parse_random_model
from nixwulf.nodes.ssh import Connection, each
from nixwulf.nodes.transfer import put

# Bytes of a file, or of all files below a folder.
_SIZE = """
if [ -d "$1" ]; then
  find -L "$1" -type f -exec wc -c {} + | awk '$2 != "total" { sum += $1 } END { print sum + 0 }'
elif [ -f "$1" ]; then
  wc -c <"$1"
fi
"""
_MOST_JSON = 1 << 20
_DESCRIBED = ("architecture", "parameters", "active_parameters", "weights")


@dataclass(frozen=True)
class Model:
    """A model by its name in the sweep.

    random: weights that the driver makes; path: a file or folder on the nodes, and
    tokenizer: the file beside it of engines that want one; id: a name on Hugging Face, which the
    engine itself fetches or finds in its cache. hub, sha256: the repository that a file is from,
    and what it should be. served: the name that a server which already runs has for it.
    """

    name: str
    random: RandomModel | None = None
    path: str | None = None
    id: str | None = None
    tokenizer: str | None = None
    hub: str | None = None
    sha256: str | None = None
    served: str | None = None

    @property
    def digest(self) -> str:
        """sha256 of the definition; of a file, its path only."""
        name = {"path": self.path} if self.path else {"id": self.id}
        name = {"served": self.served} if self.served else name
        name |= {"tokenizer": self.tokenizer} if self.tokenizer else {}
        definition = asdict(self.random) if self.random else name
        return fingerprint(definition)

    @property
    def shape(self) -> ModelShape:
        """The counts that decide how it splits: of random weights, or of a known name."""
        if self.random:
            return self.random.shape
        name = PurePosixPath(self.path or self.id or self.served or "").name
        try:
            return catalog.find(name.removesuffix(".gguf").removesuffix(".m")).shape
        except InputError:
            return ModelShape()


@dataclass(frozen=True)
class PlacedModel:
    """A model on nodes: its path, the same on all, or its name of another kind; and its bytes.

    bytes is None when a node lacks it, and missing_on is that node's name; also by name. sha256 is
    that of the file on the head, None where it was not read. sizes is
    None when its headers cannot be read.
    """

    model: Model
    path: str
    bytes: int | None
    missing_on: str | None = None
    sizes: Sizes | None = None
    sha256: str | None = None

    def document(self) -> dict[str, object]:
        """Return the model as a record has it."""
        size = {"bytes": self.bytes} if self.bytes else {}
        sha256 = {"sha256": self.sha256} if self.sha256 else {}
        random = self.model.random
        if self.model.id:
            return {"name": self.model.name, "hub": self.path}
        if self.model.served:
            return {"name": self.model.name, "served": self.path}
        if random is None:
            return {"name": self.model.name, "file": self.path, **size, **sha256}
        return {
            "name": self.model.name,
            "random_weights": True,
            **{key: getattr(random, key) for key in _DESCRIBED},
            **size,
        }


def parse_model(name: str, values: Mapping[str, object], source: str) -> Model:
    """The model of a sweep's entry; raises InputError for random weights that cannot be made."""
    if isinstance(random := values.get("random"), dict):
        return Model(name, parse_random_model(random, f"{source}.random"))
    keys = ("path", "id", "tokenizer", "hub", "sha256", "served")
    return Model(name, None, *(str(values[key]) if key in values else None for key in keys))


def place(
    model: Model,
    nodes: Sequence[Connection],
    make: Callable[[RandomModel], Path],
    copy: Callable[[Connection, Path, str], None] = put,
) -> PlacedModel:
    """Bring a model to nodes unless one of the same name and size is there.

    make: gives the file or folder of random weights, as the engine reads them. copy: copies a file
    to a path of a node; after it no node is asked anything.

    Raises NixwulfError: a node did not answer, or a file could not be made or copied.
    """
    if name := model.id or model.served:
        return PlacedModel(model, name, None)
    if model.random is None:
        return _found(model, nodes)
    local = make(model.random)
    files = [local] if local.is_file() else sorted(f for f in local.rglob("*") if f.is_file())
    names = [str(file.relative_to(local)) if local.is_dir() else "" for file in files]

    def look(node: Connection) -> tuple[str, list[tuple[Path, str]]]:
        """Find where the model is to be on a node, and which files of it are missing."""
        home = node.script('echo "$HOME"').strip()
        path = f"{home}/.cache/nixwulf/models/{local.name}"
        remotes = [f"{path}/{name}" if name else path for name in names]
        pairs = zip(files, remotes, strict=True)
        return path, [pair for pair in pairs if _size(node, pair[1]) != pair[0].stat().st_size]

    found = each(look, nodes)
    for node, (_, lacking) in zip(nodes, found, strict=True):
        for file, remote in lacking:
            copy(node, file, remote)
    count = sum(file.stat().st_size for file in files)
    return PlacedModel(model, found[0][0], count, sizes=_sizes_here(local))


def _found(model: Model, nodes: Sequence[Connection]) -> PlacedModel:
    """A model that the sweep names by its path; what of it a node lacks, if any, as its path."""
    least = {}
    for path in filter(None, (model.path, model.tokenizer)):
        sizes = {node.node.name: _size(node, path) for node in nodes}
        lacking = next((name for name, size in sizes.items() if size is None), None)
        if lacking:
            return PlacedModel(model, path, None, lacking)
        least[path] = min(size for size in sizes.values() if size is not None)
    path = model.path or ""
    return PlacedModel(model, path, least[path], sizes=sizes_on(nodes[0], path))


def sizes_on(node: Connection, path: str) -> Sizes | None:
    """The sizes of a model on a node, by its headers.

    None for what is of no known form or cut short: the engine's message is better. Raises
    NixwulfError where the node does not answer.
    """

    def names() -> list[str]:
        script = 'cd "$1" 2>/dev/null && ls *.safetensors 2>/dev/null || true'
        return node.script(script, path).splitlines()

    return _sizes(path, names, node.first_bytes)


def _sizes_here(path: Path) -> Sizes | None:
    def read(name: str, count: int) -> bytes:
        with contextlib.suppress(InputError):
            return first_bytes(Path(name), count)
        return b""

    return _sizes(str(path), lambda: sorted(f.name for f in path.glob("*.safetensors")), read)


def _sizes(path: str, names: Callable[[], list[str]], read: FirstBytes) -> Sizes | None:
    try:
        if path.endswith(".m"):
            return dllama.parse(read(path, dllama.HEADER_BYTES))
        if path.endswith(".gguf"):
            return gguf.read(path, read).sizes
        files = [f"{path}/{name}" for name in names()]
        config = json.loads(read(f"{path}/config.json", _MOST_JSON))
        return safetensors.read(files, config, read).sizes
    except NOT_OF_A_MODEL:
        return None


def _size(node: Connection, path: str) -> int | None:
    text = node.script(_SIZE, path).strip()
    return int(text) if text else None
