"""nixwulf site: pages of records that are safe, small, complete and load nothing from elsewhere."""

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.report.charts import Chart, Mark, inline
from nixwulf.report.site import MARKER, make
from nixwulf.report.site.look import Figure, paged, within
from nixwulf.report.site.look import Page as PageOfSite
from nixwulf.results.record import sealed
from record_factory import case, failed, ok
from site_records import SOURCE, foreign, mixed, site_of, value, write

PUBLISHED = Path("results/published")
EVIL = '"><script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>../../../x'


class Page(HTMLParser):
    """What a page has: elements with their attributes, and its text."""

    def __init__(self, path):
        super().__init__()
        self.path, self.elements, self.words = path, [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def links(self):
        return [attrs["href"] for attrs in self.all("a")]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def pages_of(site):
    return [Page(path) for path in sorted(site.rglob("*.html"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return site_of(tmp_path_factory.mktemp("mixed"), mixed())


def test_every_link_inside_the_site_leads_to_a_file_of_it(site):
    for page in pages_of(site):
        for link in page.links:
            if not link.startswith("https:"):
                file = unquote(urldefrag(link).url) or page.path.name
                target = (page.path.parent / file).resolve()
                assert target.is_file(), f"{link} of {page.path}"
                assert target.is_relative_to(site)


def test_nothing_is_loaded_from_elsewhere(site):
    loading = {"src", "srcset", "poster", "data", "background", "action", "formaction"}
    for page in pages_of(site):
        for tag, attrs in page.elements:
            assert tag not in {"iframe", "object", "embed", "base", "form"} or "action" not in attrs
            assert not any(key.startswith("on") or key == "style" for key in attrs)
            loaded = [attrs[key] for key in loading & attrs.keys()]
            loaded += [attrs["href"]] if tag in {"link", "use", "image"} else []
            for address in loaded:
                assert re.fullmatch(r"(\.\./|\./)(site\.css|site\.js)|data:,", address)
    css = (site / "site.css").read_text()
    assert "url(" not in css
    assert "@import" not in css
    assert not re.search(r"https?:|//[a-z]+\.", (site / "site.js").read_text())


def test_only_web_addresses_become_links_to_elsewhere(site):
    outside = {link for page in pages_of(site) for link in page.links if "://" in link}
    assert SOURCE in outside
    assert all(re.fullmatch(r"https?://[^\s\"'<>]+", link) for link in outside)


def test_there_is_a_page_for_each_model_platform_and_kind_of_fabric_and_each_record(site):
    assert (site / "models" / "big.html").is_file()
    assert {path.name for path in (site / "platforms").iterdir()} == {
        "index.html",
        "dgx-spark.html",
        "lab.html",
    }
    assert {path.name for path in (site / "fabrics").iterdir()} == {
        "index.html",
        "ethernet.html",
        "roce.html",
    }
    assert len(list((site / "records").glob("*.html"))) == len(mixed())


def test_the_record_behind_a_value_is_the_file_that_was_given(site):
    given = {json.dumps(one, sort_keys=True) for one in mixed()}
    copied = {
        json.dumps(json.loads(path.read_text()), sort_keys=True)
        for path in (site / "records").glob("*.json")
    }
    assert copied == given
    for page in (site / "records").glob("*.html"):
        assert f"./{page.stem}.json" in Page(page).links


def test_a_row_says_kind_conditions_version_unit_and_source(site):
    rows = (site / "index.html").read_text().split("<tr>")
    (row,) = [row for row in rows if "records/spark-2.html" in row and "<td>published" in row][-1:]
    text = re.sub(r"<[^>]+>", " ", row)
    for words in ("big", "q4_0", "decode", "40.0", "tok/s", "dgx-spark", "qsfp (rdma)", "tensor"):
        assert words in text
    for words in ("llama.cpp", "b1234", "generate 128, depth 0", "published", "Somebody"):
        assert words in text


def test_failures_are_rows_and_counts_without_a_speed(site):
    page = Page(site / "models" / "big.html")
    assert "1 record more did not end ok: 1 hang" in page.text
    assert "Without a number" in page.text
    assert "Silence for 120 s." in page.text
    index = Page(site / "index.html").text
    assert "no number" in index


def charts_of(page):
    """By its label, the number of lines of each chart over something."""
    found = re.findall(r'<svg [^>]*aria-label="([^"]*)">(.*?)</svg>', page.read_text(), re.S)
    return {label: chart.count('class="line ') for label, chart in found if " by " in label}


def test_a_model_has_charts_by_nodes_latency_and_bandwidth(site):
    charts = charts_of(site / "models" / "big.html")
    assert charts["Decode: tok/s; generate 32, depth 0 by nodes"] == 2  # one for each fabric
    rtt = "Decode: tok/s; generate 32, depth 0 by measured round trip, µs"
    assert charts[rtt] == 2  # one for each number of nodes above one
    assert any("by measured bandwidth" in label for label in charts)


def test_models_stand_side_by_side_on_a_platforms_page_only_where_their_work_is_the_same(tmp_path):
    def record(model, speed, **conditions):
        of = case(model=model, parameters={})
        return foreign(f"{model}-{speed:g}", [value("decode", speed, **conditions)], of=of)

    short = [record(model, 20.0 + i, n_gen=32, depth=0) for i, model in enumerate(("a", "b"))]
    long = [record("c", 12.0, n_gen=32, depth=32768)]
    text = (site_of(tmp_path, short + long) / "platforms" / "dgx-spark.html").read_text()
    (chart,) = re.findall(r'<svg [^>]*aria-label="Decode: tok/s; [^"]*">.*?</svg>', text)
    names = re.findall(r"<text [^>]*>(. q4_0)<", chart)
    assert names == ["b q4_0", "a q4_0"]  # the fastest on top


def test_speed_over_watts_is_drawn_where_a_record_has_both(tmp_path):
    records = [
        foreign(
            f"hpl-{nodes}",
            [value("gflops", 500.0 * nodes, "Gflop/s"), value("power", 120.0 * nodes, "W")],
            of={"id": "0" * 12, "benchmark": "hpl", "nodes": nodes, "parameters": {}}
            | ({"fabric": "lan", "transport": "tcp"} if nodes > 1 else {}),
        )
        for nodes in (1, 2)
    ]
    charts = charts_of(site_of(tmp_path, records) / "platforms" / "dgx-spark.html")
    assert "Gflops, hpl: Gflop/s by power of all nodes, W" in charts


_KEYWORDS = {"weights", "platforms", "kind", "version"}


def test_a_line_over_latency_passes_the_means_of_the_runs_of_each_fabric(tmp_path):
    records = [
        ok(
            case(2, fabric, model="big"),
            {"decode": [speed + run]},
            repetition=run,
            rtt_us=rtt + 50 * run,
        )
        for fabric, rtt, speed in (("cable", 20, 100), ("office", 300, 50))
        for run in range(3)
    ]
    text = (site_of(tmp_path, records) / "models" / "big.html").read_text()
    (line,) = re.findall(r'<g class="line [^"]*"><path d="([^"]*)"', text)
    assert line.count("L") == 1


def test_watts_and_prices_stand_beside_the_speed_with_what_it_was_divided_by(tmp_path):
    metrics = [value("decode", 20.0, n_gen=128), value("power", 80.0, "W", n_gen=128)]
    site = site_of(tmp_path, [foreign("one", metrics)])
    index = Page(site / "index.html").text
    assert "per W" in index
    assert "0.250 of 80.0 W" in index  # 20 tok/s over 80 W
    assert "5.00 of 3,999 US$" in index  # 20 tok/s over the platform's price
    record = Page(site / "records" / "one.html").text
    assert "decode, tok/s 20.0 80.0 0.250 4.00 3999 0.00500" in record
    assert "Watts: beside the speed. Price: platform facts: https" in record


@pytest.mark.parametrize(
    "other",
    [
        {"depth": 4096},
        {"n_gen": 64},
        {"weights": "q8_0"},
        {"engine": "vllm"},
        {"platforms": ("mac-studio-m3-ultra",)},
        {"kind": "imported"},
        {"version": "b1235"},
        {"threads": 8},
    ],
    ids=lambda other: next(iter(other)),
)
def test_no_line_joins_values_of_different_conditions(tmp_path, other):
    def record(nodes, **changes):
        conditions = {"n_gen": 128, "depth": 0}
        conditions |= {k: v for k, v in changes.items() if k in {"n_gen", "depth", "threads"}}
        engine = changes.get("engine", "llama.cpp")
        keywords = {k: v for k, v in changes.items() if k in _KEYWORDS}
        return foreign(
            f"r{nodes}",
            [value("decode", 20.0 * nodes, **conditions)],
            of=case(nodes, "qsfp", model="big", engine=engine, parameters={}),
            **keywords,
        )

    alike = site_of(tmp_path / "alike", [record(1), record(2)])
    assert list(charts_of(alike / "models" / "big.html").values()) == [1]
    different = site_of(tmp_path / "different", [record(1), record(2, **other)])
    assert sum(charts_of(different / "models" / "big.html").values()) == 0


def test_values_that_a_source_does_not_tell_apart_are_not_joined(tmp_path):
    of = {nodes: case(nodes, "qsfp", model="big", parameters={}) for nodes in (1, 2)}
    records = [
        foreign("one", [value("decode", 20.0)], of=of[1]),
        foreign("two", [value("decode", 30.0)], of=of[2]),
        foreign("more", [value("decode", 12.0)], of=of[2]),
    ]
    assert charts_of(site_of(tmp_path, records) / "models" / "big.html") == {}


def test_markup_and_paths_in_names_are_text_and_stay_in_the_folder(tmp_path):
    evil = [
        foreign(
            f"evil-{nodes}",
            [value("decode", 1.0 + nodes, note=EVIL), value("prompt", 2.0, **{EVIL: EVIL})],
            of=case(nodes, EVIL, model=EVIL, engine=EVIL, parameters={"operation": EVIL}),
            platforms=(EVIL, "../x"),
            weights=EVIL,
            version=EVIL,
            machine=EVIL,
            fabric={"name": EVIL, "kind": EVIL, "speed_gbps": float(nodes)},
        )
        for nodes in (1, 2, 4)
    ]
    broken = failed(case(2, EVIL, model=EVIL), reason=EVIL, hint=EVIL, log_tail=EVIL)
    site = site_of(tmp_path, [*evil, broken])
    assert {path.name for path in tmp_path.iterdir()} == {"results", "site"}
    assert {path.name for path in site.iterdir() if path.is_dir()} == {
        "models",
        "platforms",
        "fabrics",
        "records",
    }
    for page in pages_of(site):
        assert len(page.all("script")) == 1
        assert not page.all("img")
        assert not any("onerror" in attrs for _, attrs in page.elements)
        assert all(
            (page.path.parent / link).resolve().is_relative_to(site)
            for link in map(unquote, page.links)
            if not link.startswith("https:")
        )
    assert any(EVIL[:60] in page.text for page in pages_of(site))
    (model,) = (path for path in (site / "models").iterdir() if path.name != "index.html")
    text = model.read_text()
    assert text.count("<svg") >= 4
    assert "<script>" not in text
    assert "<img" not in text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "JAVASCRIPT:x"]
)
def test_a_source_that_is_no_web_address_is_no_link(tmp_path, url, monkeypatch):
    monkeypatch.setattr("nixwulf.results.record.validate", lambda document, source: None)
    site = site_of(tmp_path, [foreign("one", [value("decode", 1.0)], url=url)])
    assert not any(url in link for page in pages_of(site) for link in page.links)


def test_names_that_differ_in_case_have_pages_of_their_own(tmp_path):
    records = [
        foreign(f"r{number}", [value("decode", 1.0 + number)], of=case(model=name))
        for number, name in enumerate(("Big", "big", "BIG", "big!"))
    ]
    site = site_of(tmp_path, records)
    names = {path.name.lower() for path in (site / "models").iterdir()}
    assert len(names) == 5  # and index.html


def test_runs_of_one_case_in_two_run_folders_both_stay(tmp_path):
    first, second = (ok(case(), {"decode": [speed]}) for speed in (1.0, 2.0))
    second["started"] = "2026-02-02T00:00:00Z"
    site = site_of(tmp_path, [first, sealed(second)])
    assert len(list((site / "records").glob("*.json"))) == 2


def test_the_order_of_the_records_does_not_change_a_byte(tmp_path):
    one = site_of(tmp_path / "one", mixed())
    other = site_of(tmp_path / "other", mixed()[::-1])
    files = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    assert files == {path.relative_to(other) for path in other.rglob("*") if path.is_file()}
    assert all((one / file).read_bytes() == (other / file).read_bytes() for file in files)


@pytest.mark.slow
def test_pages_stay_under_500_kb_however_many_values_a_model_has(tmp_path):
    records = [
        foreign(
            f"r{number}",
            [value("decode", 1.0 + number + i / 10, n_gen=128, depth=512 * i) for i in range(10)],
            of=case(1 + number % 4, "a-fabric", model="a-model-of-which-there-is-much"),
        )
        for number in range(150)
    ]
    site = site_of(tmp_path, records)
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 500_000
    parts = sorted((site / "models").glob("a-model*.html"))
    assert len(parts) > 1
    linked = {link for page in map(Page, parts) for link in page.links if "/records/" in link}
    assert len(linked) == 150
    assert all(f"./{part.name}" in Page(parts[0]).links for part in parts[1:])
    whole = sum(path.read_text().count("<tr>") - 1 for path in site.glob("index*.html"))
    assert whole >= 1500


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="results/ is not beside these tests")
def test_the_site_of_all_published_records_is_small_and_takes_seconds(tmp_path):
    before = time.process_time()
    made = make([PUBLISHED], tmp_path / "site")
    assert time.process_time() - before < 60
    assert made.records == len(list((tmp_path / "site" / "records").glob("*.json"))) > 300
    assert max(path.stat().st_size for path in (tmp_path / "site").rglob("*.html")) < 500_000
    assert all(page.links for page in pages_of(tmp_path / "site"))


def test_long_names_and_long_records_keep_their_page_small(tmp_path):
    long = failed(case(12, model="m" * 50_000), reason="r" * 100_000, log_tail="log\n" * 200_000)
    for node in long["nodes"]:
        node["facts"] = {f"fact {number}": "f" * 5000 for number in range(100)}
    records = [sealed(long), ok(case(model="m" * 50_000), {"decode": [1.0] * 50_000})]
    records.append(foreign("wide", [value("decode", 1.0)], machine="x" * 600_000))
    site = site_of(tmp_path, records)
    assert max(path.stat().st_size for path in site.rglob("*.html")) < 500_000


def test_a_page_draws_as_many_charts_as_it_has_room_for_and_says_so():
    chart = Chart("", "tok/s", "nodes", [Mark(1.0, 2.0, 0, "one"), Mark(2.0, 3.0, 0, "two")])
    size = len(inline(chart).encode())
    charts = (chart,) * 3
    figures = [
        Figure("one", "", (), charts, ((), (), ()), ""),
        Figure("two", "", (), charts[:1], ((),), ""),
    ]
    (figure,) = within(figures, 2 * size + size // 2)
    assert figure.drawn == (inline(chart),) * 2
    assert figure.note == "1 more chart would belong here; the table has their values."


def test_rows_are_split_over_pages_by_their_bytes_and_none_is_lost():
    tables = [("one", ["a" * 40] * 7), ("two", ["b" * 10] * 3), ("three", ["c" * 300])]
    pages = paged("a", tables, limit=100)
    kept = [row for page in pages for row in page.rows]
    assert kept == [row for _, rows in tables for row in rows]
    assert all(sum(map(len, page.rows)) <= 100 or len(page.rows) == 1 for page in pages)
    assert [page.file for page in pages[:2]] == ["a.html", "a~2.html"]
    assert paged("a", []) == [PageOfSite("a.html", [])]


def test_a_folder_that_is_no_site_is_refused_and_left_alone(tmp_path):
    results = write(tmp_path / "results", mixed()[:1])
    out = tmp_path / "home"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"holds files that 'nixwulf site' did not make"):
        make([results], out)
    assert (out / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("place", ["results/site", "results", "results/records"])
def test_a_site_among_the_records_is_refused(tmp_path, place):
    results = write(tmp_path / "results", mixed()[:1])
    with pytest.raises(InputError, match="whose records would then be read twice"):
        make([results], tmp_path / place)


def test_records_inside_an_old_site_are_not_replaced_by_the_new_one(tmp_path):
    out = site_of(tmp_path, mixed()[:1])
    mine = write(out / "mine", mixed()[:1])
    with pytest.raises(InputError, match="lies in .*/site', and all of a site's folder is repl"):
        make([mine], out)
    assert list((mine / "records").iterdir())


def test_a_file_or_a_link_is_refused(tmp_path):
    results = write(tmp_path / "results", mixed()[:1])
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(InputError, match="is not a folder"):
            make([results], tmp_path / name)


def test_a_new_site_replaces_the_old_one_as_a_whole(tmp_path):
    results = write(tmp_path / "results", mixed()[:1])
    out = tmp_path / "site"
    make([results], out)
    (out / "old.html").write_text("old")
    make([results], out)
    assert not (out / "old.html").exists()
    assert (out / MARKER).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


def test_a_build_that_fails_leaves_the_old_site_and_nothing_beside_it(tmp_path, monkeypatch):
    results = write(tmp_path / "results", mixed()[:1])
    out = tmp_path / "site"
    make([results], out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nixwulf.report.site.shutil.copyfile", full)
    with pytest.raises(InputError, match="No space left on device"):
        make([results], out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


def test_the_command_names_the_page_and_warns_of_runs_that_were_not_scrubbed(tmp_path):
    private = ok(case(), {"decode": [1.0]})
    private["cluster"]["lab"] = False
    results = write(tmp_path / "results", [sealed(private)])
    done = CliRunner().invoke(cli, ["site", str(results), "--out", str(tmp_path / "site")])
    assert done.exit_code == 0
    assert f"{tmp_path / 'site' / 'index.html'}\n" in done.output
    assert "1 run in it may hold addresses and host names" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["nowhere", "--out", "site"], "nowhere"), (["."], "Missing option '--out'")],
)
def test_a_wrong_call_is_a_sentence_and_exit_code_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["site", *arguments])
    assert done.exit_code == 2
    assert words in done.output
    assert not Path("site").exists()
