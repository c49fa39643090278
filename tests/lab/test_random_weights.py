"""Random weights make a known answer: the same for every split, another one after damage.

Runs llama.cpp's own programs on loopback ports; skips where they are neither on PATH nor built.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from nixwulf.llm import gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.plugins.engines.llama_cpp import ENGINE

DENSE = RandomModel()
MOE = RandomModel(architecture="qwen3moe", feed_forward=768, experts=4, experts_used=2, seed=1)
REQUEST = {
    "prompt": "The quick brown fox jumps over the lazy dog.",
    "n_predict": 32,
    "temperature": 0,
    "ignore_eos": True,
    "cache_prompt": False,
    "return_tokens": True,
}
START_SECONDS = 60


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    installation = ENGINE.find_local()
    if installation is None:
        pytest.skip("llama.cpp is neither on PATH nor built before")
    return installation.programs


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _started(argv: list[str], port: int) -> Iterator[None]:
    """A program that listens on a port; it has ended when the block is left."""
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, stdout=quiet, stderr=quiet, env=environment) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                assert process.poll() is None, f"{argv[0]} ended with {process.returncode}"
                assert time.monotonic() < deadline, f"{argv[0]} does not listen on port {port}"
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield
        finally:
            process.kill()


def _greedy_tokens(programs, model: Path, servers: int, split: str = "layer") -> list[int]:
    with ExitStack() as stack:
        ports = [_free_port() for _ in range(servers)]
        for port in ports:
            argv = [
                str(programs["rpc-server"]),
                "-H",
                "127.0.0.1",
                "-p",
                str(port),
                "-t",
                "1",
            ]
            stack.enter_context(_started(argv, port))
        port = _free_port()
        argv = [str(programs["llama-server"]), "-m", str(model), "--host", "127.0.0.1"]
        argv += ["--port", str(port), "-t", "1", "-np", "1", "-c", "256", "--no-repack"]
        if servers:
            argv += ["-ngl", "99", "-sm", split]
            argv += ["--rpc", ",".join(f"127.0.0.1:{port}" for port in ports)]
        stack.enter_context(_started(argv, port))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=START_SECONDS) as client:
            deadline = time.monotonic() + START_SECONDS
            while client.get("/health").status_code != httpx.codes.OK:
                assert time.monotonic() < deadline, "the model is not loaded"
                time.sleep(0.05)
            answer = client.post("/completion", json=REQUEST)
        tokens: list[int] = answer.raise_for_status().json()["tokens"]
        return tokens


@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "mixture-of-experts"])
def test_greedy_tokens_are_the_same_however_the_model_is_split(programs, tmp_path, model):
    path = tmp_path / model.file_name
    gguf.write(model, path)
    expected = _greedy_tokens(programs, path, 0)
    assert len(expected) == REQUEST["n_predict"]
    assert len(set(expected)) > len(expected) // 2
    for servers, split in ((1, "layer"), (3, "layer"), (2, "tensor"), (3, "tensor")):
        assert _greedy_tokens(programs, path, servers, split) == expected, (
            servers,
            split,
        )


@pytest.mark.parametrize("damaged", ["blk.0.attn_k.weight", "blk.4.ffn_down.weight"])
def test_one_damaged_tensor_changes_the_greedy_tokens(programs, tmp_path, monkeypatch, damaged):
    whole = tmp_path / "whole.gguf"
    gguf.write(DENSE, whole)
    stored = gguf._stored

    def half_lost(tensor, model):
        weights = stored(tensor, model).copy()
        if tensor.name == damaged:
            weights[..., : weights.shape[-1] // 2] = np.zeros((), weights.dtype)
        return weights

    monkeypatch.setattr(gguf, "_stored", half_lost)
    gguf.write(DENSE, tmp_path / "damaged.gguf")
    expected = _greedy_tokens(programs, whole, 0)
    assert _greedy_tokens(programs, tmp_path / "damaged.gguf", 0) != expected
