"""Predictions on the site: pale, behind the marks, and said to be none of the measurements."""

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.text import format_significant
from nixwulf.report import charts
from nixwulf.results.record import sealed
from record_factory import case
from site_records import foreign, site_of, value

MODEL = "llama-3.1-70b"


def frameworks(nodes, speed, **conditions):
    """A published decode of a known model on Framework Desktops."""
    of = case(nodes, "cable", "pipeline", model=MODEL, parameters={})
    link = {"name": "cable", "kind": "thunderbolt-net", "speed_gbps": 20}
    conditions = {"n_prompt": 0, "n_gen": 128, "n_depth": 0, **conditions}
    return foreign(f"on-{nodes}", [value("decode", speed, **conditions)], of=of, weights="Q4_K_M",
                   platforms=("framework-desktop",), fabric=link)  # fmt: skip


def read(site, name):
    return (site / name).read_text("utf-8")


def test_a_pale_bar_stands_behind_a_mark_and_has_its_colour(tmp_path):
    site = site_of(tmp_path, [frameworks(1, 4.5), frameworks(2, 4.3)])
    page = read(site, f"models/{MODEL}.html")
    by_nodes = page.split("By number of nodes")[1].split("</figure>")[0]
    bars = re.findall(r'<g class="band (\w+)"><title>([^<]*)</title>', by_nodes)
    assert len(bars) == 2
    assert all(re.match(r"predicted, not measured: ~[\d.]+ \(", words) for _, words in bars)
    assert {colour for colour, _ in bars} == set(re.findall(r'class="(c\d) published"', by_nodes))
    assert by_nodes.rindex('class="band') < by_nodes.index("<a class")  # what is first is behind
    assert "</span>predicted (80 %)</li>" in by_nodes
    assert "Pale bars are no" in by_nodes


def beneath(page, heading):
    """What is said below the charts of a heading, as text."""
    text = page.split(f"<h2>{heading}")[1].split("</figcaption>")[1].split("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_below_a_chart_stands_how_many_are_inside_and_why_the_slowest_is_as_fast(tmp_path):
    records = [frameworks(1, 4.5), frameworks(2, 4.3), frameworks(4, 1.0)]
    page = read(site_of(tmp_path, records), f"models/{MODEL}.html")
    text = beneath(page, "By machines")
    assert text.startswith("Predicted, not measured: 2 of 3 values lie in their interval.")
    assert re.search(
        rf"The slowest case: {MODEL}, 4 × framework-desktop, cable, pipeline, llama.cpp "
        r"\(below half of the interval\): Cheapest remedy: one node, 4.50 tok/s, measured in "
        r"these records "
        r"\(\+350.%\)\. .*Bottleneck: reading weights from memory",
        text,
    ), text
    assert text.count("Bottleneck") == 1


def test_a_note_below_one_chart_is_not_repeated_below_the_next(tmp_path):
    page = read(site_of(tmp_path, [frameworks(1, 4.5), frameworks(2, 4.3)]), f"models/{MODEL}.html")
    assert beneath(page, "By machines").count("Bottleneck") == 1
    again = beneath(page, "By number of nodes")
    assert "2 of 2 values lie in their interval" in again
    assert "Bottleneck" not in again
    assert re.search("[+]\\d+\u00a0%", page)
    assert not re.search("[+]\\d+ %", page)


def test_prompts_on_several_nodes_have_bars_and_are_explained(tmp_path):
    def prompt(nodes, speed):
        one = frameworks(nodes, speed)
        metrics = foreign("x", [value("prompt", speed, n_prompt=512, n_depth=0)])["metrics"]
        return sealed({**one, "id": f"prompt-{nodes}", "metrics": metrics})

    page = read(site_of(tmp_path, [prompt(1, 80.0), prompt(2, 90.0)]), f"models/{MODEL}.html")
    text = beneath(page, "By number of nodes")
    assert re.match(r"Predicted, not measured: \d of 2 values lie in their interval", text)
    assert "Bottleneck: computing" in beneath(page, "By machines")


def test_the_page_of_a_record_explains_it(tmp_path):
    page = read(site_of(tmp_path, [frameworks(2, 4.3)]), "records/on-2.html")
    assert "Measured beside predicted" in page
    assert re.search(rf"decode: measured {format_significant(4.3)}, predicted ~[\d.]+ \(", page)
    assert page.count("<li>Bottleneck: reading weights from memory") == 1


def test_equal_predictions_on_one_place_are_drawn_once_so_that_they_stay_pale(tmp_path):
    records = [frameworks(1, 4.5), frameworks(2, 4.3)]
    records.append(sealed({**frameworks(2, 4.1), "id": "again"}))
    page = read(site_of(tmp_path, records), f"models/{MODEL}.html")
    machines = page.split("By machines")[1].split("</figure>")[0]
    assert machines.count("<a class") == 3
    assert machines.count('class="band') == 2


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ({"speculative": True}, "Nothing is predicted. It decodes speculatively"),
        ({"n_gen": "many"}, "Nothing is predicted. The record has n_gen &#39;many&#39;, which is"),
        ({"n_depth": -1}, "Nothing is predicted. The record has n_depth -1, which is no count."),
    ],
)
def test_what_cannot_be_predicted_has_no_bar_and_its_record_says_why(tmp_path, conditions, why):
    site = site_of(tmp_path, [frameworks(1, 4.5, **conditions), frameworks(2, 4.3, **conditions)])
    page = read(site, f"models/{MODEL}.html")
    assert "By number of nodes" in page
    assert 'class="band' not in page
    assert "predicted (80 %)" not in page
    assert why in read(site, "records/on-2.html")


def test_a_record_without_a_speed_is_not_listed_as_lacking_a_prediction(tmp_path):
    one = foreign("links", [value("bandwidth", 9.0, "Gbit/s")], of=case(2, "qsfp", model="big"))
    assert "Nothing is predicted" not in read(site_of(tmp_path, [one]), "records/links.html")


@given(st.lists(st.tuples(st.floats(0, 360), st.floats(0, 250), st.just("2, tensor")), max_size=9))
def test_no_label_of_a_line_is_written_on_another(ends):
    placed = charts.side_by_side(ends)
    assert [x for x, _, _ in sorted(placed)] == sorted(x for x, _, _ in ends)
    for one, other in combinations(placed, 2):
        assert abs(one[0] - other[0]) >= 70 or abs(one[1] - other[1]) > 11.9
