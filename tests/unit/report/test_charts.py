"""Charts: what matplotlib draws, as an element of a page that needs no id, style or script."""

from xml.etree import ElementTree as ET

import pytest

from nixwulf.core.text import Band
from nixwulf.report.charts import Chart, Curve, DrawnPart, Mark, apart, inline, plain_svg, to_file

SVG = "{http://www.w3.org/2000/svg}"
BAND = Band(40.0, 30.0, 55.0)
MARKS = [
    Mark(1, 41.0, 0, "a run <b>", "run", "../records/a.html", spread=(2.0, 2.0), predicted=BAND),
    Mark(2, 20.0, 1, "published", "published", "../records/b.html"),
    Mark(4, 10.0, None, "imported", "imported"),
]
CHART = Chart("Decode", "tok/s", "nodes", MARKS, [Curve([(1, 41.0), (4, 10.0)], 1)], steps=True)


def drawn(chart):
    return ET.fromstring(inline(chart))  # noqa: S314 - drawn by this test


def part(root, look):
    (found,) = [one for one in root.iter() if one.get("class") == look]
    return found


def test_a_mark_leads_to_its_record_and_says_what_it_is():
    mark = part(drawn(CHART), "c0 run")
    assert (mark.tag, mark.get("href")) == (f"{SVG}a", "../records/a.html")
    assert mark.find(f"{SVG}title").text == "a run <b>"
    assert part(drawn(CHART), "quiet imported").tag == f"{SVG}g"


@pytest.mark.parametrize(
    ("look", "fill", "opacity"),
    [
        ("c0 run", "var(--c0)", None),
        ("c1 published", "var(--paper)", None),
        ("quiet imported", "var(--quiet)", "0.4"),
    ],
)
def test_runs_are_filled_published_numbers_hollow_and_imported_ones_pale(look, fill, opacity):
    path = part(drawn(CHART), look).find(f"{SVG}path")
    assert (path.get("fill"), path.get("fill-opacity")) == (fill, opacity)


def test_an_element_of_a_page_has_its_variables_and_nothing_that_the_sites_policy_forbids():
    keys = {key for element in drawn(CHART).iter() for key in element.attrib}
    assert not keys & {"id", "style", "clip-path"}
    colours = {e.get(key) for e in drawn(CHART).iter() for key in ("fill", "stroke")} - {None}
    assert all(one == "none" or one.startswith("var(--") for one in colours)


def test_a_file_has_colours_of_its_own_and_names_in_a_legend():
    text = to_file([CHART, CHART], ["one", "$two$"], "Means.")
    assert "var(" not in text
    texts = {one.text for one in ET.fromstring(text).iter(f"{SVG}text")}  # noqa: S314
    assert {"one", "$two$", "Means.", "predicted (80 %)"} <= texts


def test_strips_have_a_name_for_each_line_and_their_scale_below():
    marks = [Mark(float(x), y, 0, "x", predicted=BAND) for x, y in ((40, 0), (42, 0), (800, 1))]
    root = drawn(Chart("Decode", "tok/s", "", marks, names=("fast", "slow")))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"fast", "slow", "tok/s, log scale"} <= set(texts)
    assert root.get("aria-label") == "Decode: tok/s"
    bands = [one for one in root.iter() if one.get("class") == "band c0"]
    assert len(bands) == 2  # equal ones on one line are drawn once, so that they stay pale


@pytest.mark.parametrize(
    "style",
    [
        "font-weight: 700; font-size: 13px; font-family: 'DejaVu Sans', sans-serif",
        "font: 700 13px 'DejaVu Sans', sans-serif",
    ],
)
def test_texts_of_older_and_newer_versions_of_matplotlib_look_the_same(style):
    text = (
        f'<svg xmlns="{SVG[1:-1]}"><g id="p"><text style="{style}" x="1" y="2">T</text></g></svg>'
    )
    root = plain_svg(text.encode(), {"p": [DrawnPart("title")]}, "T")
    (found,) = root.iter("text")
    font = {"font-weight": "700", "font-size": "13px", "font-family": "'DejaVu Sans', sans-serif"}
    assert found.attrib == {"x": "1", "y": "2", **font}


def test_each_of_many_marks_of_one_look_has_its_words_and_link_at_its_place():
    marks = [Mark(x, 10.0 * x, 0, f"mark {x}", "run", f"../{x}.html") for x in (4, 1, 2)]
    found = drawn(CHART._replace(marks=marks, curves=[])).findall(f"{SVG}a")
    places = {}
    for mark in found:
        (word,), (path,) = mark.findall(f"{SVG}title"), mark.findall(f"{SVG}path")
        places[word.text, mark.get("href")] = float(path.get("transform")[10:].split()[0])
    assert sorted(places, key=places.get) == [(f"mark {x}", f"../{x}.html") for x in (1, 2, 4)]


def test_values_that_are_all_but_equal_are_not_apart():
    assert not apart([20.0, 20.0, 20.01])
    assert apart([20.0, 21.0])


def test_names_in_any_script_are_drawn_without_a_word(recwarn):
    root = drawn(CHART._replace(title="模型 \ud800\x07"))
    assert "模型" in {(one.text or "").strip() for one in root.iter(f"{SVG}text")}
    assert not recwarn.list
