"""Reports of numbers that are no runs: no samples, no times, no nodes, no commands."""

import io
import json
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from nixwulf.cli.records import report
from nixwulf.report import render as texts
from nixwulf.report import summary_of
from nixwulf.report.render import to_html, to_markdown
from nixwulf.results import record
from record_factory import case, link, machines, make_record, metric, ok, published, write_run

HOSTILE = "<script>alert('x')</script>|`../../*_\"'{{7*7}}"


@pytest.fixture
def folder(tmp_path):
    watts = metric("power", [100.0], unit="W", conditions={})
    decode = metric("decode", [20.0], conditions={})
    return write_run(
        tmp_path / "published",
        [
            published(case(1), [decode, watts]),
            published(case(2), [metric("decode", [30.0], conditions={})]),
            published(machines("iperf3", 2, {}), [metric("bandwidth", [9.4], unit="Gbit/s")]),
        ],
    )


def printed(folder, width=100):
    out = io.StringIO()
    texts.to_terminal(summary_of(folder), Console(file=out, width=width, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("form", ["html", "md", "csv", "json"])
def test_every_form_of_the_report_can_be_made(folder, form):
    done = CliRunner().invoke(report, [str(folder), "--format", form])
    assert (done.exit_code, done.exception) == (0, None)


def test_it_counts_records_says_where_they_are_from_and_claims_no_samples(folder):
    summary = summary_of(folder)
    page, text = to_html(summary), to_markdown(summary)
    for shown in (page, text, printed(folder)):
        assert "3 records of 3 cases: 3 ok" in shown
        assert "samples" not in shown
        assert "None" not in shown
        assert "nan" not in re.sub(r"<svg.*?</svg>", "", shown, flags=re.DOTALL)
    assert (
        'href="https://example.org/numbers" rel="noopener noreferrer external">Somebody</a>' in page
    )
    assert "Each point is what its source gives" in page
    assert "| Published | Somebody |" in text
    assert "as their sources give them" in text


def test_watts_and_dollars_stand_beside_what_they_are_computed_from(folder):
    for shown in (to_html(summary_of(folder)), to_markdown(summary_of(folder)), printed(folder)):
        cells = re.sub(r"<[^>]*>|\|", " ", shown)
        assert re.search(r"one node +decode, tok/s +20.0 +100 +0.200 +5.00 +3999 +0.00500", cells)
        assert "Watts: beside the speed." in shown
        assert "Price: platform facts: https" in " ".join(shown.split())
        assert re.search(r"2 nodes, tensor, lan +decode, tok/s +30.0 +7998 +0.00375", cells)


def test_a_run_without_watts_and_price_has_no_such_table(tmp_path):
    folder = write_run(tmp_path, [make_record()])
    for shown in (to_html(summary_of(folder)), to_markdown(summary_of(folder)), printed(folder)):
        assert "US$" not in shown


def test_a_speed_per_watt_of_a_run_stands_with_its_watts_and_nowhere_else(tmp_path):
    entry = {"metric": 1, "name": "decode", "source": "wall", "watts": 50.0, "unit": "tok/s/W"}
    power = {"efficiency": [{**entry, "value": 8.3, "joules_per_token": 0.12}]}
    folder = write_run(tmp_path, [record.sealed({**make_record(), "power": power})])
    for shown in (to_html(summary_of(folder)), to_markdown(summary_of(folder)), printed(folder)):
        assert "8.30" in shown
        assert "wall watt" not in shown


def test_published_numbers_of_one_case_are_distinguished_by_platform_weights_and_version(tmp_path):
    one = published(case(1), {"decode": [20.0]}, id="one")
    model, engine = {**one["model"], "weights": "q4_0"}, {**one["engine"], "version": "b2"}
    other = record.sealed({**one, "id": "other", "model": model, "engine": engine})
    text = to_markdown(summary_of(write_run(tmp_path, [one, other])))
    assert "weights q4\\_0, version b2" in text


def test_published_numbers_and_runs_can_lie_in_one_folder(folder):
    write_run(folder / "mine", [ok(case(2), {"decode": [9.0]})])
    assert "4 runs of 4 cases" in printed(folder)


def test_a_fabric_has_what_its_source_says(tmp_path):
    fabric = {"name": "usb4", "kind": "usb4-rdma", "stack": "OdinLink"}
    one = published(case(2), {"decode": [20.0]}, fabric={**fabric, "links": [link(9.0, 40.0)]})
    bare = published(case(4), {"decode": [20.0]}, fabric={"name": "office"})
    text = to_markdown(summary_of(write_run(tmp_path, [one, bare])))
    assert "| usb4 | usb4-rdma, OdinLink | 9.0 µs | 40.0 Gbit/s |" in text
    assert "| office |  | not measured | not measured |" in text


def hostile():
    one = published(case(2, HOSTILE, model=HOSTILE, engine=HOSTILE), {"decode": [20.0]})
    return record.sealed(
        {
            **one,
            "cluster": {**one["cluster"], "name": HOSTILE, "platforms": [HOSTILE]},
            "source": {"name": HOSTILE, "url": "https://example.org/'onmouseover='alert(1)"},
            "model": {**one["model"], "name": HOSTILE, "weights": HOSTILE},
            "engine": {"name": HOSTILE, "version": HOSTILE},
        }
    )


def test_html_and_paths_in_names_become_no_markup_and_no_file(tmp_path):
    other = record.sealed({**hostile(), "id": "other", "model": {"name": HOSTILE}})
    folder = write_run(tmp_path / "run", [hostile(), other])
    page = to_html(summary_of(folder))
    assert "<script" not in page
    assert "49" not in page
    assert not re.search(r"<[^>]*\son\w+=", page.replace("&#39;", ""))
    before = sorted(tmp_path.rglob("*"))
    assert CliRunner().invoke(report, [str(folder)]).exit_code == 0
    made = {path for path in tmp_path.rglob("*") if path not in before}
    assert made == {folder / "report.html", folder / "report.md"}
    assert not re.search(r"(?<!\\)<", (folder / "report.md").read_text())


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://x", 'https://x" onclick="y'])
def test_a_source_is_an_https_address(tmp_path, url):
    one = record.sealed({**hostile(), "source": {"name": "x", "url": url}})
    (tmp_path / "a.json").write_text(json.dumps(one))
    done = CliRunner().invoke(report, [str(tmp_path)])
    assert done.exit_code == 2
    assert "source.url is" in done.output
