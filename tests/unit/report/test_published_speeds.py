"""Published speeds beside their predictions, as a table for who waits."""

import io

from rich.console import Console

from nixwulf.report.lines import COMPARISONS, decodes, to_rich
from nixwulf.sweep.recording import TerminalProgress


def test_each_comparison_is_of_one_source_and_of_several_numbers_of_nodes():
    for each in COMPARISONS:
        found = decodes(each)
        nodes = [one.case["nodes"] for one in found]
        assert nodes == sorted(set(nodes))
        assert len(nodes) > 2
        assert len({one.record["source"]["url"] for one in found}) == 1
        assert all(one.prediction for one in found)


def test_the_table_has_every_speed_beside_its_prediction_within_80_columns():
    out = io.StringIO()
    with TerminalProgress(Console(file=out, width=80)) as progress:
        progress.show(to_rich())
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert any("gpt-oss-120b, Framework Desktops" in line and "~47.9" in line for line in lines)
    assert sum("~" in line for line in lines) == sum(len(decodes(each)) for each in COMPARISONS)
    assert not any("…" in line for line in lines)


def test_a_folder_without_published_records_gives_an_empty_table(monkeypatch, tmp_path):
    monkeypatch.setattr("nixwulf.report.lines.find_results", lambda path: tmp_path)
    assert [decodes(each) for each in COMPARISONS] == [[], []]
    assert to_rich().row_count == 3 * len(COMPARISONS)
