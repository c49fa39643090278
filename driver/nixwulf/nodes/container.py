"""Toolboxes: an engine's programs in a container on each node, run by podman from a pinned image.

What is written here for a run, modules/toolboxes.nix writes for a user: the same image by the same
digest (data/toolboxes.lock.json), devices, limits and caches. A tag without one is held to that of
its first use, in a file of the same form beside the cluster file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_json, shipped_text
from nixwulf.core.text import as_typed, did_you_mean
from nixwulf.nodes.ssh import Connection

NAME = "toolbox"
NONE = "none"
_LOCK = DATA / "toolboxes.lock.json"
_REFERENCE = re.compile(r"\w[\w.-]*(?::\d+)?(?:/[\w.-]+)+@sha256:[0-9a-f]{64}")
_TAGGED = re.compile(r"(\w[\w.-]*(?::\d+)?(?:/[\w.-]+)+):([\w.-]+)")
_PROBE_S = 120
_LOOK = shipped_text("nodes/container.sh")


@dataclass(frozen=True)
class Toolbox:
    """An image on one node: what of the node it gets, and the programs that are inside."""

    image: str
    devices: tuple[str, ...]
    memlock: bool
    model: str | None
    caches: tuple[str, ...]
    programs: Mapping[str, str]

    def argv(
        self, name: str, argv: Sequence[str], environment: Iterable[str], folder: str
    ) -> list[str]:
        """podman's command line for a program in a container.

        environment: names of variables that it gets as podman has them: an argv is public. folder:
        of the run, for sockets and results, which the driver reads.
        """
        options = [
            *("--rm", "--init", f"--name={name}", "--entrypoint=", "--log-driver=none"),
            # The container's processes stay in the caller's cgroup: who stops that unit stops them.
            "--cgroups=disabled",
            # Engines bind the fabrics' addresses, and NCCL's ranks meet in shared memory.
            "--network=host",
            "--ipc=host",
            # ROCm's allocations are system calls that the default profile refuses.
            "--security-opt=seccomp=unconfined",
            # The caller's render, video and rdma: a named group aborts when the image lacks it.
            "--group-add=keep-groups",
        ]
        options += ["--ulimit=memlock=-1"] if self.memlock else []
        options += [f"--device={device}" for device in self.devices]
        options += [f"--volume={folder}:{folder}", *(f"--volume={cache}" for cache in self.caches)]
        options += [f"--volume={self.model}:{self.model}:ro"] if self.model else []
        # Its default is not in .cache; recompiling takes vLLM 25 minutes.
        options += ["--env=TRITON_CACHE_DIR=/root/.cache/triton"]
        options += [f"--env={key}" for key in environment]
        return ["podman", "run", *options, self.image, *argv]


def removal(name: str) -> list[str]:
    """The command after which no container of a name is there, whatever became of podman run."""
    return ["podman", "rm", "--force", "--ignore", "--time=0", name]


def lock_beside(cluster: str) -> Path:
    """The file beside a cluster file that holds tags to the digests that they had at first use."""
    return Path(cluster).with_suffix(".lock.json")


def image_of(name: str, source: str, cluster: str) -> dict[str, Any]:
    """The `image`, `tag` and `digest` of a toolbox; a digest is None where none is known yet.

    name: of the lock file that is shipped, or IMAGE:TAG. cluster: the cluster file; what is held
    beside it goes before what is shipped.

    Raises InputError: it is neither, or what is held was edited.
    """
    lock = lock_beside(cluster)
    held = read_json(lock) if lock.exists() else {}
    images = held.get("images", {}) if isinstance(held, dict) else {}
    if name in images:
        entry: dict[str, Any] = images[name] if isinstance(images[name], dict) else {}
        if not _REFERENCE.fullmatch(f"{entry.get('image')}@{entry.get('digest')}"):
            raise InputError(f"{lock}: {name!r} has no image with a digest; remove its entry.")
        return entry
    if name in _images():
        return _images()[name]
    if tagged := _TAGGED.fullmatch(name):
        return {"image": tagged[1], "tag": tagged[2], "digest": None}
    raise InputError(
        f"{source}: the toolbox {name!r} is neither IMAGE:TAG nor IMAGE@sha256:DIGEST nor one that "
        f"is shipped; {did_you_mean(name, _images())}"
    )


def resolve(name: str, source: str, cluster: str) -> str:
    """The image by its digest, of the name of a shipped lock file, IMAGE:TAG or IMAGE@DIGEST.

    Raises InputError: it is unknown, or a tag that is held to no digest yet.
    """
    if _REFERENCE.fullmatch(name):
        return name
    entry = image_of(name, source, cluster)
    if entry["digest"] is None:
        install = as_typed("engines", "install", "--cluster", cluster, "--toolbox", name)
        raise InputError(
            f"{source}: the toolbox {name!r} has no digest yet and its tag is rebuilt without "
            f"notice; run {install}, which keeps today's in {str(lock_beside(cluster))!r}."
        )
    return f"{entry['image']}@{entry['digest']}"


def look(node: Connection, image: str, model: str, programs: Iterable[str]) -> Toolbox | str:
    """What an image on a node has, or why it cannot be used there, in one round trip.

    model: the path of a model on the node, or a name on Hugging Face.
    """
    path = model if model.startswith("/") else ""
    text = node.script(_LOOK, image, path, *programs, timeout_s=_PROBE_S)
    before, separator, inside = text.partition("--\n")
    words = before.splitlines()
    if not separator and "cdi" in words:
        return (
            f"Node {node.node.name!r} has no CDI specification, without which a container does not "
            "see its NVIDIA GPU; deploy it with nixwulf.toolboxes, or run 'sudo nvidia-ctk cdi "
            "generate --output=/etc/cdi/nvidia.yaml' there."
        )
    if not separator:
        fix = "install it" if words == ["podman"] else f"run 'podman pull {image}' there"
        lacking = "podman" if words == ["podman"] else f"the image {image!r}"
        return f"Node {node.node.name!r} lacks {lacking}; {fix}."
    places = [place for place in inside.splitlines() if place.startswith("/")]
    return Toolbox(
        image=image,
        devices=tuple(word for word in words if word.startswith(("/dev/", "nvidia.com/"))),
        memlock="memlock" in words,
        model=next((word[6:] for word in words if word.startswith("model:")), None),
        caches=tuple(word[6:] for word in words if word.startswith("cache:")),
        programs={place.rpartition("/")[2]: place for place in places},
    )


@cache
def _images() -> dict[str, dict[str, Any]]:
    return dict(read_json(_LOCK)["images"])
