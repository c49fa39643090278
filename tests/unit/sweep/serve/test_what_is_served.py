"""Which case of a file is served, what of it is refused, and the trial that comes first."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from nixwulf.cli.serve import serve
from nixwulf.core.errors import EXIT_USAGE, InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.ssh import Unreachable
from nixwulf.plugins.engines.serving import Serving, Started
from nixwulf.sweep.serve import control, trial
from nixwulf.sweep.serve.trial import Wish

# no output: a sweep
CASE = """
name: one
models: {tiny: {random: {}}}
matrix:
  engine: [llama.cpp]
  benchmark: [llama-bench]
  model: [tiny]
  nodes: [NODES]
  fabric: [rdma-like]
  parallelism: [PARALLELISM]
  parameters: {threads: [1], n_prompt: [512], n_gen: [64], depth: [0]MORE}
"""


def file_of(folder, nodes="2", parallelism="pipeline", more=""):
    path = folder / "best.yaml"
    text = CASE.replace("NODES", nodes).replace("PARALLELISM", parallelism).replace("MORE", more)
    path.write_text(text)
    return str(path)


def plan_of(target, **wish):
    return trial.plan_of(Wish(target, **wish), trial.sweep_of(target), load_cluster("lab"))


def test_the_trial_has_the_longest_request_of_the_case_in_every_slot(tmp_path):
    (case,) = plan_of(file_of(tmp_path), slots=4, context=1024).cases
    assert (case.benchmark, case.nodes, case.samples, case.warm_up) == ("serve", 2, 1, False)
    asked = {key: case.parameters[key] for key in ("concurrency", "requests", "n_prompt", "n_gen")}
    assert asked == {"concurrency": 4, "requests": 4, "n_prompt": 992, "n_gen": 32}
    assert case.parameters["threads"] == 1
    (usual,) = plan_of(file_of(tmp_path)).cases
    assert usual.parameters["n_prompt"] + usual.parameters["n_gen"] == 512 + 64


def test_of_several_cases_one_is_chosen_by_a_query(tmp_path):
    target = file_of(tmp_path, "2, 3")
    with pytest.raises(InputError, match="has 2 cases on 'lab'; choose one by --only"):
        plan_of(target)
    assert [one.nodes for one in plan_of(target, only="nodes=3").cases] == [3]


def test_what_only_measures_machines_is_refused(tmp_path):
    path = tmp_path / "pings.yaml"
    # no output: a sweep
    path.write_text("name: pings\nmatrix: {benchmark: [latency], nodes: [2], fabric: [gbe5]}\n")
    with pytest.raises(InputError, match="its benchmark 'latency' starts no engine; give"):
        plan_of(str(path))


def test_a_case_that_takes_a_secret_of_this_environment_is_refused(tmp_path):
    target = file_of(tmp_path, more=", environment: [{HF_TOKEN: null}]")
    with pytest.raises(InputError, match="its variable HF_TOKEN is of this environment; set it on"):
        plan_of(target)


def test_a_file_that_is_neither_sweep_nor_recipe_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("Nothing here.")
    with pytest.raises(InputError, match="is no sweep, recipe or folder of a run"):
        plan_of(str(path))


def test_the_server_that_answers_starts_last_on_the_address_that_was_asked_for():
    worker = Started("n2", ("/bin/rpc", "-H", "10.0.0.2"), {})
    head = Started("n1", ("/bin/server", "--host", "127.0.0.1", "--port", "8080"), {"A": "b"})
    own = Started("n1", ("/bin/rpc", "-H", "10.0.0.1"), {})
    serving = Serving("n1", (worker, own, head), 8080, ())
    found = trial._commands(serving, "10.0.0.1", 9000)
    assert [one.unit for one in found] == ["n2-rpc", "n1-rpc", "n1-server"]
    assert found[-1].argv == ("/bin/server", "--host", "10.0.0.1", "--port", "9000")
    assert found[-1].environment == {"A": "b"}


def test_of_nodes_that_are_all_silent_nobody_knows_what_they_serve(monkeypatch):
    def services(node, file):
        if node.node.name != "n1":
            return []
        raise Unreachable("Node 'n1' did not answer.")

    monkeypatch.setattr(control.units, "services", services)
    n1, n2 = (SimpleNamespace(node=SimpleNamespace(name=name)) for name in ("n1", "n2"))
    with pytest.raises(Unreachable, match="did not answer"):
        control.find_all({"n1": n1})
    assert control.find_all({"n1": n1, "n2": n2}) == []


def test_a_file_that_is_not_there_is_named_before_a_cluster_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    asked = CliRunner().invoke(serve, ["start", "nosuch.yaml"])
    assert asked.exit_code == EXIT_USAGE
    assert "No nosuch.yaml" in asked.output
