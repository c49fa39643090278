"""Predictions in reports: beside what was measured, and never like it."""

import json
import re
import subprocess
import sys

import pytest

from nixwulf.perf.explain.explanation import explain
from nixwulf.report import summary_of
from nixwulf.report.lines import MetricKey
from nixwulf.report.panels import by_rtt, decode_by_rtt
from nixwulf.report.render import to_html, to_markdown
from nixwulf.results.record import sealed
from record_factory import case, metric, ok, plan, published, write_run

ONE_NODE = 500.0
SEEN = {("pipeline", "slow"): 160.0, ("tensor", "slow"): 20.0,
        ("pipeline", "quick"): 300.0, ("tensor", "quick"): 60.0}  # fmt: skip
RTT_US = {"slow": 1000.0, "quick": 50.0}


def measured(of, decode, prompt=1800.0):
    """A run of a random model in the lab."""
    lengths = {"n_prompt": 0, "n_gen": 64, "n_depth": 0}
    asked = {"n_prompt": 128, "n_gen": 0, "n_depth": 0}
    one = ok(of, [metric("decode", [decode], conditions=lengths),
                  metric("prompt", [prompt], conditions=asked)],
             rtt_us=RTT_US.get(of.get("fabric"), 1.0))  # fmt: skip
    size = {"parameters": 19667328, "bytes": 40162720}
    return sealed({**one, "model": {"name": "tiny", "random_weights": True, **size}})


@pytest.fixture
def run(tmp_path):
    """A run folder of one node, and of two by layers and tensors on two fabrics."""
    records = [measured(case(1), ONE_NODE)]
    records += [measured(case(2, link, split), speed) for (split, link), speed in SEEN.items()]
    the_plan = plan([one["case"] for one in records])
    the_plan["sweep"]["document"]["models"] = {"tiny": {"random": {"architecture": "llama"}}}
    return write_run(tmp_path, records, sealed(the_plan))


def bands(summary, name="decode"):
    """Each line with the interval of its decode, or of its prompt."""
    lines = map(summary.predicted.beside, summary.lines)
    return {line.what: line.values[name].predicted for line in lines}


def test_a_prediction_is_the_one_that_explain_gives_of_the_same_case(run):
    found = bands(summary_of(run))
    told = [one for one in explain(run)[0] if one.prediction and one.metric == "decode"]
    assert len(told) == len(SEEN)
    for one in told:
        band = found[f"2 nodes, {one.case['parallelism']}, {one.case['fabric']}"]
        assert band.text == one.prediction.text


def test_one_node_of_a_machine_without_facts_is_what_others_are_held_against(run):
    assert bands(summary_of(run))["one node"] is None


def test_a_pale_bar_says_that_it_was_not_measured_and_is_in_the_legend(run):
    summary = summary_of(run)
    page = to_html(summary)
    titles = re.findall(r"<title>([^<]*)</title>", page)
    predicted = [text for text in titles if "predicted" in text]
    assert len(predicted) == 3 * len(SEEN)  # decode by nodes and by round trip, prompts by nodes
    text = bands(summary)["2 nodes, tensor, slow"].text
    assert f"2 nodes, tensor, slow: predicted, not measured: {text} tok/s" in predicted
    assert "</span>predicted (80 %)</li>" in page
    assert "predicted (80 %)" in decode_by_rtt(summary)


def test_the_scale_holds_what_is_predicted(run):
    summary = summary_of(run)
    lines = [summary.predicted.beside(line) for line in summary.lines]
    panels = list(by_rtt(lines, MetricKey("decode", "tok/s"), ""))
    highest = max(band.high for band in bands(summary).values() if band)
    assert all(max(panel.ys) >= highest for panel in panels)


def test_page_and_markdown_say_why_once_for_each_way_to_split(run):
    summary = summary_of(run)
    drawn = [value for line in map(summary.predicted.beside, summary.lines)
             for value in line.values.values() if value.predicted]  # fmt: skip
    inside = sum(one.predicted.low <= one.typical <= one.predicted.high for one in drawn)
    for text in (to_html(summary).replace("\u00a0", " "), to_markdown(summary)):
        assert f"{inside} of 8 values lie" in text
        assert text.count("Bottleneck: ") == 2
        slowest = (
            r"2 nodes, tensor, slow \([a-z ]+\): Cheapest remedy: one node, 500 tok/s, measured"
        )
        assert re.search(rf"{slowest} .*Bottleneck: round trips of the", text)


def test_the_markdown_has_measured_beside_predicted(run):
    summary = summary_of(run)
    text = bands(summary)["2 nodes, tensor, slow"].text
    row = f"| 2 nodes, tensor, slow | decode | 20.0 | \\{text} |"
    assert row in to_markdown(summary)


def test_where_nothing_can_be_predicted_one_sentence_says_why(run):
    (run / "plan.json").unlink()
    for path in (run / "records").glob("*.json"):  # of no model that the driver makes by itself
        one = json.loads(path.read_text())
        one["model"]["parameters"] += 1
        path.write_text(json.dumps(sealed(one)))
    page = to_html(summary_of(run))
    assert page.count("Nothing is predicted: the record lacks the layers of the random model") == 1
    assert "predicted (80 %)" not in page
    assert "Bottleneck" not in page


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_prompt_is_predicted_and_explained_where_there_is_no_decode(tmp_path, nodes):
    lengths = {"n_prompt": 512, "n_gen": 0, "n_depth": 0}
    of = case(nodes, "cable", "pipeline", model="llama-3.1-70b", parameters={})
    link = {"name": "cable", "kind": "thunderbolt-net", "speed_gbps": 20}
    one = published(of, [metric("prompt", [65.0], conditions=lengths)],
                    platforms=("framework-desktop",), fabric=link)  # fmt: skip
    whole = sealed({**one, "model": {**one["model"], "weights": "Q4_K_M"}})
    summary = summary_of(write_run(tmp_path, [whole]))
    (line,) = map(summary.predicted.beside, summary.lines)
    assert line.values["prompt"].predicted is not None
    for text in (to_html(summary), to_markdown(summary)):
        assert "1 value lies in its interval" in text
        assert text.count("The slowest case:") == 1
        assert "Bottleneck: computing" in text


def test_requests_at_once_have_a_line_each(tmp_path):
    """A server's decode is that of each request, the model's of all of them together."""
    found = []
    for requests in (1, 4):
        conditions = {"n_prompt": 64, "n_gen": 32, "concurrency": requests}
        records = []
        for nodes, speed in ((1, 500.0), (2, 60.0)):
            of = case(nodes, "slow", parameters={"concurrency": requests}, benchmark="serve")
            one = ok(
                of,
                [metric("decode", [speed / requests], conditions=conditions)],
                rtt_us=900,
            )
            told = {
                "name": "tiny",
                "random_weights": True,
                "parameters": 1,
                "bytes": 40162720,
            }
            records.append(sealed({**one, "model": told}))
        the_plan = plan([one["case"] for one in records])
        the_plan["sweep"]["document"]["models"] = {"tiny": {"random": {"architecture": "llama"}}}
        folder = write_run(tmp_path / str(requests), records, sealed(the_plan))
        (told,) = (one for one in explain(folder)[0] if one.prediction)
        band = bands(summary_of(folder))["2 nodes, tensor, slow"]
        assert band.value == pytest.approx(told.prediction.value / requests)
        found.append(told.measured)
    assert found == pytest.approx([60.0, 60.0])


def test_the_model_is_not_loaded_where_there_is_no_speed_to_predict(tmp_path):
    write_run(tmp_path, [ok(case(), [metric("gflops", [9.0], unit="Gflop/s", conditions={})])])
    code = (
        "import sys; from pathlib import Path; from nixwulf.report import summary_of, render\n"
        "render.to_html(summary_of(Path(sys.argv[1])))\n"
        "assert 'nixwulf.perf.explain.explanation' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
