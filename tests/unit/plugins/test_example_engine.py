"""The engine that docs/engines.md shows is a whole file: it is found, planned and started."""

import sys
from contextlib import nullcontext
from importlib import invalidate_caches
from pathlib import Path

import pytest
from click.testing import CliRunner

from launch_plan import Answering, planned
from nixwulf.cli.main import cli
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.openai import Endpoint

MODEL = {"path": "/models/llama.gguf"}
MATRIX = {
    "engine": ["one-server"],
    "benchmark": ["serve"],
    "nodes": [1],
    "parallelism": ["single"],
    "parameters": {"server_threads": [4], "concurrency": [2]},
}
# no output: a sweep
SWEEP = """
name: mine
models: {m: {path: /models/llama.gguf}}
matrix:
  engine: [one-server]
  benchmark: [serve]
  model: [m]
  nodes: [1, 2]
  parallelism: [single, tensor]
"""


@pytest.fixture(autouse=True)
def example(monkeypatch):
    """The example's folder, read as a part of the package."""
    caches = (engines.all_engines, engines.performance)
    folder = Path("examples/engine").resolve()
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(folder)])
    invalidate_caches()
    for known in caches:
        known.cache_clear()
    yield
    for known in caches:
        known.cache_clear()
    sys.modules.pop("nixwulf.plugins.engines.one_server", None)


def test_a_plan_has_its_cases_and_says_why_others_are_left_out(tmp_path):
    (tmp_path / "mine.yaml").write_text(SWEEP)
    asked = ["bench", str(tmp_path / "mine.yaml"), "--cluster", "pi-cm5-4", "--dry-run"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output
    assert "1 case" in done.output
    assert "one-server runs on one node" in done.output


def test_its_server_answers_for_a_block_with_room_for_what_the_case_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(Answering, "forwarded", lambda *_: nullcontext(tmp_path / "socket"))
    monkeypatch.setattr(Endpoint, "wait_until_healthy", lambda _: None)
    programs = {"llama-server": "/bin/llama-server"}
    run = planned(tmp_path, "pi-cm5-4", MODEL, MATRIX, **programs)
    run.raw.mkdir()
    engine = engines.find("one-server")
    engine.start(run)
    with engine.endpoint(run) as endpoint:
        assert endpoint.model == "/models/llama.gguf"
    (started,) = run.started
    line = " ".join(started.argv)
    assert line.startswith("/bin/llama-server -m /models/llama.gguf -ngl 0 --host 127.0.0.1")
    assert "--port 50980 -t 4 -np 2 " in line
    assert run.engine_facts["origin"] == "/bin/llama-server"
