"""llama-bench and the other tools around llama.cpp: what is parsed, and what an import calls it."""

import json
import re
import time

import pytest

from nixwulf.outputs import ParseError, ToolFailed, all_tools
from nixwulf.outputs.llama_bench import parse
from nixwulf.results.importing import UserMetadata
from tool_outputs import BATCHED, BENCHY, FIXTURES, MTP, by_name, fixture, records_of

FOLDER = FIXTURES / "llama-bench"
FORMS = [FOLDER / f"two-depths.{form}" for form in ("md", "csv", "json", "jsonl", "sql")]
(COMMIT,) = re.findall(r"commit (\w+)", fixture("llama-bench/version.txt"))
TABLE = (FOLDER / "two-depths.md").read_text()
SERVERS = (FOLDER / "two-servers.md").read_text()
BUFFERS = (FOLDER / "two-servers-buffers.txt").read_text()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.suffix)
def test_every_form_of_its_output_gives_the_same_tests_model_and_build(path):
    rows = parse(path.read_text())
    assert [row.metric for row in rows] == ["prompt", "decode"] * 2
    assert [(row.n_prompt, row.n_gen, row.n_depth) for row in rows] == [
        (16, 0, 0),
        (0, 4, 0),
        (16, 0, 32),
        (0, 4, 32),
    ]
    for row in rows:
        assert (row.model, row.backend, row.rpc_servers) == ("llama ?B F16", "CPU", 0)
        assert row.build_commit == COMMIT
        assert row.mean > 0
        assert row.deviation > 0


@pytest.mark.parametrize("path", FORMS[2:4], ids=lambda path: path.suffix)
def test_json_keeps_every_sample(path):
    for row in parse(path.read_text()):
        assert len(row.samples) == 2
        assert sum(row.samples) / 2 == pytest.approx(row.mean, rel=1e-3)


@pytest.mark.parametrize("name", ["rpc-server-killed.json", "rpc-server-killed.jsonl"])
def test_what_was_printed_before_a_crash_is_kept(name):
    (row,) = parse((FOLDER / name).read_text())
    assert (row.metric, row.n_prompt, row.rpc_servers) == ("prompt", 64, 2)


def test_without_a_row_the_error_quotes_the_line_that_says_why():
    with pytest.raises(ToolFailed, match="llama-bench failed; line 1 says .*failed to allo"):
        parse((FOLDER / "too-little-memory.stderr").read_text())


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        # no output: the line that one types before it
        (f"$ llama-bench -m a.gguf\n{SERVERS}", 0),
        # no output: the line that one types before it
        (f"$ llama-bench --rpc 10.0.0.2:1,10.0.0.3:1,10.0.0.4:1 -m a.gguf\n{SERVERS}", 3),
        (BUFFERS, 2),
        (BUFFERS.replace("RPC0[", "RPC["), 2),
        (SERVERS, None),
        (TABLE, 0),
    ],
    ids=["no --rpc", "--rpc", "buffers", "older buffers", "nothing", "no RPC"],
)
def test_rpc_servers_are_counted_from_the_command_or_the_log(text, servers):
    assert {row.rpc_servers for row in parse(text)} == {servers}


@pytest.mark.parametrize(
    ("command", "stated"),
    [
        # no output: commands that one types before it
        ("-m a.gguf -b 4096 -ub 1024 -r 10", {"n_batch": 4096, "n_ubatch": 1024}),
        # no output: over several lines
        ("--model a.gguf \\\n  -fa on \\\n  -ctk q8_0", {"flash_attn": 1, "type_k": "q8_0"}),
        # no output: of several values no row shows which is its own, and a column says it itself
        ("-m a.gguf -ub 512,1024 -t 7", {}),
    ],
)
def test_options_of_a_command_are_settings_where_its_table_has_no_column(command, stated):
    # no output: what one may write between two tables
    below = "\n# no command of its own\n" + TABLE
    # no output: a command above the program's own table
    rows = parse(f"$ ./llama-bench {command}\n{TABLE}{below}")
    plain = [row.settings for row in parse(TABLE)]
    assert [row.settings for row in rows[: len(plain)]] == [{**stated, **one} for one in plain]
    assert [row.settings for row in rows[len(plain) :]] == plain


def test_each_run_of_a_document_has_its_own_build():
    (ours,) = {row.build_commit for row in parse(TABLE)}
    second = TABLE.replace(f"build: {ours}", "build: bbb")
    assert [row.build_commit for row in parse(TABLE + second)] == [ours] * 4 + ["bbb"] * 4


def test_prompt_and_decode_in_one_test_are_neither():
    *_, row = parse((FOLDER / "both-in-one.md").read_text())
    assert (row.metric, row.n_prompt, row.n_gen) == ("prompt_and_decode", 16, 4)


@pytest.mark.timeout(60)
def test_objects_that_never_end_cost_no_more_than_their_lines():
    """Where each is read to the end of the text, this takes minutes, not two seconds."""
    with pytest.raises(ParseError, match="no result in"):
        parse("{\n" * 300_000)


def test_a_speed_that_is_none_names_its_line():
    speed = SERVERS.splitlines()[2].split("|")[-2].strip()
    with pytest.raises(ParseError, match=r"line 3: 'nan ± nan' is no speed, expected"):
        parse(SERVERS.replace(speed, "nan ± nan"))


@pytest.mark.parametrize("form", ["md", "csv", "json", "jsonl", "sql"])
def test_llama_bench_in_any_form_is_four_metrics_with_the_conditions_of_the_benchmark(
    records, form
):
    (record,) = records(f"llama-bench/two-depths.{form}")
    case = record["case"]
    assert (case["engine"], case["benchmark"]) == ("llama.cpp", "llama-bench")
    assert (case["nodes"], case["parallelism"], case["parameters"]) == (
        1,
        "single",
        {"model_size": "11.26 MiB"},
    )
    assert record["engine"] == {
        "name": "llama.cpp",
        "build_commit": COMMIT,
        "backends": "CPU",
    }
    assert record["model"]["name"] == "llama ?B F16"
    assert record["model"]["weights"] == "F16"
    told = [(m["name"], m["unit"], m["conditions"]["n_depth"]) for m in record["metrics"]]
    assert told == [
        ("prompt", "tok/s", 0),
        ("decode", "tok/s", 0),
        ("prompt", "tok/s", 32),
        ("decode", "tok/s", 32),
    ]
    assert record["metrics"][0]["conditions"]["n_prompt"] == 16
    assert record["metrics"][0]["conditions"]["n_threads"] == 1
    assert "stddev" in record["metrics"][0]
    assert ("samples" in record["metrics"][0]) == (form in {"json", "jsonl"})


def test_llama_bench_says_what_its_json_alone_knows(records):
    (record,) = records("llama-bench/two-depths.json")
    assert record["model"] == {
        "name": "llama ?B F16",
        "file": "tiny.gguf",
        "bytes": 11804160,
        "parameters": 5506944,
        "size": "11.26 MiB",
        "params": "5.51 M",
        "architecture": "llama",
        "weights": "F16",
    }
    samples = json.loads(fixture("llama-bench/two-depths.json"))[0]["samples_ts"]
    assert record["metrics"][0]["samples"] == samples
    assert record["metrics"][0]["value"] == pytest.approx(sum(samples) / 2)


def test_rows_of_other_settings_or_of_another_number_of_servers_are_distinguished(records):
    # hand-made: no machine with CUDA is at hand, and columns are what differs here
    # (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/tools/llama-bench/README.md)
    head = "| model | size | params | backend | fa | dev | test | t/s |\n"
    # hand-made: as above (form: the same README)
    row = "| llama 7B Q4_0 | 3.56 GiB | 6.74 B | {} | {} | {} | tg32 | {} ± 0.1 |\n"
    text = head + row.format("CUDA,RPC", 0, "CUDA0", 50) + row.format("CUDA,RPC", 1, "CUDA0", 55)
    text += row.format("CUDA,RPC", 1, "CUDA0/RPC0", 40)
    (two,) = [r for r in records(text, UserMetadata(("dgx-spark",), 1)) if r["case"]["nodes"] == 2]
    assert (two["case"]["parallelism"], two["metrics"][0]["value"]) == ("pipeline", 40.0)
    (one,) = [r for r in records(text, UserMetadata(("dgx-spark",), 1)) if r["case"]["nodes"] == 1]
    speeds = {m["conditions"]["flash_attn"]: m["value"] for m in one["metrics"]}
    assert speeds == {0: 50.0, 1: 55.0}


def test_a_setting_that_differs_between_rows_of_json_is_a_condition(records):
    line = fixture("llama-bench/two-depths.jsonl").splitlines()[0]
    other = line.replace('"poll": 50', '"poll": 0')
    # no output: two lines of a fixture
    (record,) = records(f"{line}\n{other}\n")
    assert [m["conditions"].get("poll") for m in record["metrics"]] == [50, 0]
    (record,) = records(f"{line}\n")
    assert "poll" not in record["metrics"][0]["conditions"]


def test_equal_rows_are_passes_and_not_lost(records):
    *head, row, _, _ = fixture("llama-bench/two-servers.md").splitlines(keepends=True)
    (record,) = records(
        "".join([*head, row, row]), UserMetadata(("lab",), nodes=2, transport="tcp")
    )
    assert [m["conditions"].get("pass") for m in record["metrics"]] == [None, 2]


def test_runs_that_show_where_they_end_are_cases_of_their_own(records):
    for form in ("md", "csv", "json", "sql"):
        found = records(fixture(f"llama-bench/two-depths.{form}") * 3)
        assert [len(one["metrics"]) for one in found] == [4, 4, 4]
    lines = [one["source"]["line"] for one in records(TABLE * 2)]
    assert lines[1] - lines[0] == TABLE.count("\n")


def test_a_crash_warns_on_the_run_that_it_ended_alone(records):
    crash = fixture("llama-bench/too-little-memory.stderr")
    # no output: runs of which the second ended early, or had no result at all
    for document in (TABLE + TABLE.rpartition("build:")[0] + crash + TABLE, TABLE + crash + TABLE):
        found = records(document)
        warned = [one for one in found if "warnings" in one]
        assert [len(one["metrics"]) for one in found] == [4] * len(found)
        assert warned == ([] if len(found) == 2 else found[1:2])
    rows = fixture("llama-bench/two-depths.jsonl")
    # no output: lines of two models, and the second's process ended
    two = rows + rows.replace("tiny.gguf", "other.gguf") + "Segmentation fault (core dumped)\n"
    assert ["warnings" in one for one in records(two + "Killed\n")] == [False, True]
    (record,) = records(TABLE.rpartition("build:")[0] + crash)
    assert "reports a failure; line " in record["warnings"][0]


@pytest.mark.parametrize("inside", ["object", "list", "text", "lines of lists"])
def test_rows_inside_of_what_others_wrote_around_them_are_read(records, inside):
    rows = json.loads(fixture("llama-bench/two-depths.json"))
    # no output: what others write around rows
    lines = {
        "object": [{"mode": "pp", "bench_raw": row, "vram_mib": 3} for row in rows],
        "list": [{"host": "n1", "results": rows}],
        "text": [{"host": "n1", "stdout": json.dumps(rows)}],
        "lines of lists": [rows[:2], rows[2:]],
    }[inside]
    (record,) = records("".join(json.dumps(line) + "\n" for line in lines))
    assert record["metrics"] == records("llama-bench/two-depths.json")[0]["metrics"]


@pytest.mark.slow
def test_ten_times_the_rows_take_ten_times_as_long(tmp_path):
    row = json.loads(fixture("llama-bench/two-depths.jsonl").splitlines()[0])
    took = []
    for count in (2000, 20_000):
        path = tmp_path / f"{count}.jsonl"
        rows = ({**row, "n_prompt": number + 1} for number in range(count))
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        began = time.process_time()
        (record,) = records_of(path, UserMetadata(("lab",)))
        took.append(time.process_time() - began)
        assert len(record["metrics"]) == count
    assert took[1] < 20 * took[0]


def test_batched_bench_gives_its_rows_and_the_options_it_states(records):
    (record,) = records(BATCHED, UserMetadata(("generic-x86_64",), nodes=1))
    names = ("prompt_throughput", "throughput", "total_throughput")
    assert [m["name"] for m in record["metrics"]] == [*names, *names]
    for sequences, metrics in ((1, record["metrics"][:3]), (2, record["metrics"][3:])):
        for metric in metrics:
            told = metric["conditions"]
            assert (told["n_prompt"], told["n_gen"], told["concurrency"]) == (100, 20, sequences)
            assert told["n_gpu_layers"] == -1
            assert "n_kv_max" not in told
        prompt, decode, total = (metric["value"] for metric in metrics)
        seconds = 100 * sequences / prompt + 20 * sequences / decode
        assert total == pytest.approx(120 * sequences / seconds, rel=0.01)


def test_two_runs_of_batched_bench_in_one_document_stay_apart():
    found = all_tools()["llama-batched-bench"].read(BATCHED * 2)
    assert [(len(one.metrics), one.parameters) for one in found] == [
        (6, {"table": 1}),
        (6, {"table": 2}),
    ]


def test_benchy_without_concurrencies_is_of_one_request(records):
    (record,) = records(BENCHY, UserMetadata(("generic-x86_64",), nodes=1))
    assert record["source"]["note"] == "llama-benchy 0.3.1"
    told = [(m["name"], m["value"], m["stddev"]) for m in record["metrics"]]
    assert told == [
        ("prompt", 900.5, 10.25),
        ("ttfr", 153.26, 4.35),
        ("decode", 46.47, 0.35),
        ("peak_throughput", 48.0, 0.0),
    ]
    prompt, *_, decode = (m["conditions"] for m in record["metrics"])
    assert prompt == {"n_prompt": 64, "n_depth": 4096, "concurrency": 1}
    assert decode == {"n_gen": 8, "n_depth": 4096, "concurrency": 1}


def test_mtp_bench_is_decode_with_a_sample_a_prompt(records):
    (record,) = records(MTP, UserMetadata(("generic-x86_64",), nodes=1))
    decode = by_name(record)["decode"]
    assert (decode["samples"], decode["value"]) == ([6.0, 7.0], 6.5)
    assert (record["case"]["model"], decode["conditions"]) == ("small", {"mode": "baseline"})
    assert decode["observed"] == {
        "prompts": "one, two",
        "predicted": 40,
        "drafted": 0,
        "accepted": 0,
    }


def test_mtp_bench_with_drafts_has_the_share_that_was_accepted(records):
    drafts = MTP.replace('"draft_n": 0', '"draft_n": 40').replace(
        '"draft_n_accepted": 0', '"draft_n_accepted": 30'
    )
    (record,) = records(drafts, UserMetadata(("generic-x86_64",), nodes=1))
    assert by_name(record)["decode"]["observed"]["acceptance"] == "75.0 %"


def test_a_model_that_is_not_there_is_quoted():
    with pytest.raises(ParseError, match=r"line 1 says .*failed to open GGUF file 'm/none.gguf'"):
        all_tools()["llama-batched-bench"].read(
            fixture("llama-cpp-tools/batched-bench-no-model.txt")
        )


# hand-made: two tables and what was said of them (form: the fixture llama-bench/two-depths.md)
COMPARED = """\
Single node:

| model | size | params | backend | ngl | test | t/s |
| ----- | ---: | -----: | ------- | --: | ---: | --: |
| gpt-oss 120B MXFP4 MoE | 59.02 GiB | 116.83 B | Vulkan | 99 | tg128 | 48.31 ± 0.05 |

Three nodes, with `--rpc 10.0.0.2:50052,10.0.0.3:50052`:

| model | size | params | backend | ngl | test | t/s |
| ----- | ---: | -----: | ------- | --: | ---: | --: |
| gpt-oss 120B MXFP4 MoE | 59.02 GiB | 116.83 B | Vulkan,RPC | 99 | tg128 | 38.05 ± 0.12 |

build: b7315 (4d3726278)
"""


def test_servers_in_a_sentence_are_those_of_the_table_below_it(records):
    found = records(COMPARED)
    assert [one["case"]["nodes"] for one in found] == [1, 3]
    assert found[1]["engine"]["version"] == "b7315"
    assert found[1]["engine"]["build_commit"] == "4d3726278"


def test_a_test_of_2023_has_a_blank_in_its_name(records):
    (record,) = records(COMPARED.partition("Three")[0].replace("tg128", "tg 128"))
    assert record["metrics"][0]["conditions"]["n_gen"] == 128
