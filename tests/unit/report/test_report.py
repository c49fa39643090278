import html
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib
import pytest
from rich.console import Console

from nixwulf.core.errors import InputError
from nixwulf.report import summary_of, write
from nixwulf.report.findings import fabrics, findings
from nixwulf.report.panels import decode_by_rtt, plots
from nixwulf.report.render import to_html, to_markdown, to_terminal
from nixwulf.report.summary import summarize
from nixwulf.results.record import sealed
from nixwulf.results.store import read_folder
from record_factory import case, failed, metric, ok, plan, write_run

ONE = case(1)
NEAR, FAR = case(2, "near"), case(2, "far")
HUNG = case(4, "far")
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('x')</script>|`*_"


@pytest.fixture
def records():
    """One node, two fabrics with different round trips, and a case that hung."""
    return [
        *(ok(ONE, {"prompt": [2600.0], "decode": [400.0, 420.0]}, repetition=r) for r in range(2)),
        *(ok(NEAR, {"decode": [79.0, 81.0]}, repetition=r, rtt_us=20.0) for r in range(2)),
        *(
            ok(FAR, {"decode": [19.0, 21.0]}, repetition=r, rtt_us=1020.0, asked={"delay_us": 500})
            for r in range(2)
        ),
        failed(
            HUNG,
            "hang",
            reason="No output for 60 s.",
            hint="Look at the worker's log.",
            log_tail="\x1b[31mlast words\x1b[0m",
            rtt_us=1040.0,
        ),
    ]


@pytest.fixture
def summary(tmp_path, records):
    return summarize(read_folder(write_run(tmp_path, records)))


def printed(summary, width=100):
    out = io.StringIO()
    to_terminal(summary, Console(file=out, width=width))
    return out.getvalue()


def line_of(summary, of):
    (line,) = [line for line in summary.lines if line.case == of["id"]]
    return line


def test_a_folder_of_records_only_is_enough(tmp_path, records):
    write_run(tmp_path, records)
    page = write(summary_of(tmp_path))
    assert page == tmp_path / "report.html"
    assert "410 ± 12" in page.read_text()
    assert "410 ± 12" in (tmp_path / "report.md").read_text()


def test_records_lying_loose_in_a_folder_are_read(tmp_path, records):
    write_run(tmp_path, records)
    assert len(read_folder(tmp_path / "records").entries) == len(records)


def test_a_report_says_how_many_planned_runs_have_a_record(tmp_path, records):
    the_plan = plan([ONE, NEAR, FAR, HUNG, case(4, "near")], repetitions=2)
    summary = summarize(read_folder(write_run(tmp_path, records, the_plan)))
    assert summary.counts == ("7 runs of 4 cases: 6 ok, 1 hang; 7 of 10 planned runs have a record")
    assert line_of(summary, HUNG).outcome == "1 hang, 1 to come"
    assert line_of(summary, case(4, "near")).outcome == "not run"


def test_what_the_plan_left_out_is_shown_with_the_reason(tmp_path, records):
    same_everywhere = {"model": "tiny", "parameters": {"n_prompt": 128}}
    points = [{"nodes": n, "parallelism": "tensor", **same_everywhere} for n in (8, 16)]
    left_out = [{"case": point, "reason": "the cluster has 4 nodes"} for point in points]
    the_plan = plan([ONE, NEAR, FAR, HUNG], 2, left_out, "What is far costs.")
    summary = summarize(read_folder(write_run(tmp_path, records, the_plan)))
    for text in (to_html(summary), to_markdown(summary)):
        assert "the cluster has 4 nodes" in text
        assert "nodes 8, 16; parallelism tensor" in text
        assert "parallelism tensor; model" not in text
        assert "What is far costs." in text


def test_findings_name_best_and_slowest_and_what_the_round_trip_costs(summary):
    sentences = findings(summary.sections[0])
    assert sentences[0] == (
        "Decode on one node: 410 tok/s. No case of several nodes reaches that: the best, 2 nodes "
        "in tensor over near (round trip 20 µs), gives 80.0 tok/s (20 % of it); the slowest, "
        "2 nodes in tensor over far (round trip 1.02 ms), 20.0 tok/s (4.9 % of it)."
    )
    # 1/20 - 1/80 s = 37.5 ms more a token over 1 ms more a round trip
    assert sentences[1] == (
        "Decode in tensor on 2 nodes falls from 80.0 to 20.0 tok/s (by 75 %) as the measured round "
        "trip grows from 20 µs to 1.02 ms: a token takes 37.5 ms longer, 38 times the added round "
        "trip."
    )


def test_a_change_within_the_spread_is_not_called_a_fall(tmp_path):
    records = [
        ok(NEAR, {"decode": [80.0, 100.0]}, rtt_us=20.0),
        ok(FAR, {"decode": [78.0, 98.0]}, rtt_us=900.0),
    ]
    (section,) = summarize(read_folder(write_run(tmp_path, records))).sections
    sentences = findings(section)
    assert "stays within one standard deviation (90.0 and 88.0 tok/s)" in sentences[1]


def test_more_than_linear_is_flagged_as_suspect(tmp_path):
    records = [ok(ONE, {"decode": [10.0]}), ok(NEAR, {"decode": [21.0]})]
    summary = summarize(read_folder(write_run(tmp_path, records)))
    assert line_of(summary, NEAR).values["decode"].above_linear
    assert "105 % !" in to_markdown(summary)
    assert "suspect that one node throttled" in to_html(summary)
    assert "105 % !" in printed(summary)


def test_runs_that_fail_alike_are_one_failure(tmp_path):
    records = [failed(NEAR, repetition=r) for r in range(3)] + [failed(FAR, "timeout")]
    summary = summarize(read_folder(write_run(tmp_path, records)))
    assert [(f.outcome, len(f.entries)) for f in summary.failures] == [
        ("failed", 3),
        ("timeout", 1),
    ]


def test_every_form_gives_units_counts_and_reasons(summary):
    for text in (to_html(summary), to_markdown(summary), printed(summary)):
        assert "tok/s" in text
        assert "RTT" in text
        assert "410 ± 12" in text
        assert "No output for 60 s." in text
        assert "7 runs of 4 cases: 6 ok, 1 hang" in text
    assert "4 (2)" in to_markdown(summary)
    assert "2 to 4 samples in 2 runs" in to_html(summary)


def test_a_page_shows_what_was_asked_and_what_was_measured(summary):
    page = to_html(summary)
    assert "500 µs one way, by switch" in page
    assert "1020 µs" in page


def test_the_terminal_keeps_to_80_columns(summary):
    assert max(map(len, printed(summary, 80).splitlines())) <= 80


def test_output_to_a_pipe_has_no_colours(tmp_path, records, capsys):
    write_run(tmp_path, records)
    to_terminal(summary_of(tmp_path))
    out = capsys.readouterr().out
    assert "tok/s" in out
    assert "\x1b" not in out


def test_texts_of_a_record_cannot_become_html_or_markdown(tmp_path):
    hostile = {"model": f"{HOSTILE}<img src=x>", "fabric": HOSTILE}
    near = case(2, **hostile)
    records = [
        ok(case(1, model=hostile["model"]), {"decode": [9.0]}),
        ok(near, {"decode": [8.0]}),
        failed(near, reason=HOSTILE, hint=HOSTILE, log_tail=HOSTILE, repetition=1),
    ]
    summary = summarize(read_folder(write_run(tmp_path, records)))
    page = to_html(summary)
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    markdown = to_markdown(summary)
    assert not re.search(r"(?<!\\)<", markdown)
    table = [line for line in markdown.splitlines() if line.startswith("| 2 tensor |")]
    head = next(line for line in markdown.splitlines() if line.startswith("| nodes |"))
    assert len(re.findall(r"(?<!\\)\|", table[0])) == head.count("|")


def test_control_characters_of_logs_do_not_reach_a_reader(summary):
    for text in (to_html(summary), printed(summary)):
        assert "\x1b" not in text
    assert "last words" in to_html(summary)


class Resources(HTMLParser):
    """The addresses that a page makes a browser load or link to."""

    def __init__(self):
        super().__init__()
        self.loaded, self.linked, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.loaded += [values[key] for key in ("src", "srcset", "data", "poster") if key in values]
        self.ids += [values["id"]] if "id" in values else []
        if "href" in values:
            (self.linked if tag == "a" else self.loaded).append(values["href"])


def test_a_page_loads_nothing_and_links_to_records_and_raw_output(tmp_path, records):
    page = write(summary_of(write_run(tmp_path, records))).read_text()
    found = Resources()
    found.feed(page)
    assert set(found.loaded) == {"data:,"}
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page
    files = {link for link in found.linked if link.startswith("./records/")}
    assert {(tmp_path / link).name for link in files} == {f"{r['id']}.json" for r in records}
    assert all((tmp_path / link).is_file() for link in files)
    assert {link for link in found.linked if link not in files} == {
        f"./{raw}" for record in records for raw in record["raw"]
    }


def plots_of(page):
    """The svg elements of a page, parsed: they are well-formed XML."""
    texts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    return [ElementTree.fromstring(text) for text in texts]  # noqa: S314 - drawn by this test


def test_plots_say_in_words_what_they_show(summary):
    plots = plots_of(to_html(summary))
    assert [plot.get("aria-label") for plot in plots] == [
        "Decode, tensor: tok/s by nodes",
        "Decode, tensor: tok/s by measured round trip, µs",
    ]
    for plot in plots:
        titles = [element.text for element in plot.iter(f"{SVG}title")]
        assert (
            "2 nodes, tensor, far, round trip 1020 µs: 20.0 ± 1.2 tok/s, 4 samples in 2 runs"
            in (titles)
        )
        texts = {element.text for element in plot.iter(f"{SVG}text")}
        assert {"Decode, tensor", "tok/s, log scale", "one node, 410"} <= texts


def test_ids_of_a_page_are_unique_and_its_plots_need_none(summary):
    page = to_html(summary)
    found = Resources()
    found.feed(page)
    assert len(found.ids) == len(set(found.ids))
    for plot in plots_of(page):
        assert not any(element.get("id") for element in plot.iter())
        assert not list(plot.iter(f"{SVG}use"))


def test_plots_take_their_colours_from_the_page_and_leave_its_style_alone(summary):
    for plot in re.findall(r"<svg.*?</svg>", to_html(summary), re.DOTALL):
        assert "var(--c0)" in plot
        assert not re.search(r"#[0-9a-f]{6}\b", plot)
        assert "style" not in plot


def test_the_same_records_make_the_same_page(summary):
    assert to_html(summary) == to_html(summary)


def test_a_page_reads_no_settings_of_matplotlib_and_leaves_them_alone(summary):
    page = to_html(summary)
    with matplotlib.rc_context({"axes.linewidth": 9, "font.size": 40}):
        assert to_html(summary) == page
        assert matplotlib.rcParams["font.size"] == 40


def test_a_name_that_looks_like_mathematics_is_drawn_as_it_is(tmp_path):
    records = [
        ok(case(2, name), {"decode": [9.0]}, rtt_us=rtt)
        for name, rtt in (("$\\frac$", 20.0), ("a\"b'c", 90.0))
    ]
    summary = summarize(read_folder(write_run(tmp_path, records)))
    svg = ElementTree.fromstring(decode_by_rtt(summary))  # noqa: S314 - drawn by this test
    texts = {element.text for element in svg.iter(f"{SVG}text")}
    assert {"$\\frac$ 20 µs", "a\"b'c 90 µs"} <= texts


def lowest(plot, colour):
    """How far down the plot the lines of a colour reach, in points."""
    drawn = [e.get("d") for e in plot.iter(f"{SVG}path") if e.get("stroke") == colour]
    return max(float(y) for y in re.findall(r"[ML] \S+ (\S+)", " ".join(drawn)))


def test_an_error_bar_ends_at_the_bottom_of_a_logarithmic_scale(tmp_path):
    records = [
        ok(NEAR, {"decode": [1.0, 400.0]}, rtt_us=20.0),
        ok(FAR, {"decode": [1.0, 1.0]}, rtt_us=900.0),
        ok(HUNG, {"decode": [1.0, 1.0]}, rtt_us=900.0),
    ]
    plots = plots_of(to_html(summarize(read_folder(write_run(tmp_path, records)))))
    assert len(plots) == 2
    for plot in plots:
        assert lowest(plot, "var(--c0)") == pytest.approx(lowest(plot, "var(--quiet)"), abs=0.1)


def test_without_any_ok_run_a_page_says_so_and_has_no_plot(tmp_path):
    summary = summarize(read_folder(write_run(tmp_path, [failed(NEAR)])))
    page = to_html(summary)
    assert "No run ended ok" in page
    assert "viewBox" not in page
    assert "llama-bench ended with 134." in printed(summary)


def test_one_record_makes_a_page(tmp_path):
    summary = summarize(read_folder(write_run(tmp_path, [ok(ONE, {"decode": [410.0]})])))
    assert "Decode on one node: 410" in to_html(summary)


def test_depths_of_one_benchmark_are_distinguished(tmp_path):
    record = ok(ONE, {"decode": [410.0]})
    metrics = [*record["metrics"], metric("decode", [300.0], depth=4096)]
    summary = summarize(read_folder(write_run(tmp_path, [sealed({**record, "metrics": metrics})])))
    assert {line.variant: line.values["decode"].mean for line in summary.lines} == {
        "n_depth 0": 410.0,
        "n_depth 4096": 300.0,
    }


def test_an_axis_of_numbers_and_a_word_has_its_numbers_on_a_curve(tmp_path):
    depths = ("deep", 0, 512, 4096, 8192)
    metrics = [metric("decode", [300.0], depth=depth) for depth in depths]
    record = sealed({**ok(ONE, {"decode": [410.0]}), "metrics": metrics})
    page = to_html(summarize(read_folder(write_run(tmp_path, [record]))))
    assert "n_depth 8192: 300 tok" in page
    assert "deep" in page


def test_a_large_sweep_stays_a_small_page(tmp_path):
    cases = [
        case(nodes, f"fabric{index}", parallelism)
        for nodes in (2, 4, 8)
        for index in range(12)
        for parallelism in ("pipeline", "tensor")
    ]
    records = [
        ok(one, {"decode": [100.0 / index], "prompt": [900.0]}, repetition=run, rtt_us=20.0 * index)
        for index, one in enumerate(cases, 1)
        for run in range(3)
    ]
    page = to_html(summarize(read_folder(write_run(tmp_path, records))))
    assert len(page) < 500_000


def test_a_folder_without_a_record_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no record"):
        read_folder(tmp_path)


def test_a_folder_with_a_broken_record_is_refused_by_name(tmp_path, records):
    write_run(tmp_path, records)
    (tmp_path / "records" / "zzz.json").write_text("{")
    with pytest.raises(InputError, match=r"zzz\.json: line 1: not JSON"):
        read_folder(tmp_path)


def browse(page, folder):
    """The document that a browser makes of a page, and what it said about it; without network."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking"]
    command += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, done.stderr


needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


@pytest.mark.browser
@needs_browser
def test_a_browser_shows_the_page_and_finds_nothing_to_load(tmp_path, records):
    page = write(summary_of(write_run(tmp_path / "run", records)))
    document, said = browse(page, tmp_path)
    assert "Every run" in document
    assert "410 ± 12" in document
    assert "Content Security Policy" not in said
    image = '<img src="http://127.0.0.1:9/image.png">'
    page.write_text(page.read_text().replace("<footer", f"{image}<footer"))
    assert "Content Security Policy" in browse(page, tmp_path)[1]


@pytest.mark.browser
@needs_browser
def test_a_page_does_not_scroll_sideways_on_a_phone(tmp_path, records):
    wide = case(2, "a-fabric-with-a-name-of-forty-characters", model="m" * 120)
    records += [ok(wide, {"decode": [20.0]}), failed(wide, reason="x" * 200, repetition=1)]
    page = write(summary_of(write_run(tmp_path / "run", records))).read_text()
    policy = re.search(r"<meta http-equiv[^>]*>", page)[0]
    frame = html.escape(page.replace(policy, ""))
    root = "this.contentDocument.documentElement"
    measure = f"document.title = 'beyond: ' + ({root}.scrollWidth - {root}.clientWidth)"
    phone = tmp_path / "phone.html"
    phone.write_text(
        f'<iframe style="width:360px;height:800px;border:0" onload="{measure}" srcdoc="{frame}">'
    )
    assert "<title>beyond: 0</title>" in browse(phone, tmp_path)[0]


def test_legend_and_table_of_fabrics_give_the_same_round_trip(tmp_path):
    """Also where a fabric has other cases, of which a legend shows one: here one that failed."""
    records = [
        *(ok(NEAR, {"decode": [80.0]}, repetition=run, rtt_us=20.0 + run) for run in range(2)),
        ok(FAR, {"decode": [20.0]}, rtt_us=1000.0),
        failed(HUNG, "hang", rtt_us=1400.0),
        ok(case(2, "far", model="other"), {"decode": [10.0]}, rtt_us=1200.0),
        ok(case(2, "near", model="other"), {"decode": [10.0]}, rtt_us=90.0),
    ]
    summary = summarize(read_folder(write_run(tmp_path, records)))
    table = {
        row[0].text: row[3].text.split(" (")[0] for row in fabrics(summary.folder.records).cells
    }
    assert set(table) == {"near", "far"}
    assert len(summary.sections) == 2
    for section in summary.sections:
        legend = {one.words: one.note for one in plots(section, iter(range(9))).legend}
        assert legend == table
