"""The model of a run and the run's time, with this machine in the place of a node."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import Model, gguf
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines.llama_cpp import LlamaCpp
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Run
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.session import Models

SLOW_S = 0.4


class Here(Connection):
    """This machine in the place of a node."""

    def argv(self, command=()):
        return list(command)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run on one node, whose home is a folder of the test."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "home").mkdir()
    document = {
        "name": "placing",
        "models": {"tiny": {"random": {"layers": 1}}},
        "matrix": {"model": ["tiny"], "nodes": [1], "parallelism": ["single"]},
    }
    plan = make_plan(parse_sweep(document, "placing.yaml"), load_cluster("lab"))
    nodes = (Here(plan.cluster.nodes[0], ()),)
    limits = Limits(wall_s=60)
    raw = tmp_path / "raw"
    run = Run("x-r0", plan.cases[0], plan.cluster, nodes, "", limits, raw, time.monotonic() + 60)
    return run, plan.sweep.models["tiny"]


def content_of(path):
    return Path(path).read_bytes()


def bring(run, model, models=None):
    names = {node.node.name: node for node in run.nodes}
    return (models or Models()).bring(run, model, names)


def test_random_weights_are_made_copied_and_known_for_the_session(run, tmp_path):
    run, model = run
    models = Models()
    placed = bring(run, model, models)
    copied = tmp_path / "home/.cache/nixwulf/models" / gguf.ensure(model.random).name
    assert placed.path == str(copied)
    assert copied.read_bytes() == gguf.ensure(model.random).read_bytes()
    assert placed.bytes == copied.stat().st_size
    assert (
        placed.sizes == gguf.read(placed.path, lambda path, count: content_of(path)[:count]).sizes
    )
    copied.unlink()
    assert bring(run, model, models) is placed
    assert not copied.exists()


def test_a_part_of_a_file_is_not_taken_for_the_whole(run, tmp_path):
    run, model = run
    whole = gguf.ensure(model.random)
    copied = tmp_path / "home/.cache/nixwulf/models" / whole.name
    copied.parent.mkdir(parents=True)
    copied.write_bytes(whole.read_bytes()[:1000])
    bring(run, model)
    assert copied.read_bytes() == whole.read_bytes()


def test_the_time_of_a_copy_is_not_the_run_s_and_it_is_shown(run, monkeypatch):
    run, model = run
    put, before, shown = session.put, run.deadline, []

    def slow(node, file, remote, observer):
        assert node.deadline is None
        observer(1, 4)
        time.sleep(SLOW_S)
        observer(2, 4)
        put(node, file, remote)

    monkeypatch.setattr(session, "put", slow)
    monkeypatch.setattr(session, "_SHOWN_AFTER_S", SLOW_S / 2)
    begin = time.monotonic()
    models = Models(observer=lambda words, share: shown.append((words, share)))
    placed = bring(run, model, models)
    assert SLOW_S <= run.deadline - before <= time.monotonic() - begin
    assert {node.deadline for node in run.nodes} == {run.deadline}
    assert shown == [(f"Copying {placed.path.rpartition('/')[2]} to n1", 0.5)]


def test_the_time_of_making_weights_is_not_the_run_s(run, monkeypatch):
    run, model = run
    made = gguf.ensure

    def slow(random):
        time.sleep(SLOW_S)
        return made(random)

    monkeypatch.setattr(LlamaCpp, "random_model", staticmethod(slow))
    before = run.deadline
    bring(run, model)
    assert run.deadline - before >= SLOW_S


def test_a_copy_that_fails_is_tried_again_by_the_next_run(run, tmp_path):
    run, model = run
    folder = tmp_path / "home/.cache/nixwulf/models"
    folder.parent.mkdir(parents=True)
    folder.touch()
    models = Models()
    with pytest.raises(NixwulfError, match="to node 'n1': mkdir: "):
        bring(run, model, models)
    folder.unlink()
    assert bring(run, model, models).bytes


def test_the_sha256_of_a_model_at_a_path_is_read_and_its_time_is_not_the_run_s(run, tmp_path):
    run, _ = run
    path = tmp_path / "models" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    before = run.deadline
    placed = bring(run, Model("m", path=str(path)))
    side = json.loads((path.parent / ".nixwulf" / "m.gguf.json").read_text())
    assert placed.sha256 == side["manifest"]["sha256"]
    assert run.deadline > before


def test_a_model_that_a_node_lacks_is_named_for_the_gate(run, tmp_path):
    run, _ = run
    placed = bring(run, Model("m", path=str(tmp_path / "none.gguf")), Models(fetch=True))
    assert (placed.missing_on, placed.bytes, placed.sha256) == ("n1", None, None)


def test_a_node_without_an_answer_ends_the_placing_within_the_run_s_time(run):
    run, model = run

    class Mute(Here):
        def argv(self, command=()):
            return ["sleep", "1000"]

    run.deadline = time.monotonic() + SLOW_S
    run.nodes = tuple(replace(Mute(node.node, ()), deadline=run.deadline) for node in run.nodes)
    begin = time.monotonic()
    with pytest.raises(NixwulfError, match="Node 'n1' gave no answer to 'sh' in"):
        bring(run, model)
    assert time.monotonic() - begin < 10
