"""An output in which a tool says that it failed is a record with its reason; other text is none."""

import json
import re

import pytest

from nixwulf.core.errors import InputError
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import FIXTURES, fixture

TWO = UserMetadata(("lab",), nodes=2)
# no output: fixtures of runs that failed, each with its benchmark and the words of its reason
FAILED = {
    "iperf3/refused.txt": ("iperf3", "Connection refused"),
    "iperf3/refused.json": ("iperf3", "Connection refused"),
    "iperf3/no-route.txt": ("iperf3", "Network is unreachable"),
    "perftest/no-device.txt": ("perftest", "Unable to find the Infiniband/RoCE device"),
    "mlx/mlx.fail.kill1.r0.txt": ("mlx_lm.benchmark", "connection to a peer was lost"),
    "dllama/no-worker.txt": ("dllama", "Cannot connect"),
    "dllama/killed-worker.txt": ("dllama", "Execution failed in one of the threads"),
    "hpl/residual-failed.txt": ("hpl", "FAILED in line 50"),
    "nccl-tests/no-gpu.txt": ("collectives", "CUDA driver version is insufficient"),
    "sockperf/refused.txt": ("latency", "Connection refused"),
    "ping/no-answer.txt": ("latency", "3 packets are lost"),
    "llama-cpp-tools/batched-bench-no-model.txt": ("llama-batched-bench", "No such file"),
    "llama-bench/too-little-memory.stderr": ("llama-bench", "failed to allocate"),
    "llama-benchy/too-long.txt": ("llama-benchy", "exceeds the available context size"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_run_that_failed_is_a_record_with_the_tools_own_reason(name):
    reading = reading_of(FIXTURES / name, TWO)
    (record,) = reading.records
    benchmark, words = FAILED[name]
    assert (record["outcome"], record["metrics"]) == ("failed", [])
    assert record["case"]["benchmark"] == benchmark
    assert words in record["failure"]["reason"]
    assert "1 run (1 failed)" in next(reading.sentences())


def test_the_user_says_of_which_model_a_failed_run_was(records):
    said = UserMetadata(("lab",), nodes=2, models=("tiny",), weights="F16")
    (record,) = records("llama-bench/too-little-memory.stderr", said)
    assert (record["case"]["model"], record["model"]["weights"]) == ("tiny", "F16")


def test_no_address_and_no_folder_gets_into_a_reason(records):
    text = fixture("llama-bench/too-little-memory.stderr")
    assert "10.77." in text
    assert "10.77." not in json.dumps(records("llama-bench/too-little-memory.stderr", TWO))
    # hand-made: a home in a path (form: the fixture llama-cpp-tools/batched-bench-no-model.txt)
    home = "llama_bench: error: failed to load model '/home/alice/models/a.gguf'\n"
    (record,) = records(home, TWO)
    assert "'a.gguf'" in record["failure"]["reason"]
    assert "alice" not in record["failure"]["reason"]


# hand-made: a head without rows (form: the fixture llama-bench/two-depths.md)
NO_ROWS = "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | --: | ---: | ---: |\n"  # noqa: E501


@pytest.mark.parametrize(
    ("line", "private", "kept"),
    [
        ("error: failed to connect to RPC server at halo2.fritz.box:50052", "halo2", "50052"),
        ("error: failed to load model 'x.gguf' HF_TOKEN=hf_SECRETabc123456789", "SECRET", "HF_"),
        (
            "error: failed: https://huggingface.co/a/b?token=hf_SECRETabc123456789",
            "SECRET",
            "",
        ),
        ("error: failed: Authorization: Bearer sk-QWERTY1234567890abcdef", "QWERTY", "failed"),
        ("error: download failed https://bob:hunter2@files.lan/x.gguf", "hunter2", "x.gguf"),
        ("error: failed with --api-key sk-QWERTY1234567890abcdef", "QWERTY", "--api-key"),
        ("error: failed to load '/home/bob/Kimi.gguf' from 192.168.7.9", "bob", "Kimi.gguf"),
    ],
)
def test_no_key_host_or_folder_of_a_line_gets_into_a_reason_or_a_refusal(
    records, line, private, kept
):
    # no output: the line and the head above
    (record,) = records(f"{line}\n{NO_ROWS}", UserMetadata(("lab",), nodes=1))
    assert private not in str(record)
    assert kept in record["failure"]["reason"]
    with pytest.raises(InputError) as refused:
        records(f"{line.replace('error:', 'RuntimeError:')}\n", TWO)
    assert private not in refused.value.message


def test_of_two_runs_the_one_that_failed_is_a_record_of_its_own(records):
    text = fixture("perftest/read.txt")
    broken = re.sub(r"^ *\d+ +\d+ +\d.*$", "Failed to complete", text, flags=re.MULTILINE)
    refused = fixture("iperf3/refused.txt")
    found = records(fixture("iperf3/client.txt") + refused)
    assert [one["outcome"] for one in found] == ["ok", "failed"]
    assert found[1]["source"]["line"] > 1
    with pytest.raises(InputError, match="Add --nodes"):
        records(fixture("llama-benchy/too-long.txt"))
    assert records(broken, TWO)[0]["outcome"] == "failed"


@pytest.mark.parametrize(
    "text",
    [
        # no output: sentences that no benchmark prints
        "Error: unable to find user kyuz0: no matching entries in passwd file\n",
        # no output: another sentence that no benchmark prints
        "my build failed with an error, llama is fine\n",
        fixture("hpl/no-mpirun.txt"),
        fixture("nccl-tests/row-cut.txt"),
    ],
)
@pytest.mark.parametrize("tool", [None, "hpl", "nccl-tests", "llama-benchy"])
def test_text_that_is_no_run_is_refused(records, text, tool):
    with pytest.raises(InputError):
        records(text, TWO, tool)
