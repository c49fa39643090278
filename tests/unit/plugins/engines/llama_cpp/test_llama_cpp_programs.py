"""Where llama.cpp's programs are looked for."""

from __future__ import annotations

import pytest

from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.plugins.engines.llama_cpp.install import (
    RPC_SERVER_NAMES,
    build_folder,
    cpu_description,
)
from stand_in import put

HELP_WITH_RPC = 'echo "  -rpc, --rpc <rpc_servers>  register RPC devices"'
VERSION = 'echo "version: 1.2.3 (build 7, commit abc)" >&2'


def test_nothing_is_found_where_there_is_nothing(empty):
    assert ENGINE.find_local() is None


@pytest.mark.parametrize("name", RPC_SERVER_NAMES)
def test_programs_on_path_are_found_under_each_name_of_the_rpc_server(empty, name):
    bench = put(empty / "bin", "llama-bench", HELP_WITH_RPC)
    server = put(empty / "bin", "llama-server", VERSION)
    rpc = put(empty / "bin", name)
    found = ENGINE.find_local()
    assert found is not None
    assert found.origin == "path"
    assert found.programs == {
        "llama-bench": bench,
        "llama-server": server,
        "rpc-server": rpc,
    }
    assert found.version == "1.2.3 (build 7, commit abc)"


@pytest.mark.parametrize("absent", ["llama-bench", "llama-server", "rpc-server"])
def test_an_incomplete_installation_is_not_one(empty, absent):
    for name in {"llama-bench", "llama-server", "rpc-server"} - {absent}:
        put(empty / "bin", name, HELP_WITH_RPC)
    assert ENGINE.find_local() is None


def test_a_llama_bench_without_the_rpc_backend_is_passed_over(empty):
    for name in ("llama-bench", "llama-server", "rpc-server"):
        put(empty / "bin", name, "echo usage")
    assert ENGINE.find_local() is None


def test_programs_on_path_win_over_those_built_before(empty):
    for folder in (empty / "bin", build_folder() / "bin"):
        put(folder, "llama-bench", HELP_WITH_RPC)
        put(folder, "llama-server", VERSION)
        put(folder, "ggml-rpc-server")
    found = ENGINE.find_local()
    assert found is not None
    assert found.origin == "path"


def test_what_was_built_before_is_found_without_a_build(empty):
    put(build_folder() / "bin", "llama-bench", HELP_WITH_RPC)
    put(build_folder() / "bin", "llama-server", VERSION)
    put(build_folder() / "bin", "ggml-rpc-server")
    steps: list[str] = []
    assert ENGINE.install_local(lambda step, share: steps.append(step)).origin == "cache"
    assert steps == []


def test_a_clock_rate_does_not_change_the_cpu_and_an_instruction_set_does(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    described = []
    for rate, flags in (
        ("800", "sse avx"),
        ("3100", "sse avx"),
        ("800", "sse avx avx2"),
    ):
        # hand-made: a CPU of two lines; a whole one is in linux/facts.txt (form: proc_cpuinfo(5))
        cpuinfo.write_text(f"model name\t: A CPU\ncpu MHz\t\t: {rate}\nflags\t\t: {flags}\n" * 2)
        described.append(cpu_description(cpuinfo))
    assert described[0] == described[1]
    assert described[0] != described[2]
