"""Models in the folder where they lie: listed, hashed, verified, removed.

The driver runs this file on nodes as text (`python3 -I -S -c TEXT COMMAND JSON`), core/names.py
with it, so it needs Python 3.9 and its standard library alone. It prints a line of JSON, which is
{"error": ...} where it fails. Beside the models lies the folder SIDE: of each model a JSON file
with its manifest (sha256 of the files and of their chunks) and the stats that the files had then,
and what is not complete yet.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nixwulf.core.names import Refusal, join

CHUNK = 1 << 20
SIDE = ".nixwulf"
SUFFIXES = (".gguf", ".m", ".safetensors", ".t")
Document = dict[str, Any]
HASH_BYTES = 32
_THREADS = 4
_REPORTED = 32  # chunks
_SPLIT = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


class Place:
    """A model by its name in a folder of models; raises Refusal for a name that leads elsewhere."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder = Path(folder).expanduser()
        self.file(name)
        if "/." in f"/{name}":  # SIDE, and what programs keep of their own
            raise Refusal(f"{name!r} is no name of a model in {str(self.folder)!r}: it is hidden")
        self.split = _SPLIT.fullmatch(name)
        stem, count = self.split.groups() if self.split else ("", "0")
        parts = (f"{stem}-{number + 1:05}-of-{count}.gguf" for number in range(int(count)))
        self.parts = dict.fromkeys(parts)
        self.name = next(iter(self.parts), name)
        self.path = self.file(self.name)
        self.side = join(self.folder / SIDE, f"{self.name}.json", link=True)

    def file(self, name: str) -> Path:
        """Return the path of a model's file; raises Refusal for a name that leads elsewhere."""
        return join(self.folder, name, link=True)

    def waiting(self, name: str) -> Path:
        """Return an unfinished file's path; raises Refusal for a name that leads elsewhere."""
        self.file(name)  # no link leads its folder elsewhere
        return join(self.folder / SIDE / "incoming", name)

    def files(self) -> list[str]:
        """The names of its files in the folder, all parts of a split one; raises Refusal."""
        names = list(self.parts) or [self.name]
        if self.path.is_dir():
            names = sorted(
                str((Path(top) / name).relative_to(self.folder))
                for top, _, found in os.walk(self.path)
                for name in found
                if "/." not in str((Path(top) / name).relative_to(self.folder))
            )
        for name in names:
            if not self.file(name).is_file():
                kind = "no regular file" if self.file(name).exists() else "not there"
                raise Refusal(f"{name!r} in {str(self.folder)!r} is {kind}")
        if not any(name.endswith(SUFFIXES) for name in names):
            raise Refusal(f"{str(self.path)!r} is no model: none of {', '.join(SUFFIXES)} is there")
        return names

    def owns(self, name: str) -> bool:
        """Tell whether a file of a manifest is this model's."""
        mine = name in self.parts if self.split else name == self.name
        return "/." not in name and (mine or name.startswith(f"{self.name}/"))

    def read_side(self) -> Document:
        """Read the side file; empty where there is none."""
        try:
            side = json.loads(self.side.read_text("utf-8"))
            checked(self, side["manifest"])
            return side if isinstance(side["stats"], list) else {}
        except (OSError, ValueError, LookupError, TypeError, Refusal):
            return {}

    def write_side(self, manifest: Document, stats: list[list[int]], damaged: int = 0) -> None:
        """Keep a manifest and the stats of the files that it holds for, whole or not at all."""
        self.side.parent.mkdir(parents=True, exist_ok=True)
        part = self.side.with_name(f".{self.side.name}.{os.getpid()}")
        side = {"manifest": manifest, "stats": stats, "damaged": damaged}
        part.write_text(json.dumps(side), "utf-8")
        part.replace(self.side)

    def stats(self, names: list[str]) -> list[list[int]]:
        """Size and mtime in ns of each file; raises OSError."""
        found = [self.file(name).stat() for name in names]
        return [[one.st_size, one.st_mtime_ns] for one in found]

    def known(self) -> Document | None:
        """The manifest, where it is there and the files are as they were when it was made."""
        side = self.read_side()
        try:
            names = [file["name"] for file in side["manifest"]["files"]]
            fits = self.stats(names) == side["stats"] and self.files() == names
            return side["manifest"] if fits else None
        except (LookupError, OSError, Refusal):
            return None


def checked(place: Place, manifest: Document) -> Document:
    """A manifest from elsewhere that says all of a model's own files; raises Refusal."""
    try:
        files = manifest["files"]
        right = all(
            place.owns(file["name"])
            and isinstance(file["bytes"], int)
            and 0 <= count_of(file["bytes"]) == len(chunks_of(file))
            and place.file(file["name"])
            for file in files
        ) and manifest["bytes"] == sum(file["bytes"] for file in files)
    except (LookupError, TypeError, AttributeError, ValueError):
        right = False
    if not right or not files or not isinstance(manifest["sha256"], str):
        raise Refusal(
            f"the manifest of {place.name!r} is none, or names files that are not its own"
        )
    return manifest


def digest_of(manifest: Document) -> str:
    """Return a manifest's digest: the sha256 of its JSON."""
    return hashlib.sha256(encoded(manifest)).hexdigest()


def encoded(manifest: Document) -> bytes:
    """A manifest as it is hashed and sent."""
    return json.dumps(manifest, sort_keys=True).encode()


def chunks_of(file: Document) -> list[bytes]:
    """The sha256 of each chunk of a file of a manifest."""
    together = base64.b64decode(file["chunks"])
    return [together[at : at + HASH_BYTES] for at in range(0, len(together), HASH_BYTES)]


def count_of(size: int) -> int:
    """Count the chunks of so many bytes."""
    return -(-size // CHUNK)


def manifest_of(place: Place, observer: Callable[[int, int], None] | None = None) -> Document:
    """The manifest of what lies there, read now unless nothing has changed; raises Refusal.

    observer: called with how many bytes of how many have been read.

    sha256: the file's, and of a model of several files that of the lines that `sha256sum` prints
    for them, in the order of their names, inside the model's folder.
    """
    known = place.known()
    if known:
        return known
    names = place.files()
    before = place.stats(names)
    files: list[Document] = []
    read, total = 0, sum(stat[0] for stat in before)
    for name, (size, _) in zip(names, before):  # noqa: B905 - Python 3.9
        whole, chunks = hashlib.sha256(), []
        with place.file(name).open("rb", buffering=0) as file:
            while data := file.read(CHUNK):
                whole.update(data)
                chunks.append(hashlib.sha256(data).digest())
                read += len(data)
                if observer and len(chunks) % _REPORTED == 0:
                    observer(read, total)
        hashes = base64.b64encode(b"".join(chunks)).decode()
        files.append({"name": name, "bytes": size, "sha256": whole.hexdigest(), "chunks": hashes})
    if place.stats(names) != before:
        raise Refusal(f"{str(place.path)!r} changed while it was read")
    base = place.path if place.path.is_dir() else place.path.parent
    lines = [f"{f['sha256']}  {place.file(f['name']).relative_to(base)}\n" for f in files]
    sha256 = files[0]["sha256"]
    if len(files) > 1 or place.path.is_dir():
        sha256 = hashlib.sha256("".join(lines).encode()).hexdigest()
    manifest = {"name": place.name, "bytes": total, "sha256": sha256, "files": files}
    with contextlib.suppress(PermissionError):  # a folder of another user: it is read again then
        place.write_side(manifest, before)
    return manifest


def wrong_chunks(path: Path, file: Document) -> list[int]:
    """The chunks of a file that differ from its manifest, all of one that is not there."""
    hashes = chunks_of(file)
    if not path.is_file():
        return list(range(len(hashes)))
    with path.open("rb", buffering=0) as opened, ThreadPoolExecutor(_THREADS) as pool:

        def right(number: int) -> bool:
            length = min(CHUNK, file["bytes"] - number * CHUNK)
            data = os.pread(opened.fileno(), length, number * CHUNK)
            return hashlib.sha256(data).digest() == hashes[number]

        return [number for number, ok in enumerate(pool.map(right, range(len(hashes)))) if not ok]


def list_models(folder: str) -> Document:
    """List the models of a folder, complete or not, and the bytes that are free there."""
    home = Path(folder).expanduser()
    names = set()
    for top, folders, found in os.walk(home):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        inside = [str((Path(top) / name).relative_to(home)) for name in sorted(found)]
        if any(name.endswith(".safetensors") for name in inside) and Path(top) != home:
            names.add(str(Path(top).relative_to(home)))
            folders.clear()
        else:
            names |= {name for name in inside if name.endswith(SUFFIXES)}
    side = home / SIDE
    kept = {str(path.relative_to(side))[: -len(".json")] for path in side.rglob("*.json")}
    places = {}
    for name in sorted(names | kept):
        with contextlib.suppress(Refusal):
            place = Place(folder, name)
            if name in names or place.read_side():  # what waits there has files of its own
                places[place.name] = place
    there = next(one for one in [home, *home.parents] if one.is_dir())
    writable = os.access(there, os.W_OK)
    free = shutil.disk_usage(there).free
    models = [_entry(place) for place in places.values()]
    return {"folder": str(home), "free": free, "writable": writable, "models": models}


def _entry(place: Place) -> Document:
    """Describe a model: complete by its manifest, incomplete, damaged, or 'unread' so far."""
    side = place.read_side()
    manifest = side.get("manifest") or {"bytes": 0, "files": []}
    entry: Document = {"name": place.name, "bytes": manifest["bytes"]}
    waiting = [place.waiting(file["name"]) for file in manifest["files"]]
    there = [place.file(file["name"]) for file in manifest["files"]]
    lacking = side and not all(path.exists() for path in there)
    if lacking or any(path.exists() for path in waiting):
        state = "incomplete"
    elif place.known():
        state = "complete"
        entry |= {"sha256": manifest["sha256"], "digest": digest_of(manifest)}
    elif side.get("damaged"):
        state = "damaged"
    else:
        state = "unread"
        with contextlib.suppress(OSError, Refusal):
            there = [place.file(name) for name in place.files()]
            entry["bytes"] = sum(path.stat().st_size for path in there)
    used = [path.stat() for path in {*waiting, *there} if path.exists()]
    taken = sum(min(one.st_size, one.st_blocks * 512) for one in used)
    return {**entry, "state": state, "present": taken}


def index(folder: str, name: str, observer: Callable[[int, int], None] | None = None) -> Document:
    """Hash a model unless it is known; what stands for it. observer: as of `manifest_of`."""
    manifest = manifest_of(Place(folder, name), observer)
    values = {key: manifest[key] for key in ("name", "bytes", "sha256")}
    return {**values, "digest": digest_of(manifest)}


def verify(folder: str, name: str) -> Document:
    """Read all of a model and compare it with its manifest; one without is hashed now.

    What is damaged is marked, so that the next push mends it.
    """
    place = Place(folder, name)
    side = place.read_side()
    if not side:
        return {**index(folder, name), "damaged": {}, "first": True}
    manifest = side["manifest"]
    wrong = {}
    for file in manifest["files"]:
        path = place.file(file["name"])
        bad = wrong_chunks(path, file)
        if bad or not path.is_file() or path.stat().st_size != file["bytes"]:
            wrong[file["name"]] = bad
    if wrong:
        place.write_side(manifest, [], max(1, sum(map(len, wrong.values()))))
    else:
        place.write_side(manifest, place.stats([file["name"] for file in manifest["files"]]))
    values = {key: manifest[key] for key in ("name", "bytes", "sha256")}
    return {**values, "damaged": wrong, "first": False}


def remove(folder: str, name: str) -> Document:
    """Remove the files of a model, complete or not, and what is kept about it."""
    place = Place(folder, name)
    names = [file["name"] for file in place.read_side().get("manifest", {}).get("files", [])]
    gone = [place.waiting(one) for one in names]
    if place.path.exists() or not any(path.exists() for path in gone):
        gone += [place.file(one) for one in place.files()]
    size = 0
    for path in gone:
        with contextlib.suppress(FileNotFoundError):
            size += path.lstat().st_size
            path.unlink()
    with contextlib.suppress(FileNotFoundError):
        place.side.unlink()
    for path in gone:
        for parent in path.parents:
            if parent == place.folder or place.folder not in parent.parents:
                break
            with contextlib.suppress(OSError):  # it holds something else
                parent.rmdir()
    return {"name": place.name, "bytes": size}


def sentence(error: BaseException) -> str:
    """The words for a failure of any kind, the system's and of what where it is the system's."""
    if isinstance(error, OSError):
        words = str(error.strerror or error)
        return f"{words} ({error.filename})" if error.filename else words
    if isinstance(error, Refusal):
        return str(error)
    if "can't start new thread" in str(error):
        return f"{error}: raise 'ulimit -u' of the user, or the process limit (pids.max, TasksMax)"
    return f"{type(error).__name__}: {error}"


def _report(read: int, total: int) -> None:
    """Tell who waits for this program how far it is, and that the disk moves."""
    print(read, total, file=sys.stderr, flush=True)


def main(command: str, values: Document) -> int:
    """Run one command and print what it gives."""
    commands: dict[str, Callable[..., Document]] = {
        "list": list_models,
        "index": functools.partial(index, observer=_report),
        "verify": verify,
        "remove": remove,
    }
    try:
        found = commands[command](**values)
    except Exception as error:  # whatever it is, who asked has to hear of it
        found = {"error": sentence(error)}
    print(json.dumps(found))
    return 1 if "error" in found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
