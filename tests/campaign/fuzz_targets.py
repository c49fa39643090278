"""Fuzz targets: inputs as somebody hostile or careless would give them, and what reads them.

Each of TARGETS is data and two pure functions, for a campaign to drive:

    target.name                  of its row in a table
    target.generate(rng)         an input by a random.Random, the same for the same state: bytes of
                                 a file, or the arguments of a command
    target.run(input, folder)    gives it to its readers in an empty folder; raises Broken, or
                                 whatever the reader let through, where the promise does not hold

The promise: exit 0, 1, 2 or 3; where it is not 0, each line on stderr is printable, and there is at
least one. The caller holds run to 10 s and its process to 1 GiB, and calls `isolate` once before
the first: it closes the network and puts programs that fail in the place of all others.

    python tests/campaign/fuzz_targets.py --inputs 300 [--seed 1] [NAME ...]

measures the targets, each in a process of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from nixwulf.cli.main import main as nixwulf
from nixwulf.llm import dllama, sizes_on
from nixwulf.nodes.ssh import Connection
from nixwulf.results.record import digest

ROOT = Path(__file__).parents[2]
LIMIT_S = 10
MOST_BYTES = 1 << 30
_CODES = {0, 1, 2, 3}
_DOCUMENTED_LINES = ("Usage:", "Try ", "")


class Broken(Exception):
    """An input that did not end in a result or in a sentence."""


@dataclass(frozen=True)
class Target:
    """A kind of input: see the top of this file."""

    name: str
    generate: Callable[[random.Random], Any]
    run: Callable[[Any, Path], None]


# Values

_TEXTS = (
    *("", " ", "a" * 300, "a" * 70_000, "../" * 40, "/dev/zero", "\x1b[31m", "\n", "\0", "é\u202e"),
    *(
        "=1+1",
        "-rf",
        "--",
        "$(id)",
        "{{7*7}}",
        "<script>",
        "%s%n",
        "0.0.0.0",  # noqa: S104 - a value that is to be refused
        "224.0.0.1",
        "*",
        "|",
    ),
    *(
        "9" * 6000,
        "1e999",
        "nan",
        "0x" + "f" * 5000,
        "9999-99-99",
        "1:2:3:4",
        "null",
        "[",
        "{",
        "#",
    ),
)
_NUMBERS = (
    *(0, -1, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 1e-320, 1e308, -1e308),
    *(0.1, 1e15, 65536, True, False),
)


def value(rng: random.Random, depth: int = 0) -> Any:
    """A value that no file should have in a place."""
    kind = rng.randrange(6 if depth < 3 else 4)
    if kind <= 1:
        return rng.choice(_NUMBERS)
    if kind == 2:
        return rng.choice(_TEXTS)
    if kind == 3:
        return None
    many = rng.choice((0, 1, 2, 2, 50))
    if kind == 4:
        return [value(rng, depth + 1) for _ in range(many)]
    return {str(rng.choice(_TEXTS))[:99]: value(rng, depth + 1) for _ in range(many)}


def changed(rng: random.Random, document: Any) -> Any:
    """The document with some of its places removed, exchanged or given another value."""
    copy = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(copy))
        if not places:
            return value(rng)
        branch, key = rng.choice(places)
        what = rng.randrange(5)
        if what == 0:
            del branch[key]
        elif what == 1:
            other, place = rng.choice(places)
            branch[key] = json.loads(json.dumps(other[place]))
        elif what == 2 and isinstance(branch, dict):
            branch[str(rng.choice(_TEXTS))] = branch.pop(key)
        else:
            branch[key] = value(rng)
    return copy


def alike(rng: random.Random, document: Any) -> Any:
    """The document with texts and numbers in the place of texts and numbers: most stay valid."""
    copy = json.loads(json.dumps(document))
    places = [(b, k) for b, k in _places(copy) if isinstance(b[k], str | int | float)]
    for branch, key in rng.sample(places, min(len(places), rng.choice((1, 2, 4)))):
        old = branch[key]
        if isinstance(old, bool):
            branch[key] = not old
        elif isinstance(old, str):
            branch[key] = rng.choice(_TEXTS)
        else:
            numbers = [one for one in _NUMBERS if isinstance(one, type(old))]
            branch[key] = rng.choice(numbers)
    return copy


def _places(tree: Any) -> Any:
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from _places(tree[key])


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes with some lost, doubled, exchanged, or others between them."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 2, 4, 8, 40))
        what = rng.randrange(6)
        if what == 0:
            del data[at : at + length]
        elif what == 1:
            data[at:at] = data[at : at + length] * rng.choice((1, 2, 300))
        elif what == 2:
            data[at : at + length] = rng.randbytes(length)
        elif what == 3:
            number = rng.choice((0, 1, 8, 9, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
            form = rng.choice(("<I", "<Q", ">I", ">Q"))
            data[at : at + struct.calcsize(form)] = struct.pack(
                form, number % 2 ** (8 * struct.calcsize(form))
            )
        elif what == 4:
            data[at:at] = rng.choice(_TEXTS).encode("utf-8", "replace")
        else:
            data = data[:at]
    return bytes(data)


def toml(document: Any) -> str:
    """A table as TOML, all below its keys inline; None is left out."""
    if isinstance(document, dict):
        pairs = (f"{json.dumps(k)} = {toml(v)}" for k, v in document.items() if v is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(document, list):
        return f"[{', '.join(toml(one) for one in document if one is not None)}]"
    return json.dumps(document).replace("\\u007f", "?") if document is not None else '""'


# Running


def isolate() -> None:
    """Close the network to this process and its children's programs."""

    def refuse(*_: Any) -> None:
        raise OSError("the campaign's targets connect nowhere")

    socket.socket.connect = refuse  # type: ignore[assignment,method-assign]
    programs = Path(tempfile.mkdtemp(prefix="fuzz-programs-"))
    for name in ("ssh", "scp", "nix", "git", "ip", "ping", "podman", "docker", "sudo", "curl"):
        (programs / name).write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    for name in ("sh", "head", "ls", "cat", "wc", "find", "awk"):  # what a "node" of ours runs
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    os.environ["PATH"] = str(programs)


REACHED = {"commands": 0, "accepted": 0}
"""How many commands and readers ran, and how many took their input: a target that is always refused
at its first check measures nothing."""


def command(folder: Path, *arguments: str) -> str:
    """The stdout of a command of nixwulf in a folder; raises Broken, or what it let through."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict") for _ in range(2))
    err.reconfigure(errors="backslashreplace")
    before, argv = Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["nixwulf", *arguments]
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            nixwulf()
    except SystemExit as end:
        code = end.code or 0
    finally:
        os.chdir(before)
        sys.argv = argv
    _count(accepted=code in (0, 1))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    if code not in _CODES:
        raise Broken(f"exit {code!r}")
    if code and not texts[1].strip() and not texts[0].strip():
        raise Broken(f"exit {code} without a sentence")
    if bad := [line for line in texts[1].split("\n") if not line.isprintable()]:
        raise Broken(f"on stderr: {bad[0]!r}")
    return texts[0]


def _count(*, accepted: bool) -> None:
    REACHED["commands"] += 1
    REACHED["accepted"] += accepted


def _file(name: str, *commands: tuple[str, ...]) -> Callable[[bytes, Path], None]:
    """Gives a file to commands, in which FILE is its name."""

    def run(content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        for arguments in commands:
            command(folder, *(one.replace("FILE", name) for one in arguments))

    return run


class _Here(Connection):
    """This machine in the place of a node."""

    def argv(self, command: Any = ()) -> list[str]:
        return list(command)


def _on_a_node(path: Path) -> None:
    from nixwulf.inventory.cluster import load_cluster

    here = _Here(load_cluster(ROOT / "clusters/lab.toml").nodes[0], ())
    _count(accepted=sizes_on(here, str(path)) is not None)


# Model files

# Of a cluster whose platform has facts: the lab's has none, and each prediction would be refused.
_PREDICT = ("predict", "--cluster", str(ROOT / "clusters/framework-2.toml"))


@cache
def _gguf() -> bytes:
    from nixwulf.llm import random_gguf
    from nixwulf.llm.random_model import RandomModel

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        random_gguf.write(RandomModel(layers=2, hidden=64, heads=4, kv_heads=4), path)
        return path.read_bytes()[:40_000]


def _run_gguf(content: bytes, folder: Path) -> None:
    (folder / "m.gguf").write_bytes(content)
    _on_a_node(folder / "m.gguf")
    command(folder, *_PREDICT, "--model", "m.gguf")


def _make_dllama(rng: random.Random) -> bytes:
    keys = list(dllama.KEYS.values())
    whole = {dllama.KEYS["layers"]: 4, dllama.KEYS["hidden"]: 64, dllama.KEYS["heads"]: 4}
    whole |= {dllama.KEYS[key]: 64 for key in ("kv_heads", "feed_forward", "vocabulary")}
    numbers = (0, 1, -1, 3, 10**8, 2**31 - 1, -(2**31))
    for _ in range(rng.randrange(4)):
        whole[rng.choice(keys)] = rng.choice(numbers)
    body = b"".join(struct.pack("<ii", *pair) for pair in whole.items())
    made = struct.pack("<II", dllama.MAGIC, 8 + len(body)) + body
    return damaged(rng, made) if rng.random() < 0.4 else made


def _run_dllama(content: bytes, folder: Path) -> None:
    (folder / "m.m").write_bytes(content)
    _on_a_node(folder / "m.m")


_CONFIG = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 99,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"], "num_experts": 0,
    "quantization": {"bits": 4}, "tie_word_embeddings": True,
}  # fmt: skip
_TENSORS = {
    "model.embed_tokens.weight": {"dtype": "F16", "shape": [99, 64], "data_offsets": [0, 12672]},
    "model.layers.0.w.weight": {"dtype": "U32", "shape": [64, 8], "data_offsets": [12672, 14720]},
    "model.layers.1.w.weight": {"dtype": "F16", "shape": [8, 64], "data_offsets": [14720, 15744]},
}


def _make_safetensors(rng: random.Random) -> tuple[bytes, bytes]:
    parts = [json.dumps(_CONFIG), json.dumps(_TENSORS)]
    which = rng.randrange(2)
    parts[which] = json.dumps(changed(rng, json.loads(parts[which])))
    config, tensors = (part.encode() for part in parts)
    if rng.random() < 0.2:
        tensors = rng.choice((b"[" * 2000, b"[" + b"[]," * 9999 + b"[]]", damaged(rng, tensors)))
    if rng.random() < 0.2:
        config = rng.choice((b"[" * 2000, b"3", damaged(rng, config)))
    return config, struct.pack("<Q", len(tensors)) + tensors


def _run_safetensors(content: tuple[bytes, bytes], folder: Path) -> None:
    (folder / "config.json").write_bytes(content[0])
    (folder / "m.safetensors").write_bytes(content[1])
    _on_a_node(folder)
    command(folder, *_PREDICT, "--model", str(folder))


# Files written by hand


def _toml_of(path: str) -> Callable[[random.Random], bytes]:
    def make(rng: random.Random) -> bytes:
        import tomllib

        text = (ROOT / path).read_text("utf-8")
        if rng.random() < 0.3:
            return damaged(rng, text.encode())
        document = rng.choice((alike, changed))(rng, tomllib.loads(text))
        if not isinstance(document, dict):
            return toml(document).encode()
        lines = [f"{json.dumps(k)} = {toml(v)}\n" for k, v in document.items() if v is not None]
        return "".join(lines).encode("utf-8", "replace")

    return make


def _make_sweep(rng: random.Random) -> bytes:
    path = rng.choice(sorted((ROOT / "sweeps").rglob("*.yaml")))
    if rng.random() < 0.4:
        bomb = "a: &a [x]\nb: &b [*a, *a]\n<<: *b\n", "? [a]\n: 1\n", "1: 2\n", "- " * 900
        return damaged(rng, path.read_bytes()) + rng.choice(("", *bomb)).encode()
    return yaml.safe_dump(
        rng.choice((alike, changed))(rng, yaml.safe_load(path.read_bytes()))
    ).encode()


# Records


@cache
def _records() -> list[Any]:
    paths = sorted((ROOT / "results").rglob("records/*.json"))
    return [json.loads(path.read_bytes()) for path in paths[:: max(1, len(paths) // 40)]]


def _make_raw_record(rng: random.Random) -> bytes:
    return damaged(rng, json.dumps(rng.choice(_records())).encode())


def _make_valid_record(rng: random.Random) -> bytes:
    made = rng.choice((alike, alike, alike, changed))(rng, rng.choice(_records()))
    if isinstance(made, dict):
        made["digest"] = digest(made)
    return json.dumps(made).encode()


_READERS = [
    ("report", "run"), ("report", "run", "--format", "md"), ("report", "run", "--format", "csv"),
    ("report", "run", "--format", "json"), ("explain", "run"), ("compare", "run", "run"),
    ("site", "run", "--out", "site"), ("publish", "run", "--out", "public"),
]  # fmt: skip


def _run_record(content: bytes, folder: Path) -> None:
    path = folder / "run" / "records" / "0123456789ab-r0.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    command(folder, "validate", str(path))
    chosen = random.Random(content).sample(_READERS, 2)  # noqa: S311 - the same for the same input
    for arguments in chosen:
        command(folder, *arguments)


# Outputs of tools


@cache
def _outputs() -> list[bytes]:
    """The fixtures that a parser reads; of others nothing but the first check would be tried."""
    files = [path for path in (ROOT / "tests/fixtures").rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in sorted(files) if path.stat().st_size < 100_000]
    return [content for content in contents if _is_output(content.decode("utf-8", "replace"))]


def _is_output(text: str) -> bool:
    from nixwulf.outputs import ParseError, all_tools

    with suppress(ParseError):
        return any(tool.recognises(text) and tool.read(text) for tool in all_tools().values())
    return False


def _make_output(rng: random.Random) -> bytes:
    content = rng.choice(_outputs())
    try:
        return json.dumps(rng.choice((alike, changed))(rng, json.loads(content))).encode()
    except ValueError:
        return damaged(rng, content)


def _run_parsers(content: bytes, _: Path) -> None:
    from nixwulf.outputs import ParseError, all_tools

    text = content.decode("utf-8", "replace")
    for tool in all_tools().values():
        tool.recognises(text)
        try:
            tool.read(text)
            _count(accepted=True)
        except ParseError:
            _count(accepted=False)


# Arguments


def _words(rng: random.Random, words: tuple[str, ...], most: int) -> str:
    pool = (*words, *(one for one in _TEXTS if "\0" not in one))
    return "".join(str(rng.choice(pool)) for _ in range(rng.randrange(1, most)))


_QUERY = ("platform", "model", "nodes", "=", "<=", ">", "*", "?", "[a", " ", ",", "2", "gpt", "!")


_SIDES = ("nodes=1", "nodes=2", "engine=llama.cpp", "engine=vllm", "transport=tcp", "nodes>=1")


def _make_query(rng: random.Random) -> list[str]:
    made = [
        rng.choice((rng.choice(_SIDES), _words(rng, _QUERY, 7), rng.choice(_SIDES) + " depth=*"))
        for _ in range(2)
    ]
    made += ["--in", str(ROOT / "results")]
    over = (_words(rng, _QUERY, 2), "nodes", "engine", "model", "transport")
    made += ["--over", rng.choice(over)] if rng.random() < 0.5 else []
    made += ["--fail-below", _words(rng, ("0.9", "nan"), 3)] if rng.random() < 0.3 else []
    return ["compare", "--", *made] if rng.random() < 0.02 else ["compare", *made]


_COMMANDS = {
    "validate": (), "report": ("--format",), "explain": ("--format",), "site": ("--out",),
    "publish": ("--out",), "compare": ("--in", "--over"), "import": ("--platform", "--out"),
    "predict": ("--model", "--cluster", "--n-prompt", "--depth", "--quant", "--size-gib"),
    "models": (), "engines": (), "lab": (), "nodes": (), "no-such": (),
}  # fmt: skip


def _make_arguments(rng: random.Random) -> list[str]:
    name = rng.choice(tuple(_COMMANDS))
    made = [name]
    for _ in range(rng.randrange(4)):
        if _COMMANDS[name] and rng.random() < 0.6:
            made.append(rng.choice((*_COMMANDS[name], "--" + "a" * 300)))
        made.append(_words(rng, ("lab", "results", "json", "-1", "0"), 3))
    return made


def _make_what_if(rng: random.Random) -> list[str]:
    words = ("fabric", ".", "cable", "latency_us", "=", "platform", "1", "0", "-1", "speed_gbps")
    known = (
        "fabric.cable.latency_us",
        "fabric.cable.speed_gbps",
        "platform.framework-desktop.memory_gib",
    )
    ifs = [
        one
        for _ in range(rng.randrange(1, 3))
        for one in (
            "--what-if",
            rng.choice((_words(rng, words, 8), f"{rng.choice(known)}={rng.choice(_NUMBERS)}")),
        )
    ]
    return [*_PREDICT, "--model", "gpt-oss-20b", "--quant", "MXFP4", *ifs]


def _run_arguments(arguments: list[str], folder: Path) -> None:
    command(folder, *arguments)


_JSON = ("--format", "json")
_MODEL = ("--model", "gpt-oss-20b", "--quant", "MXFP4")
TARGETS = (
    Target("gguf", lambda rng: damaged(rng, _gguf()), _run_gguf),
    Target("dllama", _make_dllama, _run_dllama),
    Target("safetensors", _make_safetensors, _run_safetensors),
    Target(
        "cluster",
        _toml_of("clusters/framework-2.toml"),
        _file("c.toml", ("validate", "FILE"), ("predict", "--cluster", "FILE", *_MODEL, *_JSON)),
    ),
    Target(
        "sweep",
        _make_sweep,
        _file("s.yaml", ("validate", "FILE"), ("bench", "FILE", "--dry-run")),
    ),
    Target(
        "platform",
        _toml_of("driver/nixwulf/data/platforms/dgx-spark.toml"),
        _file("dgx-spark.toml", ("validate", "FILE")),
    ),
    Target(
        "models",
        _toml_of("tests/campaign/model.toml"),
        _file("m.toml", ("validate", "FILE"), (*_PREDICT, "--model", "FILE", *_JSON)),
    ),
    Target("record-raw", _make_raw_record, _run_record),
    Target("record-valid", _make_valid_record, _run_record),
    Target(
        "import",
        _make_output,
        _file("o.txt", ("import", "FILE", "--platform", "dgx-spark", *_JSON)),
    ),
    Target("parsers", _make_output, _run_parsers),
    Target("compare", _make_query, _run_arguments),
    Target("options", _make_arguments, _run_arguments),
    Target("what-if", _make_what_if, _run_arguments),
)


# Measuring


def _measure(target: Target, inputs: int, seed: int, answers: Any) -> None:
    isolate()
    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_BYTES, 4 * MOST_BYTES))

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, late)
    failures: list[tuple[int, str]] = []
    slowest = 0.0
    for number in range(inputs):
        made = target.generate(random.Random(f"{seed} {target.name} {number}"))  # noqa: S311
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            target.run(made, folder)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            failures.append((number, f"{type(error).__name__} at {where}: {str(error)[:150]}"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            shutil.rmtree(folder)
        slowest = max(slowest, time.monotonic() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answers.put((failures, slowest, memory, REACHED))


def main() -> int:
    """Measure targets; 1 where an input broke the promise."""
    parser = argparse.ArgumentParser(description="Measure the fuzz targets.")
    parser.add_argument("names", nargs="*", default=[target.name for target in TARGETS])
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    broken = 0
    for target in (one for one in TARGETS if one.name in chosen.names):
        answers: Any = multiprocessing.Queue()
        process = multiprocessing.Process(
            target=_measure, args=(target, chosen.inputs, chosen.seed, answers)
        )
        process.start()
        failures, slowest, memory, reached = answers.get()
        process.join()
        broken += len(failures) + (memory > MOST_BYTES)
        print(
            f"{target.name}: {chosen.inputs} inputs, {len(failures)} broken, slowest "
            f"{slowest:.1f} s, {memory / 2**20:.0f} MiB; {reached['accepted']} of "
            f"{reached['commands']} readings accepted",
            flush=True,
        )
        shown = {words: number for number, words in reversed(failures)}
        for words, number in list(shown.items())[:8]:
            print(f"  input {number}: {words!r}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
