"""A speed with drafted tokens is shown nowhere without the share that the model accepted."""

import io
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.report.render import to_csv, to_html, to_markdown
from nixwulf.report.summary import summarize
from nixwulf.results.record import sealed
from nixwulf.results.store import read_folder
from nixwulf.sweep.plan import load_sweep, make_plan
from nixwulf.sweep.recording import TerminalProgress
from record_factory import case, ok, write_run

PLAIN = case(1)
DRAFTED = {**PLAIN, "id": "d" * 12, "parameters": {**PLAIN["parameters"], "draft": "small"}}
SAMPLES = [[40.0, 41.0, 42.0], [41.0, 42.0, 43.0]]


def runs(of, acceptance=""):
    for repetition, samples in enumerate(SAMPLES):
        record = ok(of, {"decode": samples}, repetition=repetition)
        (decode,) = record["metrics"]
        seen = {"observed": {"acceptance": acceptance}} if acceptance else {}
        yield sealed({**record, "metrics": [{**decode, **seen}]})


@pytest.fixture
def drafted():
    return list(runs(DRAFTED, "71.2 %"))


def command(*arguments):
    done = CliRunner().invoke(cli, [*map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def test_reports_show_it_in_every_form(tmp_path, drafted):
    write_run(tmp_path, [*runs(PLAIN), *drafted])
    folder = read_folder(tmp_path)
    summary = summarize(folder)
    page, text = to_html(summary), to_markdown(summary)
    for shown in (page, text):
        assert "41.5 ± 1.0 (71.2 % accepted)" in shown
        assert re.search(r"41\.5 ± 1\.0(?! \()", shown), "of the case without a draft"
    assert "42.0 ± 1.0 (71.2 % accepted)" in page, "of one run"
    assert "71.2 %" in to_csv(folder.records)


def test_different_acceptances_of_a_cases_runs_are_all_shown(tmp_path, drafted):
    other = list(runs(DRAFTED, "68.0 %"))[1]
    write_run(tmp_path, [drafted[0], other])
    assert "(71.2 %, 68.0 % accepted)" in to_markdown(summarize(read_folder(tmp_path)))


def test_runs_with_and_without_a_draft_are_paired_over_draft_alone(tmp_path, drafted):
    write_run(tmp_path / "a", runs(PLAIN))
    write_run(tmp_path / "b", drafted)
    code, output = command("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "to compare over that, give --over draft" in output
    code, output = command("compare", tmp_path / "a", tmp_path / "b", "--over", "draft")
    assert code == 0
    assert "41.5 (71.2 % accepted)" in output


def test_the_line_of_a_run_shows_it(drafted):
    out = io.StringIO()
    plan = make_plan(load_sweep("lab/demo"), load_cluster("lab"))
    run = next(plan.runs())
    with TerminalProgress(Console(file=out, width=40)) as progress:
        progress.sweep_starts([run])
        progress.run_starts(*run)
        progress.run_ends(drafted[0], 3.0)
    assert "decode 41.0 tok/s (71.2 % accepted)" in out.getvalue()


def test_nothing_is_predicted_beside_it(tmp_path, drafted):
    write_run(tmp_path, drafted[:1])
    _, output = command("explain", *tmp_path.glob("records/*.json"))
    assert "It decodes speculatively" in output


def test_pages_of_a_site_show_it(tmp_path, drafted):
    write_run(tmp_path / "run", drafted)
    code, output = command("site", tmp_path / "run", "--out", tmp_path / "site")
    assert code == 0, output
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    with_speed = [page for page in pages if "41.0 ± 1.0" in page]
    assert with_speed
    for page in with_speed:
        assert page.count("41.0 ± 1.0") == page.count("41.0 ± 1.0 (71.2 % accepted)")
