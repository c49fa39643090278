"""A hub of models that misbehaves: hostile_hub.py PORT NAME OUTSIDE, a name of MISBEHAVIOURS.

OUTSIDE is a folder that no model of the repository 'org/name' may be written to. 'honest' is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from hostile_http import ANSWERS, Answer, body, chosen, dripping, endless, head, serve

COMMIT = "5b0e6a8c9d1f2a3b4c5d6e7f8091a2b3c4d5e6f7"
# What the hub sends of every file: safetensors without a tensor, so that none is refused for that.
CONTENT = (25).to_bytes(8, "little") + b'{"__metadata__":{}}'.ljust(25)
_UP = "../" * 30
_HONEST = "honest"
# The name of one more file of the repository, by what is at OUTSIDE.
_NAMES: Mapping[str, Callable[[str], Any]] = {
    "climbs": lambda outside: f"{_UP}{outside[1:]}/climbed.json",
    "climbs out of a folder": lambda outside: f"x/../{_UP}{outside[1:]}/climbed.json",
    "climbs over what is there": lambda outside: f"{_UP}{outside[1:]}/mine",
    "has an absolute name": lambda outside: f"{outside}/absolute.json",
    "has an absolute name with two slashes": lambda outside: f"/{outside}/absolute.json",
    "has the absolute name of what is there": lambda outside: f"{outside}/mine",
    "has a NUL in a name": lambda outside: f"a\0{outside}.json",
    "has the name ..": lambda _: "..",
    "has the name .": lambda _: ".",
    "has an empty name": lambda _: "",
    "has a name that ends in ..": lambda _: "sub/..",
    "has a name with backslashes": lambda _: "..\\..\\..\\climbed.json",
    "has a drive in a name": lambda _: "C:\\climbed.json",
    "has a name of 5,000 letters": lambda _: "a" * 5000 + ".json",
    "has ESC and lines in a name": lambda _: "a\x1b[2J\r\nmodel: complete.json",
    "has a name that turns around": lambda _: "a\u202enosj.json",
    "has a lone surrogate in a name": lambda _: "a\ud800.json",
    "has a name below a file": lambda _: "README.md/below.json",
    "has the folder of the driver": lambda _: ".nixwulf/name.json",
    "has a number for a name": lambda _: 7,
    "has null for a name": lambda _: None,
    "has a list for a name": lambda _: ["a.json"],
}
# Other fields of that file.
_FIELDS: Mapping[str, dict[str, Any]] = {
    "says a size of 2^63": {"size": 2**63},
    "says a size of -1": {"size": -1},
    "says a text for a size": {"size": "33"},
    "says a sha256 that is none": {"lfs": {"sha256": "../x", "size": 33, "pointerSize": 130}},
    "says another sha256": {"lfs": {"sha256": "0" * 64, "size": 33, "pointerSize": 130}},
}
# What a GET of a file's content is answered with.
_FILES: Mapping[str, Answer] = {
    "sends a file without end": endless(head()),
    "sends more of a file than it said": body(CONTENT * 1000),
    "sends less of a file than it said": body(CONTENT[:-9]),
    "sends half a file": body(CONTENT[:-9], Content_Length=len(CONTENT)),
    "drips a file's header": ANSWERS["drips its header"],
    "drips a file": dripping(head(Content_Length=1 << 40), b"a"),
    "packs a file": ANSWERS["unpacks to 2 GiB"],
    "points a file at itself": ANSWERS["points at itself"],
}
_MANY = "has 100,000 files"
MISBEHAVIOURS = (*ANSWERS, *_NAMES, *_FIELDS, *_FILES, _MANY)


def _sibling(name: Any, **fields: Any) -> dict[str, Any]:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    lfs = {"sha256": sha256, "size": len(CONTENT), "pointerSize": 130}
    size = len(CONTENT)
    return {"rfilename": name, "size": size, "blobId": "0" * 40, "lfs": lfs, **fields}


def _siblings(name: str, outside: str) -> list[dict[str, Any]]:
    files = [_sibling("README.md"), _sibling("model.safetensors")]
    if name in _NAMES:
        files.append(_sibling(_NAMES[name](outside)))
    if name in _FIELDS:
        files.append(_sibling("more.json", **_FIELDS[name]))
    if name == _MANY:
        files += [_sibling(f"f{number}.json") for number in range(100_000)]
    return files


def main() -> None:
    """Answer for ever."""
    port, name, (outside,) = chosen(dict.fromkeys((*MISBEHAVIOURS, _HONEST)))
    siblings = _siblings(name, outside)
    info = {"_id": "1", "id": "org/name", "modelId": "org/name", "sha": COMMIT}
    document = json.dumps({**info, "siblings": siblings}).encode()

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        if name in ANSWERS:
            return ANSWERS[name]
        if request.path.startswith("/api/models/"):
            return body(document)
        if request.command == "HEAD":
            tag = f'"{hashlib.sha256(CONTENT).hexdigest()}"'
            size = {"ETag": tag, "X_Repo_Commit": COMMIT, "Content_Length": len(CONTENT)}
            return body(b"", **size)
        return _FILES.get(name, body(CONTENT))

    serve(port, answer)


if __name__ == "__main__":
    main()
