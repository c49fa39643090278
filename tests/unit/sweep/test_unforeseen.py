"""What nobody foresaw ends with what to do next: what to report, and how to try again."""

from types import SimpleNamespace

from nixwulf.sweep.phases import _words


def test_what_nobody_foresaw_names_the_file_to_report_and_the_command_after_it(tmp_path):
    run = SimpleNamespace(raw=tmp_path / "raw" / "case-r1")
    try:
        raise LookupError("like none before")
    except LookupError as error:
        words = _words(run, error)
    assert "LookupError: like none before" in words
    assert "raw/case-r1/driver.traceback" in words
    assert "like none before" in (run.raw / "driver.traceback").read_text()
    assert "records/case-r1.json" in words
    assert words.endswith("'nixwulf bench --resume'.")
