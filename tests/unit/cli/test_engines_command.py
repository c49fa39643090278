"""The command that shows the engines of this machine."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from nixwulf.cli.models import engines
from nixwulf.plugins.engines.llama_cpp.install import build_folder
from stand_in import put


def _put_built_programs():
    folder = build_folder() / "bin"
    for name in ("llama-bench", "llama-server", "ggml-rpc-server"):
        # no output: a script in the place of a program
        put(folder, name, "echo 'version: 1.2.3'\necho '  --rpc <servers>'")
    return folder


def _llama_cpp():
    document = json.loads(CliRunner().invoke(engines, ["--format", "json"]).output)
    assert (document["schema_version"], document["kind"]) == ("1.0", "engines")
    rows = document["engines"]
    return next(row for row in rows if row["engine"] == "llama.cpp")


def test_an_engine_that_is_not_found_says_what_it_would_be_built_from(empty):
    result = CliRunner().invoke(engines)
    assert result.exit_code == 0
    built = "llama.cpp: not found; the first run on the lab builds it from PyPI's llama-cpp"
    assert built in result.output


def test_an_engine_that_is_found_is_shown_with_its_places_and_version(empty):
    folder = _put_built_programs()
    result = CliRunner().invoke(engines)
    # no output: what the driver itself prints
    assert "llama.cpp: built before, version 1.2.3\n" in result.output
    # no output: what the driver itself prints
    assert f"  llama-bench: {folder / 'llama-bench'}\n" in result.output


def test_an_engine_that_the_driver_cannot_build_promises_nothing(empty):
    # no output: what the driver itself prints
    assert "sglang: not found\n" in CliRunner().invoke(engines).output


def test_the_json_has_every_program_of_every_engine_found_or_not(empty):
    absent = _llama_cpp()
    assert absent["origin"] is None
    assert absent["programs"] == {
        "llama-bench": None,
        "llama-server": None,
        "rpc-server": None,
    }
    folder = _put_built_programs()
    present = _llama_cpp()
    assert present["origin"] == "cache"
    assert present["version"] == "1.2.3"
    assert present["programs"]["rpc-server"] == str(folder / "ggml-rpc-server")


def test_an_engine_alone_is_made_on_this_machine(empty):
    folder = _put_built_programs()
    done = CliRunner().invoke(engines, ["install", "llama.cpp"])
    assert done.exit_code == 0
    assert done.output.startswith("llama.cpp: 1.2.3, ")
    assert str(folder / "llama-bench") in done.output


def test_an_engine_that_nothing_makes_says_what_to_do(empty):
    done = CliRunner().invoke(engines, ["install", "sglang"])
    assert done.exit_code != 0
    assert "has no wheel for CPUs" in done.output


@pytest.mark.parametrize("given", [[], ["vllm", "--cluster", "dgx-spark-2"]])
def test_neither_a_cluster_nor_an_engine_and_both_are_refused_with_the_command(empty, given):
    done = CliRunner().invoke(engines, ["install", *given])
    assert done.exit_code == 2
    assert "nixwulf engines install vllm" in done.output
