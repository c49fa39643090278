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
import json
import multiprocessing
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fuzz_runs
import yaml
from fuzz_running import REACHED, ROOT, command, count, file_for, isolate, on_a_node
from fuzz_values import NUMBERS, TEXTS, alike, changed, damaged, toml

from nixwulf.llm import dllama
from nixwulf.results.record import digest

LIMIT_S = 10
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Target:
    """A kind of input: see the top of this file."""

    name: str
    generate: Callable[[random.Random], Any]
    run: Callable[[Any, Path], None]


# Model files

# Of a cluster whose platform has facts: the lab's has none, and each prediction would be refused.
_PREDICT = ("predict", "--cluster", str(ROOT / "clusters/framework-2.toml"))


@cache
def _gguf() -> bytes:
    from nixwulf.llm import gguf
    from nixwulf.llm.random_model import RandomModel

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        gguf.write(RandomModel(layers=2, hidden=64, heads=4, kv_heads=4), path)
        return path.read_bytes()[:40_000]


def _run_gguf(content: bytes, folder: Path) -> None:
    (folder / "m.gguf").write_bytes(content)
    on_a_node(folder / "m.gguf")
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
    on_a_node(folder / "m.m")


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
    on_a_node(folder)
    command(folder, *_PREDICT, "--model", str(folder))


# Files written by hand


def _toml_of(path: str) -> Callable[[random.Random], bytes]:
    def make(rng: random.Random) -> bytes:
        import tomllib

        text = (ROOT / path).read_text("utf-8")
        if rng.random() < 0.1:
            return f"{text}\n{rng.choice(_TOML_ENDS)}\n".encode()
        if rng.random() < 0.3:
            return damaged(rng, text.encode())
        document = rng.choice((alike, changed))(rng, tomllib.loads(text))
        if not isinstance(document, dict):
            return toml(document).encode()
        lines = [f"{json.dumps(k)} = {toml(v)}\n" for k, v in document.items() if v is not None]
        return "".join(lines).encode("utf-8", "replace")

    return make


# After a file that is valid as it was, so that what reads it comes as far as these.
_YAML_BOMB = "b0: &b0 [x, x]\n" + "".join(
    f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
_YAML_ENDS = (
    *(_YAML_BOMB, "<<: {x: 1}\n", "1: 2\n", "on: 2\n", "? [a]\n: 1\n", f"x: {'[' * 5000}\n"),
    *(f"x: {'9' * 6000}\n", "x: 9999-99-99\n", f"x: {'1:' * 3000}1\n", "x: !!bool y\n"),
)
_TOML_ENDS = (
    *(f"x = {'[' * 5000}", f"x = {'{a=' * 2000}", f"[{'.'.join('a' * 5000)}]"),
    *(f"{'a.' * 20_000}a = 1", f"x = {'9' * 6000}", f"x = 0x{'f' * 6000}", "x = 9999-99-99"),
)


def _make_sweep(rng: random.Random) -> bytes:
    path = rng.choice(sorted((ROOT / "sweeps").rglob("*.yaml")))
    kind = rng.randrange(5)
    if kind == 0:
        return damaged(rng, path.read_bytes())
    if kind == 1:
        return path.read_bytes() + b"\n" + rng.choice(_YAML_ENDS).encode()
    change = rng.choice((alike, changed))
    return yaml.safe_dump(change(rng, yaml.safe_load(path.read_bytes()))).encode()


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
    from nixwulf.outputs.runs import read_runs

    text = content.decode("utf-8", "replace")
    for tool in all_tools().values():
        tool.recognises(text)
        try:
            read_runs(tool, text)
            count(accepted=True)
        except ParseError:
            count(accepted=False)


# Arguments


def _words(rng: random.Random, words: tuple[str, ...], most: int) -> str:
    # No argument can hold a NUL, and ../ would leave the folder and walk the whole machine.
    pool = (*words, *(one for one in TEXTS if "\0" not in one and ".." not in one))
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
        "fabric.cable.bandwidth_gbps",
        "platform.framework-desktop.memory_gib",
    )
    ifs = [
        one
        for _ in range(rng.randrange(1, 3))
        for one in (
            "--what-if",
            rng.choice((_words(rng, words, 8), f"{rng.choice(known)}={rng.choice(NUMBERS)}")),
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
        file_for("c.toml", ("validate", "FILE"), ("predict", "--cluster", "FILE", *_MODEL, *_JSON)),
    ),
    Target(
        "sweep",
        _make_sweep,
        file_for("s.yaml", ("validate", "FILE"), ("bench", "FILE", "--dry-run")),
    ),
    Target(
        "platform",
        _toml_of("driver/nixwulf/data/platforms/dgx-spark.toml"),
        file_for("dgx-spark.toml", ("validate", "FILE")),
    ),
    Target(
        "models",
        _toml_of("tests/campaign/model.toml"),
        file_for("m.toml", ("validate", "FILE"), (*_PREDICT, "--model", "FILE", *_JSON)),
    ),
    Target("record-raw", _make_raw_record, _run_record),
    Target("record-valid", _make_valid_record, _run_record),
    Target("run-sealed", fuzz_runs.make, fuzz_runs.run),
    Target(
        "import",
        _make_output,
        file_for("o.txt", ("import", "FILE", "--platform", "dgx-spark", *_JSON)),
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

    # Of CPU, which a busy machine does not change; what waits for ever has a limit of the clock.
    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGALRM, late)
    # What is imported once counts for no input.
    with suppress(BaseException):
        first = Path(tempfile.mkdtemp(prefix="fuzz-"))
        target.run(target.generate(random.Random(0)), first)  # noqa: S311
        shutil.rmtree(first)
    failures: list[tuple[int, str]] = []
    slowest = 0.0
    for number in range(inputs):
        made = target.generate(random.Random(f"{seed} {target.name} {number}"))  # noqa: S311
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        signal.setitimer(signal.ITIMER_REAL, 6 * LIMIT_S)
        try:
            target.run(made, folder)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            failures.append((number, f"{type(error).__name__} at {where}: {str(error)[:150]}"))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            shutil.rmtree(folder)
        slowest = max(slowest, time.monotonic() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answers.put((len(failures), failures[:50], slowest, memory, REACHED))


def main() -> int:
    """Measure targets; 1 where an input broke the promise."""
    parser = argparse.ArgumentParser(description="Measure the fuzz targets.")
    parser.add_argument("names", nargs="*", default=[target.name for target in TARGETS])
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    broken = 0
    for target in (one for one in TARGETS if one.name in chosen.names):
        answers: Any = multiprocessing.SimpleQueue()
        process = multiprocessing.Process(
            target=_measure, args=(target, chosen.inputs, chosen.seed, answers)
        )
        process.start()
        process.join()
        if answers.empty():
            print(f"{target.name}: its process ended with {process.exitcode}", flush=True)
            broken += 1
            continue
        count_broken, failures, slowest, memory, reached = answers.get()
        broken += count_broken + (memory > MOST_BYTES)
        print(
            f"{target.name}: {chosen.inputs} inputs, {count_broken} broken, slowest "
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
