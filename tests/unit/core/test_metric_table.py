"""The table of metrics: an entry there is all that report, compare and site need."""

import re

import pytest

from nixwulf.core.metric import METRICS, MetricFacts, better, is_predicted, long_name, rank
from nixwulf.report.findings import findings
from nixwulf.report.render import to_html, to_markdown
from nixwulf.report.summary import summarize
from nixwulf.results.compare.comparison import compare, read_side
from nixwulf.results.compare.render import to_markdown as comparison
from nixwulf.results.store import read_folder
from record_factory import case, metric, ok, write_run
from site_records import site_of


@pytest.fixture
def quality(monkeypatch):
    """A metric whose unit says no direction, before all others."""
    facts = MetricFacts("QUAL", "quality of the text (QUAL)", "more", compared=True)
    others = dict(METRICS)
    METRICS.clear()
    METRICS.update({"quality": facts}, **others)
    yield
    METRICS.clear()
    METRICS.update(others)


def runs(folder, points):
    """Three runs of one node and one of two, with decode and the new metric."""
    return write_run(folder, [
        ok(of, [metric("decode", [9.0, 9.1, 9.2]),
                metric("quality", [p * points for p in (1, 1.01, 0.99)], unit="%")],
           repetition=run, rtt_us=20.0)
        for of in (case(model="m"), case(2, "lan", model="m")) for run in range(3)
    ])  # fmt: skip


def test_a_metric_added_to_the_table_is_known_to_report_compare_and_site(quality, tmp_path):
    low, high = runs(tmp_path / "low", 40.0), runs(tmp_path / "high", 80.0)
    summary = summarize(read_folder(high))
    (section,) = summary.sections
    assert [m.words for m in section.headline] == ["QUAL", "decode"]
    sentences = findings(section)
    assert any(one.startswith("Quality of the text (QUAL) on one node") for one in sentences)
    assert "| QUAL, % | " in to_markdown(summary)
    assert "QUAL" in to_html(summary)
    compared = comparison(
        compare(read_side(str(low), tmp_path), read_side(str(high), tmp_path)), 0.9
    )
    pairs = re.findall(r"\| (QUAL %|decode tok/s) \|.*\| ([a-z ]*) \|", compared)
    assert [name for name, _ in pairs] == ["QUAL %", "decode tok/s"] * 2
    assert pairs[0][1] == "more"
    page = (site_of(tmp_path, [ok(case(model="m"), [
        metric("quality", [80.0], unit="%"), metric("decode", [9.0])
    ])]) / "models/m.html").read_text()  # fmt: skip
    assert page.index("<h3>QUAL, %</h3>") < page.index("<h3>Decode, tok/s</h3>")


def test_what_the_table_does_not_have_is_sorted_by_its_unit():
    found = [("bandwidth", "Gbit/s"), ("latency", "us"), ("errors", ""), ("decode", "tok/s"),
             ("prompt", "tok/s"), ("ttft", "ms")]  # fmt: skip
    names = [name for name, _ in sorted(found, key=lambda one: rank(*one))]
    assert names == ["prompt", "decode", "ttft", "bandwidth", "latency", "errors"]
    assert long_name("time_to_ready") == "time to ready"
    assert better("errors", "") == ""


def test_only_speeds_of_tokens_are_predicted():
    assert is_predicted("decode", "tok/s")
    assert not is_predicted("decode", "tok/s/W")
    assert not is_predicted("bandwidth", "")
