"""What holds of every tool's output, and that a tool is one file."""

import json
import math
import re

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nixwulf import outputs
from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.core.metric import Metric
from nixwulf.outputs import ParseError, all_tools, documents
from nixwulf.outputs.described import KINDS, kind_of
from nixwulf.results.importing import UserMetadata
from tool_outputs import (
    ALL_TO_ALL,
    BATCHED,
    BENCHY,
    DESCRIBED,
    EXO_ROW,
    FIXTURES,
    IPERF2,
    IPERF3,
    MACOS,
    MTP,
    NCCL,
    PATHS,
    PERFTEST,
    SGLANG,
    VLLM,
    fixture,
    truncations,
)

WRITTEN = [ALL_TO_ALL, BATCHED, BENCHY, IPERF2, IPERF3, MACOS, MTP, NCCL, PATHS, PERFTEST, SGLANG]
WRITTEN += [json.dumps(VLLM, indent=1), json.dumps({"runs": [EXO_ROW]}, indent=1)]
WRITTEN += [one["text"] for one in DESCRIBED.values()]
TEXTS = [path.read_text() for path in sorted(FIXTURES.rglob("*")) if path.is_file()] + WRITTEN
EXAMPLES = [
    (name, text) for text in TEXTS for name in all_tools() if all_tools()[name].recognises(text)
]
# no output: the beginnings and ends of outputs, around any text
AROUND = {
    "": (("", ""),),
    "distributed-llama": (("nKvHeads: 1\n", ""),),
    "hpl": ((NCCL, ""), ("WR 1 1 1 1 ", " 1\n||Ax-b||= 0.1 ... PASSED\n")),
    "iperf3": (("{", ""), ("[  5] ", " sec")),
    "mlx_lm.benchmark": (
        ("Timing with prompt_tokens=1, generation_tokens=1, batch_size=1.\nTrial 1: ", ""),
    ),
    "nccl-tests": ((NCCL, ""), ("1024 256 float sum -1 ", " 0.04 0.04 0 26.1 0.04 0.05 0\n")),
    "perftest": (("#bytes ", "\n1"), ("timestamp_utc,\n", "")),
    "ping": (("time=", " ms 3 packets transmitted, 1 received"),),
    "sockperf": (("packet, txTime(sec), rxTime(sec), rtt(usec)\n", "\n---"),),
    "vllm-bench": (('{"output_throughput": ', "}"), ("elapsed_time: ", " s\n")),
}


def read(name, text):
    """The cases of a text, or None where the reader refuses it in its own words."""
    tool = all_tools()[name]
    tool.recognises(text)
    try:
        found = tool.read(text)
        assert found
        for case in found:
            assert documents(case.metrics)
    except ParseError as error:
        assert "\n" not in error.message  # noqa: PT017
        return None
    return found


def test_every_tool_has_an_example_that_it_reads():
    assert {name for name, text in EXAMPLES if read(name, text)} == all_tools().keys()


@pytest.mark.parametrize("text", TEXTS)
def test_at_most_one_tool_recognises_an_output(text):
    assert sum(tool.recognises(text) for tool in all_tools().values()) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_output_cut_anywhere_gives_cases_or_the_readers_own_error(name, text):
    for part in truncations(text):
        read(name, part)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("llama-benchy", BENCHY.replace("46.47 ± 0.35", "fast"), "line 4: t/s is 'fast', expected"),
        ("llama-benchy", BENCHY.replace("tg8 @", "xx8 @"), "line 4: test 'xx8 @ d4096' without a"),
        ("mtp-bench", MTP.replace("7.0", '"7"'), "predicted_per_second of result 1 is '7', exp"),
        ("mtp-bench", json.dumps({"results": [1]}), "no results, expected a list of prompts"),
        ("nccl-tests", NCCL.replace("26.5", "inf"), "a time or rate in line 6 that is none"),
        # no output: the log of a fixture, damaged on purpose
        (
            "sockperf",
            re.sub(r"rtt\(usec\)\n\d+", "rtt(usec)\nno", fixture("sockperf/tcp.txt")),
            r"sockperf's log has 'no, .* in line \d+, expected four numbers",
        ),
        ("sockperf", fixture("sockperf/tcp.txt").replace("# TCP", ""), "no line 'IP = ... # TCP'"),
        ("vllm-bench", json.dumps({**VLLM, "completed": 0}), "completed no request, and 1 failed"),
        ("perftest", PERFTEST.replace("2.49", "x"), "gave no row by line"),
    ],
)
def test_what_a_tool_got_wrong_is_one_sentence(name, text, words):
    with pytest.raises(ParseError, match=words):
        all_tools()[name].read(text)


@given(text=st.text(), name=st.sampled_from(list(all_tools())))
def test_any_text_gives_cases_or_the_readers_own_error(text, name):
    for before, after in (*AROUND[""], *AROUND.get(name, ())):
        read(name, before + text + after)


@given(text=st.text(), example=st.sampled_from(EXAMPLES), at=st.floats(0, 1), to=st.floats(0, 1))
def test_any_damaged_output_gives_cases_or_the_readers_own_error(text, example, at, to):
    name, whole = example
    cut, end = sorted((int(len(whole) * at), int(len(whole) * to)))
    read(name, whole[:cut] + text + whole[end:])


strange = st.sampled_from(
    [None, True, -1, float("inf"), 10**400, "", "1", "x", [], [1], [None], [[1, None]], {}, [{}]]
)


@given(st.dictionaries(st.sampled_from(list(VLLM)), strange))
def test_any_json_of_vllm_gives_cases_or_the_readers_own_error(changes):
    read("vllm-bench", json.dumps(VLLM | changes))


@pytest.mark.parametrize("number", [math.nan, math.inf, -3.0, 0.0])
def test_no_number_that_is_none_gets_into_a_metric(number):
    with pytest.raises(ParseError, match=r"^decode is .* tok/s, expected a "):
        documents([Metric("decode", "tok/s", value=number)])
    with pytest.raises(ParseError):
        documents([Metric("decode", "tok/s", (5.0, number))])
    if number:
        with pytest.raises(ParseError):
            documents([Metric("decode", "tok/s", value=5.0, stddev=number)])


@pytest.mark.parametrize("where", ["conditions", "observed"])
def test_a_condition_that_is_no_number_is_refused(where):
    with pytest.raises(ParseError, match=r"decode has n nan, expected a number below 2\^53"):
        documents([Metric("decode", "tok/s", (5.0,), **{where: {"n": math.nan}})])


def test_of_very_many_samples_a_thousand_are_kept_evenly():
    samples = tuple(range(1, 100_001))
    (found,) = documents([Metric("round_trip", "us", samples, distribution=True)])
    assert len(found["samples"]) == 1000
    assert (found["samples"][0], found["samples"][-1]) == (1, 99_901)
    assert found["percentiles"]["p50"] == pytest.approx(50_000, rel=0.01)


def test_what_was_printed_before_a_crash_is_kept(records):
    said = UserMetadata(("lab",), nodes=2, transport="tcp")
    (record,) = records("llama-bench/rpc-server-killed.json", said)
    assert record["warnings"] == ["llama-bench ended before its end, after these results."]
    assert record["cluster"]["lab"]
    (record,) = records("mlx/mlx.ring2.killed.r0.txt", UserMetadata(("lab",), nodes=2))
    assert "ended before all trials" in record["warnings"][0]


def test_no_address_and_no_folder_of_an_output_gets_into_a_record(records):
    lab = ("iperf3/4-streams.json", "ping/replies.txt", "sockperf/tcp.txt")
    for name, address in {
        **dict.fromkeys(lab, "10.77"),
        "dllama/two-nodes.txt": "127.0.0.1",
    }.items():
        assert address in fixture(name)
        assert address not in json.dumps(records(name))
    assert "alice" not in json.dumps(
        records(json.dumps(VLLM), UserMetadata(("dgx-spark",), nodes=1))
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (fixture("ethtool/veth.txt"), "ethtool"),
        (fixture("llama-cpp-tools/fit-params.txt"), "llama_fit_params"),
        # hand-made: no Thunderbolt is at hand
        # (form: https://blog.hellas.ai/blog/thunderbolt-ibverbs/2-scaling/)
        ("0-2 right tx=20.0 Gb/sx2 rx=20.0 Gb/sx2\n", "thunderbolt"),
        # hand-made: no Thunderbolt is at hand (form:
        # https://github.com/torvalds/linux/blob/9c3a985/drivers/thunderbolt/xdomain.c)
        (
            "[ 9.2] thunderbolt 1-2: new host found, vendor=0x1d6b device=0x4\n",
            "thunderbolt",
        ),
    ],
)
def test_an_output_without_a_result_is_refused_by_what_it_is(records, text, name):
    assert kind_of(text) in KINDS
    with pytest.raises(InputError, match=f"looks like '{name}', which has no benchmark's result"):
        records(text)
    for line in WRITTEN:
        assert kind_of(line) is None


# no output: a tool that only this test knows
TINY = '''
"""littlebench: steps a second."""

from nixwulf.core.metric import Metric
from nixwulf.outputs import ONE, Found, ParseError, Tool


def recognises(text):
    return text.startswith("littlebench ")


def read(text):
    try:
        speed = float(text.split()[2])
    except (IndexError, ValueError):
        raise ParseError("littlebench has no number in line 1.") from None
    metric = Metric("decode", "tok/s", (speed, speed + 1), conditions={"steps": 3})
    return [Found("littlebench", [metric], nodes=ONE, model={"name": "tiny"})]


TOOL = Tool("littlebench", recognises, read)
'''


def test_a_tool_is_added_by_one_file(tmp_path, monkeypatch):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "littlebench.py").write_text(TINY)
    monkeypatch.setattr(outputs, "__path__", [*outputs.__path__, str(tmp_path / "tools")])
    all_tools.cache_clear()
    monkeypatch.chdir(tmp_path)
    # no output: of the tool above
    (tmp_path / "good.txt").write_text("littlebench 1.0 41.5 steps/s\n")
    # no output: of the tool above
    (tmp_path / "bad.txt").write_text("littlebench 1.0\n")

    def nixwulf(*arguments):
        return CliRunner().invoke(cli, arguments)

    try:
        stored = nixwulf("import", "good.txt", "--platform", "generic-x86_64", "--engine", "mine")
        assert stored.exit_code == 0, stored.output
        assert "littlebench, tiny, 1 node: 1 metric" in stored.output
        (path,) = (tmp_path / "runs/imported/records").glob("littlebench-*.json")
        record = json.loads(path.read_text())
        assert record["case"]["engine"] == "mine"
        assert (record["metrics"][0]["value"], record["source"]["tool"]) == (42.0, "littlebench")
        assert nixwulf("validate", str(path)).exit_code == 0
        page = nixwulf("report", "runs/imported", "--format", "md")
        assert page.exit_code == 0
        assert "littlebench: good.txt" in page.output
        refused = nixwulf("import", "bad.txt", "--platform", "generic-x86_64")
        assert "bad.txt: littlebench has no number in line 1." in refused.output
        unknown = nixwulf("import", "good.txt", "--platform", "generic-x86_64", "--tool", "x")
        assert "littlebench" in unknown.output
    finally:
        monkeypatch.undo()
        all_tools.cache_clear()
