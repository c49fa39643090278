"""Toolboxes on nodes: a tag held to its first digest, and the image pulled by that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nixwulf.core import web
from nixwulf.core.errors import GateError, NixwulfError
from nixwulf.core.files import read_json, write_json
from nixwulf.nodes import container
from nixwulf.nodes.ssh import Connection, each
from nixwulf.plugins.engines import all_engines

_TIMEOUT_S, _MOST_BYTES = 30.0, 1 << 20
_PULL_S = 6 * 3600.0
_NOT_FOUND = 127
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'(realm|service|scope)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Where the images of a name are that is no host's.
_HOSTS = {"docker.io": "registry-1.docker.io"}


def hold(names: Iterable[str], cluster: str) -> Iterator[str]:
    """Hold the tags among toolboxes that have no digest yet; a sentence for each that is new.

    Args:
        cluster: the cluster file, beside which they are kept.

    Raises:
        NixwulfError: a registry does not say the digest, or the file cannot be written.
    """
    for name in names:
        if name == container.NONE or "@" in name:
            continue
        entry = container.image_of(name, "toolbox", cluster)
        if entry["digest"] is None:
            yield _keep(name, entry, digest_of(entry), cluster)


def hold_again(name: str, cluster: str, *, accept: bool) -> str | None:
    """Compare the digest that a tag is held to with that of today; what changed, or None.

    A registry that does not answer, or has the tag no more, changes nothing.

    Args:
        accept: whether another digest is kept.

    Raises:
        GateError: the tag has another digest, which is not accepted.
    """
    entry = container.image_of(name, "--toolbox", cluster)
    if not entry["tag"]:
        return None
    try:
        today = digest_of(entry)
    except NixwulfError:
        return None
    if today == entry["digest"]:
        return None
    if accept:
        return _keep(name, entry, today, cluster)
    image = f"{entry['image']}@{entry['digest']}"
    raise GateError(
        f"The tag '{entry['image']}:{entry['tag']}' is {today} today and held to "
        f"{entry['digest']}; take today's by 'nixwulf engines install --cluster {cluster} "
        f"--toolbox {name} --accept', or stay by '--toolbox {image}'."
    )


def _keep(name: str, entry: dict[str, Any], digest: str, cluster: str) -> str:
    lock = container.lock_beside(cluster)
    held: dict[str, Any] = read_json(lock) if lock.exists() else {"version": 1, "images": {}}
    kept = {"image": entry["image"], "tag": entry["tag"], "digest": digest}
    held["images"] = dict(sorted({**held.get("images", {}), name: kept}.items()))
    write_json(lock, held)
    return f"The toolbox {name!r} is held to {digest} from now on, in {str(lock)!r}."


def digest_of(entry: dict[str, Any]) -> str:
    """The digest that a tag has in its registry today; raises NixwulfError."""
    host, _, path = entry["image"].partition("/")
    scheme = "http" if host.partition(":")[0] in {"localhost", "127.0.0.1"} else "https"
    url = f"{scheme}://{_HOSTS.get(host, host)}/v2/{path}/manifests/{entry['tag']}"

    def ask(method: str, url: str, headers: Mapping[str, str], **given: Any) -> web.Reply:
        client = web.client(url, headers=headers, proxies=True)
        return web.fetch(client, method, url, _TIMEOUT_S, _MOST_BYTES, **given)

    headers = {"Accept": ", ".join(_MANIFESTS)}
    try:
        answer = ask("HEAD", url, headers)
        asked = dict(_CHALLENGE.findall(answer.headers.get("WWW-Authenticate", "")))
        if answer.status == web.UNAUTHORIZED and "realm" in asked:
            granted = ask("GET", asked.pop("realm"), {}, params=asked).json or {}
            token = granted.get("token") or granted.get("access_token")
            answer = ask("HEAD", url, {**headers, "Authorization": f"Bearer {token}"})
    except (web.NoAnswer, ValueError, AttributeError) as error:
        raise NixwulfError(_unknown(entry, " ".join(str(error).split()))) from None
    found = str(answer.headers.get("Docker-Content-Digest", ""))
    if not answer.ok:
        raise NixwulfError(_unknown(entry, f"it answers {answer.status}"))
    if not _DIGEST.fullmatch(found):
        raise NixwulfError(_unknown(entry, f"it says {found!r}"))
    return found


def _unknown(entry: dict[str, Any], why: str) -> str:
    return (
        f"The registry does not say the digest of '{entry['image']}:{entry['tag']}': {why}; "
        "correct the tag or give IMAGE@sha256:DIGEST."
    )


def pull(
    nodes: Sequence[Connection], image: str, observer: Callable[[str, str, float], None]
) -> dict[str, list[str]]:
    """Bring an image to nodes; of each node the programs of engines that are inside.

    Args:
        image: by its digest.
        observer: called with a node's name, the step and 0.

    Raises:
        NixwulfError: a node lacks podman, cannot pull it or cannot run it.
    """
    wanted = [program for engine in all_engines().values() for program in engine.programs]

    def bring(node: Connection) -> list[str]:
        name = node.node.name
        observer(name, f"Pull {image}", 0.0)
        done = node.run(["podman", "pull", "--quiet", image], timeout_s=_PULL_S)
        if done.returncode == _NOT_FOUND:
            raise NixwulfError(f"Node {name!r} lacks podman; install it, or leave out --toolbox.")
        if done.returncode != 0:
            words = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise NixwulfError(f"podman on node {name!r} did not pull {image!r}: {words}")
        found = container.look(node, image, "", wanted)
        if isinstance(found, str):
            raise NixwulfError(found)
        return sorted(found.programs)

    return {node.node.name: found for node, found in zip(nodes, each(bring, nodes), strict=True)}


def remove(node: Connection, image: str) -> bool:
    """Remove an image from a node; whether it was there."""
    there = node.run(["podman", "image", "exists", image]).returncode == 0
    if there:
        node.script('podman image rm "$1"', image)
    return there
