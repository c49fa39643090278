"""What strangers' files have around and inside results, in the forms in which they post them."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import fixture

ONE = UserMetadata(("generic-x86_64",), nodes=1)
# hand-made: its closing line (form: github.com/LostRuins/koboldcpp, gpttype_adapter.cpp)
KOBOLD = (
    "[14:02:11] CtxLimit:1836/16384, Amt:412/512, Init:0.05s, Process:4.73s (301.06T/s), "
    "Generate:22.39s (18.40T/s), Total:27.12s\n"
)
# hand-made: a server asked over the network (form: github.com/EleutherAI/lm-evaluation-harness)
ASKED = """\
local-completions (model=Qwen/Qwen3-30B,base_url=http://10.1.2.3:8000/v1,num_concurrent=16), limit: None
|Tasks|Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|
|-----|------:|----------------|-----:|-----------|---|-----:|---|-----:|
|gsm8k|      3|flexible-extract|     5|exact_match|↑  |0.9120|±  |0.0078|
"""  # noqa: E501
# hand-made: scores that are no fractions (form: github.com/EleutherAI/lm-evaluation-harness)
SCORES = """\
|     Tasks    |Version|Filter|n-shot|    Metric     |   | Value |   |Stderr|
|--------------|------:|------|-----:|---------------|---|------:|---|------|
|truthfulqa_gen|      3|none  |     0|bleu_max       |↑  |27.8110|±  |0.8113|
|lambada_openai|      1|none  |     0|acc            |↑  | 0.7401|±  |0.0061|
|              |       |none  |     0|perplexity     |↓  | 3.2100|±  |0.0610|
|wikitext      |      2|none  |     0|bits_per_byte  |↓  | 0.5912|±  |N/A   |
|              |       |none  |     0|word_perplexity|↓  | 8.9377|±  |N/A   |
|new_task      |      1|none  |     0|new_score      |↑  | 12.500|±  |0.1000|
"""
# hand-made: in German and in French (form: po/ of https://github.com/iputils/iputils)
PINGS = (
    """\
PING 10.0.0.2 (10.0.0.2) 56(84) Bytes an Daten.
64 Bytes von 10.0.0.2: icmp_seq=1 ttl=64 Zeit=0.141 ms
64 Bytes von 10.0.0.2: icmp_seq=2 ttl=64 Zeit=0.119 ms

--- 10.0.0.2 ping-Statistiken ---
2 Pakete übertragen, 2 empfangen, 0% packet loss, time 1001ms
rtt min/avg/max/mdev = 0.119/0.130/0.141/0.011 ms
""",
    """\
PING 10.0.0.2 (10.0.0.2) 56(84) octets de données.
64 octets de 10.0.0.2 : icmp_seq=1 ttl=64 temps=0.141 ms
64 octets de 10.0.0.2 : icmp_seq=2 ttl=64 temps=0.119 ms

--- statistiques ping 10.0.0.2 ---
2 paquets transmis, 2 reçus, 0% packet loss, time 1001ms
rtt min/avg/max/mdev = 0.119/0.130/0.141/0.011 ms
""",
)
# hand-made: two engines of one server at one moment (form: vllm/v1/metrics/loggers.py of
# https://github.com/vllm-project/vllm)
ENGINES = "".join(
    f"INFO 11-02 10:00:10 [loggers.py:257] Engine 00{index}: Avg prompt throughput: {prompt} "
    f"tokens/s, Avg generation throughput: {answer} tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 1.1%, Prefix cache hit rate: 0.0%\n"
    for index, prompt, answer in ((0, 10.5, 20.5), (1, 11.5, 21.5))
)
# hand-made: a difference of two tables (form: the fixture llama-bench/two-depths.md)
DIFFERENCE = """\
@@ -1,4 +1,4 @@
 | model | size | params | backend | ngl | test | t/s |
-| gpt-oss 120B MXFP4 MoE | 59.02 GiB | 116.83 B | Vulkan | 99 | tg128 | 33.10 ± 0.02 |
-build: 16724b5b (6000)
+| gpt-oss 120B MXFP4 MoE | 59.02 GiB | 116.83 B | Vulkan | 99 | tg128 | 35.90 ± 0.02 |
+build: 7049736b (7050)
"""


def _said(tmp_path, text, metadata=ONE):
    path = tmp_path / "posted.txt"
    path.write_text(text)
    return " ".join(reading_of(path, metadata).sentences())


def test_koboldcpps_line_keeps_its_context_its_answer_and_its_times(records):
    (record,) = records(KOBOLD, ONE)
    for one in record["metrics"]:
        assert one["conditions"] == {"n_gen": 412, "max_context": 16384}
        observed = {"context_used": 1836, "n_gen_limit": 512, "init_s": 0.05, "total_s": 27.12}
        assert one["observed"].items() >= observed.items()
    (record,) = records(KOBOLD.replace("Amt:412/512, ", ""), ONE)
    assert record["metrics"][0]["conditions"] == {"max_context": 16384}


def test_a_model_that_is_asked_over_the_network_is_kept_and_its_address_is_named(tmp_path, records):
    (record,) = records(ASKED, ONE)
    assert record["case"]["model"] == "Qwen/Qwen3-30B"
    said = _said(tmp_path, ASKED)
    assert "line 1: base_url (an address)" in said
    assert "10.1.2.3" not in said + str(record)


def test_scores_that_are_no_fractions_are_no_percent_of_one(tmp_path, records):
    (record,) = records(SCORES, ONE)
    found = {
        one["conditions"]["score"]: (one["name"], one["unit"], one["value"], one.get("observed"))
        for one in record["metrics"]
    }
    assert found == {
        "bleu_max": ("score", "%", 27.811, {"stderr": 0.8113}),
        "acc": ("score", "%", 74.01, {"stderr": 0.61}),
        "perplexity": ("perplexity", "PPL", 3.21, {"stderr": 0.061}),
        "word_perplexity": ("perplexity", "PPL", 8.9377, None),
    }
    assert "Value (0.5912 and 1 more)" in _said(tmp_path, SCORES)


@pytest.mark.parametrize("text", PINGS, ids=["German", "French"])
def test_ping_is_read_in_the_language_of_its_system(records, text):
    (record,) = records(text, UserMetadata(("generic-x86_64",), nodes=2))
    (trips,) = record["metrics"]
    assert trips["samples"] == [141.0, 119.0]
    assert trips["conditions"] == {"bytes": 64}
    assert trips["observed"] == {"lost": 0, "round_trips": 2}


def test_engines_of_one_server_are_told_apart(records):
    (record,) = records(ENGINES, ONE)
    found = {(one["name"], one["conditions"]["engine_index"]): one for one in record["metrics"]}
    assert {key: one["value"] for key, one in found.items()} == {
        ("prompt_throughput", 0): 10.5,
        ("throughput", 0): 20.5,
        ("prompt_throughput", 1): 11.5,
        ("throughput", 1): 21.5,
    }
    assert not any("pass" in one.get("observed", {}) for one in found.values())


def test_a_difference_of_two_tables_is_refused_with_its_line(records):
    with pytest.raises(InputError, match="line 3 .* removed or added"):
        records(DIFFERENCE, ONE)
    with pytest.raises(InputError, match="line 1 .* removed or added"):
        records(DIFFERENCE.partition("s |\n")[2].replace("-|", "+ |"), ONE)
    with pytest.raises(InputError, match="line 4 .* removed or added"):
        records(DIFFERENCE.replace("| ", "", 1).replace("-| ", "- ").replace("+| ", "+ "), ONE)


def test_a_table_in_a_list_has_its_columns_by_name(records):
    rows = DIFFERENCE.splitlines()[1:3]
    (record,) = records("\n".join(f"* {row[1:].strip(' |')}" for row in rows), ONE)
    assert record["case"]["model"] == "gpt-oss 120B MXFP4 MoE"
    assert [one["value"] for one in record["metrics"]] == [33.1]


def _as_sheet(text):
    """The rows of a table of Markdown as a sheet that has units and deviations in its head."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    units = {"size": "size (MiB)", "params": "params (M)"}
    sheet = [",".join([*(units.get(name, name) for name in rows[0]), "stddev"])]
    for row in rows[1:]:
        size, params, (speed, deviation) = (
            row[1].split()[0],
            row[2].split()[0],
            row[-1].split(" ± "),
        )
        sheet.append(",".join([row[0], size, params, *row[3:-1], speed, deviation]))
    return "\n".join([*sheet, ""])


def test_units_and_deviations_in_the_head_of_a_sheet_are_read(records):
    text = fixture("llama-bench/two-depths.md")
    (record,), (sheet,) = records(text, ONE), records(_as_sheet(text), ONE)
    assert sheet["metrics"] == record["metrics"]
    assert sheet["model"] == record["model"]


def test_what_markdown_and_html_write_for_a_sign_is_that_sign(records):
    text = fixture("llama-bench/two-depths.md").replace("F16", "Q4_K - Medium")
    model = records(text, ONE)[0]["model"]
    assert model["weights"] == "Q4_K - Medium"
    for old, new in (
        ("Q4_K", r"Q4\_K"),
        (" - M", r" \- M"),
        ("MiB", "MiB&#8203;"),
        (" ", "&nbsp;"),
    ):
        assert records(text.replace(old, new), ONE)[0]["model"] == model
    page = "<table><tr><td>" + text.replace("| ", "<td>").replace("MiB", "&nbsp;MiB")
    assert "\xa0" not in str(records(page.replace("<table>", "<p>") + "\n" + text, ONE))
    (record,) = records(text.replace("Q4_K - Medium", r"Q4\|K\*"), ONE)
    assert record["model"]["weights"] == "Q4|K*"


def test_a_sentence_about_a_key_is_no_result(records):
    # no output: a sentence about one
    said = 'If ollama says "eval rate: 99.00 tokens/s", or eval rate: 98.00 tokens/s, it is fast.\n'
    # hand-made: two closing lines (form: tests/support/closing_lines.toml)
    closing = "prompt eval rate:     200.00 tokens/s\neval rate:            33.02 tokens/s\n"
    for prefix in ("", "| ", "ollama-1  | ", "[14:02:11] ", "  **", "14:02:11: "):
        text = said + prefix + closing.replace("\n", f"\n{prefix}", 1)
        found = [one for record in records(text, ONE) for one in record["metrics"]]
        assert [(one["name"], one["value"]) for one in found] == [
            ("prompt", 200.0),
            ("decode", 33.02),
        ]
    with pytest.raises(InputError):
        records(said, ONE)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        # hand-made: no request was answered (form: tests/support/tool_outputs.py, SERVED)
        (
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     0\n"
            "Failed requests:                         32\n"
            "Maximum request concurrency:             8\n"
            "Benchmark duration (s):                  0.41\n"
            "Output token throughput (tok/s):         0.00\n",
            ("Maximum request concurrency (8)", "Benchmark duration (s) (0.41)"),
        ),
        # hand-made: a wrong result (form: the fixture hpl/residual-failed.txt)
        (
            "T/V                N    NB     P     Q               Time                 Gflops\n"
            "-----------------------------------------------------------------------------\n"
            "WR11C2R4       20000   128     1     2              99.10             5.3820e+01\n"
            "-----------------------------------------------------------------------------\n"
            "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   2.51303290e+03 ...... FAILED\n",
            ("line 3: N (20000)", "line 3: NB (128)", "line 3: Gflops (5.3820e+01)"),
        ),
        # hand-made: a command and its error (form: the fixture iperf3/refused.txt)
        (
            "$ iperf3 -c 10.0.0.9 -P 4\n"
            "iperf3: error - unable to connect to server: Connection refused\n",
            ("P (4)",),
        ),
    ],
)
def test_the_conditions_of_a_run_that_failed_are_named(tmp_path, text, named):
    said = _said(tmp_path, text, UserMetadata(("lab",), nodes=2))
    assert not [one for one in named if one not in said], said
