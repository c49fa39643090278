"""nixwulf import: options against outputs, what is stored, what is refused."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nixwulf.cli.import_ import import_
from nixwulf.cli.main import cli
from nixwulf.cli.records import report
from nixwulf.core.errors import InputError
from nixwulf.outputs import all_tools
from nixwulf.results import importing, record
from nixwulf.results.importing import UserMetadata
from tool_outputs import (
    BATCHED,
    BENCHY,
    EXO_ROW,
    FIXTURES,
    NCCL,
    PERFTEST,
    VLLM,
    fixture,
    records_of,
)
from tool_outputs import IPERF3 as IPERF3_TEXT

LLAMA = FIXTURES / "llama-bench/two-depths.md"
IPERF3 = FIXTURES / "iperf3/both-ways.json"
PING = FIXTURES / "ping/replies.txt"
FAILED = FIXTURES / "llama-bench/too-little-memory.stderr"
TEXTS = [path.read_text() for path in sorted(FIXTURES.rglob("*")) if path.is_file()]
TEXTS += [BATCHED, BENCHY, IPERF3_TEXT, NCCL, PERFTEST]
TEXTS += [json.dumps(VLLM, indent=1), json.dumps({"runs": [EXO_ROW]}, indent=1)]


def outcome(path, text, tool=None):
    """The records of a text, or the one sentence that refuses it."""
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    try:
        found = records_of(path, UserMetadata(("generic-x86_64",), nodes=2), tool)
    except InputError as error:
        sentence = error.format_message()
        assert sentence.startswith(str(path))
        assert len(sentence.splitlines()) == 1
        return sentence
    assert found
    for one in found:
        record.validate(one, "record")
    assert len({one["id"] for one in found}) == len(found)
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("import") / "output.txt"


@pytest.fixture
def run(tmp_path):
    """The command with a known platform and a folder of the test's own."""

    def invoke(*arguments, platform="generic-x86_64", out=None):
        options = ["--platform", platform, "--out", str(out or tmp_path / "out")]
        return CliRunner().invoke(import_, [*map(str, arguments), *options])

    return invoke


@pytest.fixture
def output(tmp_path):
    """A file with a text or bytes."""

    def write(content, name="output.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def records_in(folder):
    return sorted((folder / "records").glob("*.json")) if folder.exists() else []


def test_records_are_stored_and_reported_on(run, tmp_path):
    done = run(LLAMA, IPERF3)
    assert done.exit_code == 0
    assert done.output.endswith(
        # no output: what the driver itself prints
        f"2 records imported; 'nixwulf report {tmp_path / 'out'}' shows them.\n"
    )
    assert "llama-bench, llama ?B F16, 1 node: 4 metrics" in done.output
    for path in records_in(tmp_path / "out"):
        found = record.load(path)
        assert (found["kind"], found["id"]) == ("imported", path.stem)
        assert re.fullmatch(r"(llama-bench|iperf3)-[0-9a-f]{8}", path.stem)
    page = CliRunner().invoke(report, [str(tmp_path / "out"), "--format", "md"])
    assert page.exit_code == 0
    row = re.search(
        r"\| n\\_depth 32 \| (\d+) ± \d+ \| (\d+) ± \d+ \| - \(1\) \| ok \|", page.output
    )
    printed = re.findall(r"@ d32 \| +([\d.]+) ±", LLAMA.read_text())
    assert list(map(float, row.groups())) == pytest.approx(list(map(float, printed)), rel=0.01)
    assert "| Imported | iperf3: both-ways.json; llama-bench: two-depths.md |" in page.output
    page = CliRunner().invoke(report, [str(tmp_path / "out")])
    assert page.output == f"{tmp_path / 'out' / 'report.html'}\n"


def test_platforms_are_not_compared_with_each_other_in_a_report(run, tmp_path):
    run(FIXTURES / "dllama/one-node.txt", "--model", "tiny", platform="raspberry-pi-cm5")
    run(FIXTURES / "dllama/two-nodes.txt", "--model", "tiny", platform="raspberry-pi-cm5")
    run(FIXTURES / "dllama/four-nodes.txt", "--model", "tiny", platform="dgx-spark")
    page = CliRunner().invoke(report, [str(tmp_path / "out"), "--format", "md"]).output
    assert "### imported: raspberry-pi-cm5, distributed-llama, tiny" in page
    row = r"\| \*\*{} nodes, tensor, tcp\*\* ok \|[ |]*\n\| prompt .*\n\| decode tok/s \| {} \|"
    assert re.search(row.format(2, 32.2), page)
    assert "| 32.2 | 0.11 | 5.7 % | 1 (1) |" in page
    alone = page.partition("### imported: dgx-spark, ")[2].partition("###")[0]
    assert re.search(row.format(4, 4.41), alone)
    assert "| 4.41 | 1 (1) |" in alone


def test_the_source_is_the_tool_the_files_name_and_its_hash(run, tmp_path):
    run(PING)
    (path,) = records_in(tmp_path / "out")
    assert record.load(path)["source"] == {
        "tool": "ping",
        "file": "replies.txt",
        "sha256": hashlib.sha256(PING.read_bytes()).hexdigest(),
    }


def test_importing_a_file_again_changes_nothing(run, tmp_path):
    first = run(LLAMA)
    (path,) = records_in(tmp_path / "out")
    before = path.read_bytes(), path.stat().st_mtime_ns
    shutil.copy(LLAMA, tmp_path / "another-name.md")
    again = run(LLAMA, LLAMA, tmp_path / "another-name.md")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert again.stdout.startswith("0 records imported, 1 there already")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_the_same_file_and_case_with_other_content_is_refused_and_nothing_stored(run, tmp_path):
    run(IPERF3)
    done = run(LLAMA, IPERF3, platform="dgx-spark")
    assert done.exit_code == 2
    assert "is of the same file and case and has another case, cluster; delete it" in done.output
    assert len(records_in(tmp_path / "out")) == 1


def test_another_model_name_is_another_case(run, tmp_path):
    run(LLAMA)
    assert run(LLAMA, "--model", "tiny").exit_code == 0
    models = {record.load(path)["case"]["model"] for path in records_in(tmp_path / "out")}
    assert models == {"llama ?B F16", "tiny"}


def test_json_prints_the_records_and_stores_nothing(run, tmp_path):
    done = run(LLAMA, PING, "--format", "json")
    assert [one["source"]["tool"] for one in json.loads(done.stdout)] == ["llama-bench", "ping"]
    assert not (tmp_path / "out").exists()


def test_what_neither_output_nor_user_says_is_absent(run):
    (found,) = json.loads(run(IPERF3, "--format", "json").stdout)
    assert "fabric" not in found
    assert not {"engine", "model", "parallelism", "fabric"} & found["case"].keys()


def test_what_the_user_says_completes_the_output(run):
    (path,) = (FIXTURES / "mlx/mlx.single.llama.txt",)
    options = ["--nodes", 2, "--fabric", "tb5", "--transport", "rdma", "--parallelism", "tensor"]
    options += ["--model", "../../etc/passwd", "--quant", "4bit", "--engine-version", "0.31"]
    (found,) = json.loads(run(path, *options, "--cluster", "desk", "--format", "json").stdout)
    case = found["case"]
    assert (case["nodes"], case["fabric"], case["transport"]) == (2, "tb5", "rdma")
    assert (case["parallelism"], case["model"]) == ("tensor", "../../etc/passwd")
    assert found["fabric"] == {"name": "tb5"}
    assert found["engine"] == {"name": "mlx", "version": "0.31"}
    assert found["model"]["weights"] == "4bit"
    assert found["cluster"]["name"] == "desk"
    assert "etc" not in found["id"]


def test_a_model_by_another_name_keeps_what_the_tool_calls_it(run):
    (found,) = json.loads(run(LLAMA, "--model", "tiny", "--format", "json").stdout)
    assert found["source"]["note"] == "llama-bench calls the model 'llama ?B F16'"


@pytest.mark.parametrize(
    ("file", "options", "sentence"),
    [
        (
            LLAMA,
            ["--nodes", "2"],
            "--nodes 2 contradicts the output of llama-bench, which has the ",
        ),
        (IPERF3, ["--nodes", "3"], "--nodes 3 contradicts the output of iperf3, which has two n"),
        (IPERF3, ["--transport", "rdma"], "--transport 'rdma' contradicts the output, which has"),
        (LLAMA, ["--engine", "vllm"], "--engine 'vllm' contradicts the output, which has 'll"),
        (LLAMA, ["--engine-version", "b1"], "--engine-version 'b1' contradicts the output, which"),
        (LLAMA, ["--fabric", "lan"], "--fabric 'lan' applies to none of the outputs: they are of "),
        (PING, ["--model", "tiny"], "--model 'tiny' applies to none of the outputs: they measure "),
        (LLAMA, ["--tool", "iperf"], "--tool: unknown tool 'iperf'; did you mean 'iperf3'?"),
        (LLAMA, ["--tool", "iperf3"], "iperf3 printed no interval in any line"),
        (LLAMA, ["--platform", "lab"], "--platform was given 2 times for 1 node(s)."),
    ],
)
def test_a_contradiction_is_one_sentence(run, tmp_path, file, options, sentence):
    done = run(file, *options)
    assert done.exit_code == 2
    assert sentence in done.output
    assert "\n" not in done.output.strip()
    assert not (tmp_path / "out").exists()


def test_an_engine_version_needs_an_engine(run, output):
    done = run(output(BENCHY), "--nodes", 1, "--engine-version", "0.11")
    assert "--engine-version '0.11' is of which engine? Add --engine NAME." in done.output
    assert run(output(BENCHY), "--nodes", 1, "--engine", "vllm").exit_code == 0


def test_one_name_for_several_models_is_refused(run, output):
    head, line, row, *_ = fixture("llama-bench/two-depths.md").splitlines(keepends=True)
    models = ("llama 7B Q4_0", "llama 13B Q4_0")
    text = head + line + "".join(row.replace("llama ?B F16", model) for model in models)
    done = run(output(text), "--model", "tiny")
    assert (
        "--model 'tiny' names 1 of the 2 models that it holds: 'llama 7B Q4_0' of 11.26 MiB (line "
        "3), 'llama 13B Q4_0' of 11.26 MiB (line 4); give --model once for each, in this order, or "
        "leave it out."
    ) in done.output
    done = run(output(text), "--quant", "Q4_0")
    assert "--quant 'Q4_0' is of one model, and it holds 2: 'llama 7B Q4_0' of 11" in done.output
    found = json.loads(
        run(output(text), "--model", "small", "--model", "large", "--format", "json").stdout
    )
    assert [one["case"]["model"] for one in found] == ["small", "large"]
    assert run(output(text)).output.count("records/") == 2


def test_two_names_for_runs_that_name_no_model_are_refused(run, output):
    # hand-made: its lines (form: https://github.com/ollama/ollama/blob/main/api/types.go)
    text = "eval rate:            4.42 tokens/s\n\neval rate:            54.64 tokens/s\n"
    done = run(output(text), "--nodes", 1, "--model", "large", "--model", "small")
    assert (done.exit_code, "give a file of its own to each model" in done.output) == (2, True)


def test_models_of_one_name_and_other_sizes_are_other_models(run, output, tmp_path):
    text = LLAMA.read_text()
    other = text.replace("11.26 MiB", "60.87 GiB").replace("5.51 M", "116.83 B")
    assert other != text
    found = json.loads(run(output(text + other), "--format", "json").stdout)
    assert [one["model"]["size"] for one in found] == ["11.26 MiB", "60.87 GiB"]
    assert [one["model"]["params"] for one in found] == ["5.51 M", "116.83 B"]
    assert len({one["case"]["id"] for one in found}) == 2
    assert {len(one["metrics"]) for one in found} == {4}
    done = run(output(text + other), "--model", "gpt-oss-120b")
    assert "'llama ?B F16' of 60.87 GiB (line " in done.output
    assert done.exit_code == 2
    run(output(text, "one.md"))
    run(output(other, "other.md"))
    page = CliRunner().invoke(report, [str(tmp_path / "out"), "--format", "md"]).output
    assert "60.87 GiB" in page


def test_an_imported_record_of_several_nodes_is_explained(run, tmp_path):
    path = FIXTURES / "llama-bench/two-servers.md"
    options = ["--nodes", 2, "--transport", "tcp", "--parallelism", "pipeline"]
    options += ["--model", "qwen3-30b-a3b", "--quant", "Q4_K_M"]
    done = run(path, *options, "--fabric-kind", "ethernet", platform="framework-desktop")
    assert done.exit_code == 0, done.output
    (stored,) = records_in(tmp_path / "out")
    found = record.load(stored)
    assert found["fabric"] == {"name": "ethernet", "kind": "ethernet"}
    explained = CliRunner().invoke(cli, ["explain", str(stored)])
    assert explained.exit_code == 0, explained.output
    assert "2 nodes, pipeline, ethernet, tcp" in explained.output
    refused = run(path, *options[:2], "--transport", "rdma", "--fabric-kind", "ethernet")
    assert "--fabric-kind 'ethernet' is crossed by tcp alone, and the tra" in refused.output
    assert "unknown kind of fabric 'lan'" in run(path, "--fabric-kind", "lan").output
    assert "--fabric-kind 'roce' applies to none" in run(LLAMA, "--fabric-kind", "roce").output


def test_a_run_of_a_file_that_cannot_be_read_is_named_beside_the_records(run, output, tmp_path):
    good = fixture("mlx/mlx.single.llama.txt")
    done = run(output(good + good.replace("prompt_tps=", "x=", 1)), "--nodes", 1)
    assert done.exit_code == 0
    assert "output.txt: the run that begins in line 6 is left out: mlx_lm" in done.output
    assert len(records_in(tmp_path / "out")) == 1


def test_cases_of_one_file_that_look_alike_are_all_stored(run, tmp_path, output):
    """Two files of one name, and two cases of which only one tells its RPC servers."""
    both = json.loads(fixture("llama-bench/two-depths.json"))
    for number, row in enumerate(both):
        row["model_filename"] = f"/models/{number % 2}/tiny.gguf"
    rpc = fixture("llama.cpp/0.5.0-dev-build-0-commit-0c1e570/llama-bench.rpc.jsonl")
    assert rpc.count(":50917") > 1
    for text, nodes in ((json.dumps(both, indent=1), 1), (rpc.replace(":50917", "", 1), 2)):
        found = json.loads(run(output(text), "--nodes", nodes, "--format", "json").stdout)
        assert len({one["id"] for one in found}) == len(found) == 2
        first, second = (one["source"].get("note", "") for one in found)
        assert (first, second) == ("", "")
        first, second = (one["source"]["line"] for one in found)
        assert first < second
        assert run(output(text), "--nodes", nodes).exit_code == 0
        again = run(output(text), "--nodes", nodes)
        assert again.stdout.startswith("0 records imported, 2 there already")
    assert len(records_in(tmp_path / "out")) == 4


def test_nodes_of_a_case_that_does_not_tell_are_not_those_of_one_that_does(run, output):
    # hand-made: no GPU for vLLM is at hand; the shortest block of two
    # (form: https://github.com/vllm-project/vllm/blob/1a91bc2/vllm/benchmarks/throughput.py)
    block = "  elapsed_time: 2.0 s\n  requests_per_second: 5\n  tokens_per_second: 50\n\n"
    # no output: titles that people put between two outputs
    text = f"single-node:\n{block}Ray TP=2:\n{block}"
    found = json.loads(run(output(text), "--nodes", 2, "--format", "json").stdout)
    assert [one["case"]["nodes"] for one in found] == [1, 2]


def test_a_platform_without_facts_is_reported_and_what_is_no_name_is_refused(run):
    done = run(PING, platform="dgx-sparc")
    assert done.exit_code == 0
    assert "Note: no facts are known of the platform 'dgx-sparc'; did you mean 'dgx-spark'?" in (
        done.output
    )
    done = run(PING, platform="../x")
    assert done.exit_code == 2
    assert "--platform '../x' is no name of small letters, digits and dashes" in done.output


def test_of_several_files_nothing_is_stored_unless_all_can_be_read(run, tmp_path):
    done = run(LLAMA, FAILED, tmp_path / "none.txt")
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()
    first, second = done.output.splitlines()
    assert first.startswith(f"{FAILED}: llama-bench failed; line 1 says ")
    assert "Add --nodes N" in first
    assert second == f"{tmp_path / 'none.txt'}: no such file."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is empty; name the output of a benchmark."),
        (b" \n\n", "it is empty; name the output of a benchmark."),
        (b"\x7fELF\x00\xff\xfe", "not UTF-8 text (byte 5)."),
        (b"hello world\n", "it looks like no tool's output that is known; docs/reference/imp"),
        # no output: a line without its head
        (b"\tSpeed: 40000Mb/s\n", "it looks like no tool's output that is known"),
        # hand-made: the shortest of its outputs (form: tests/fixtures/ethtool/veth.txt)
        (b"Settings for eth0:\n\tSpeed: 40000Mb/s\n", "it looks like 'ethtool', which has no b"),
        (b"{" * 100_000, "it looks like no tool's output that is known"),
    ],
)
def test_what_is_no_output_of_a_benchmark_is_refused_by_file(run, output, content, sentence):
    done = run(output(content))
    assert done.exit_code == 2
    assert "output.txt: " in done.output
    assert sentence in done.output
    assert "\n" not in done.output.strip()


def test_a_folder_and_a_file_that_is_too_large_are_refused(run, tmp_path, monkeypatch):
    assert f"{tmp_path}: a folder; name the files in it." in run(tmp_path).output
    monkeypatch.setattr(importing, "MOST_BYTES", 100)
    assert "MB, and the largest output that is read has " in run(LLAMA).output


@pytest.mark.slow
@pytest.mark.parametrize("tool", all_tools())
@pytest.mark.parametrize("text", [" ", "1", "|", "[", "llama-bench ", "\n"])
def test_lines_without_end_are_refused_and_not_worked_on_for_hours(scratch, tool, text):
    assert isinstance(outcome(scratch, text * 100_000, tool), str)


def test_outputs_of_two_tools_in_one_file_both_come_in(run, output):
    both = output(fixture("llama-bench/two-depths.md") + BATCHED)
    done = run(both, "--nodes", 1, "--format", "json")
    assert [one["source"]["tool"] for one in json.loads(done.stdout)] == [
        "llama-batched-bench",
        "llama-bench",
    ]
    assert f"{both}: llama-batched-bench and llama-bench, 2 runs, 10 values; " in done.stderr
    one = run(both, "--tool", "llama-bench")
    assert one.exit_code == 0
    assert "llama-batched-bench is in it too" in one.stderr


def test_the_answer_begins_with_what_was_read_and_what_was_left_out(run, output):
    text = fixture("posted/sglang-cut-off.txt").replace("Peak concurrent", "Most concurrent")
    done = run(output(text), "--nodes", 1, "--model", "inkling-small", "--explain")
    first, *lines = done.stderr.splitlines()
    assert (
        "sglang-bench, 1 run, 7 values; left out: line 15: Most concurrent requests (5)." in first
    )
    assert "  line 13: Output token throughput (tok/s) (62.86) -> throughput of run 1" in lines
    assert "  line 15: Most concurrent requests (5) -> left out" in lines


def test_a_record_is_no_output(run, tmp_path):
    run(LLAMA)
    done = run(*records_in(tmp_path / "out"))
    assert done.exit_code == 2
    assert "it is a record already" in done.output


def test_windows_line_ends_and_a_byte_order_mark_are_nothing_to_stumble_over(run, output):
    text = "\ufeff" + fixture("dllama/two-nodes.txt").replace("\n", "\r\n")
    assert run(output(text)).exit_code == 0


@pytest.mark.parametrize("number", ["NaN", "1e999", "-3", "Infinity", "-Infinity", '"fast"'])
@pytest.mark.parametrize(
    ("file", "key"),
    [("llama-bench/two-depths.json", "avg_ts"), ("iperf3/both-ways.json", "bits_per_second")],
)
def test_a_speed_that_is_none_is_refused_in_one_sentence(run, output, file, key, number):
    text = re.sub(rf'("{key}":\s*)[\d.]+', rf"\g<1>{number}", fixture(file))
    done = run(output(text))
    assert done.exit_code == 2
    assert re.search(r"line \d+", done.output)
    assert "\n" not in done.output.strip()


@pytest.mark.parametrize("speed", ["0.00 ± 0.00", "-5.0 ± 0.1", "1e999 ± 0"])
def test_nothing_at_all_is_no_speed(run, output, speed):
    text = fixture("llama-bench/two-servers.md")
    printed = text.splitlines()[2].split("|")[-2].strip()
    done = run(output(text.replace(printed, speed)), "--nodes", 2)
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "expected" in done.output


ANY_TOOL = st.sampled_from([None, *all_tools()])
MANY = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(text=st.text(), tool=ANY_TOOL)
# no output: damaged on purpose
@example(text='{"runs": [], "placement_sharding": 0}', tool=None)
def test_any_text_gives_records_or_one_sentence(scratch, text, tool):
    outcome(scratch, text, tool)


@MANY
@given(data=st.data(), text=st.sampled_from(TEXTS))
def test_any_output_cut_anywhere_gives_records_or_one_sentence(scratch, data, text):
    outcome(scratch, text[: data.draw(st.integers(0, len(text)))])


@MANY
@given(data=st.data(), text=st.sampled_from(TEXTS))
def test_any_output_with_a_number_changed_gives_records_or_one_sentence(scratch, data, text):
    numbers = list(re.finditer(r"(?<![\w.])\d+(?:\.\d+)?", text))
    if numbers:
        one = data.draw(st.sampled_from(numbers))
        other = data.draw(
            st.sampled_from(["NaN", "1e999", "-3", "0", "9" * 90, "9" * 5000, "null", "[]"])
        )
        outcome(scratch, text[: one.start()] + other + text[one.end() :])


def test_a_file_name_is_never_a_path(run, tmp_path):
    """Nor is anything else of a record: its file is named by its id."""
    # no output: the name of a file
    strange = tmp_path / "..\\..\n<b>.txt"
    shutil.copy(PING, strange)
    assert run(strange).exit_code == 0
    (path,) = records_in(tmp_path / "out")
    assert path.parent == Path(tmp_path / "out" / "records")
    assert record.load(path)["source"]["file"] == strange.name


@pytest.mark.repository
def test_the_session_in_the_docs_is_what_the_commands_print(tmp_path, monkeypatch):
    """Lines of '...' stand for some that are left out."""
    (session,) = re.findall(r"```console\n(.*?)```", Path("docs/share.md").read_text(), re.DOTALL)
    (tmp_path / "tests").symlink_to(Path("tests").resolve())
    monkeypatch.chdir(tmp_path)
    for step in session.split("$ nixwulf ")[1:]:
        command, shown = step.split("\n", 1)
        done = CliRunner().invoke(cli, command.split())
        assert done.exit_code == 0
        at = 0
        for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE):
            at = done.output.index(part.strip("\n"), at)
