"""Tables in data that plug-ins read: no row is of nothing, and no value is one that is refused."""

import pytest

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import speed_of
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.benchmarks.serve import _HOLDS
from nixwulf.plugins.runtime import passthrough
from nixwulf.sweep.plan import OF_EVERY_ENGINE

PLUGINS = {**engines.all_engines(), **benchmarks.all_benchmarks()}


@pytest.mark.parametrize("table", ["parameters", "reserved_arguments", "reserved_variables"])
def test_each_table_is_of_an_engine_or_a_benchmark(table):
    assert read_toml(DATA / f"{table}.toml").keys() <= {*PLUGINS, "every engine"}


@pytest.mark.parametrize("name", [*PLUGINS, "every engine"])
def test_each_default_is_a_value_that_a_sweep_may_give(name):
    known = OF_EVERY_ENGINE if name == "every engine" else PLUGINS[name].parameters
    assert {key: one.problem(one.default) for key, one in known.items()} == dict.fromkeys(known)
    assert all(one.help for one in known.values())


def test_each_parameter_of_the_table_is_one_of_its_plug_in():
    for name, rows in read_toml(DATA / "parameters.toml").items():
        known = OF_EVERY_ENGINE if name == "every engine" else PLUGINS[name].parameters
        assert rows.keys() <= known.keys(), name


def test_a_variable_is_reserved_by_its_family_and_nccls_by_their_file():
    vllm = passthrough.reserved_variables("vllm")
    assert vllm["VLLM_*_IP"] == vllm["VLLM_*_HOST"]
    assert {name for part in read_toml(DATA / "nccl.toml").values() for name in part} <= vllm.keys()


def test_each_doubt_about_an_answer_has_words():
    tables = read_toml(DATA / "answer_doubts.toml")
    assert {key for words in tables.values() for key in words} == _HOLDS.keys()


def test_a_run_counts_once_however_many_samples_it_has():
    runs = [[10.0], [20.0, 20.0, 20.0]]
    assert speed_of(sum(samples) / len(samples) for samples in runs) == 15.0
