"""Values of records that somebody made: tables of them stay tables."""

import csv
import io
import json

from nixwulf.report.render import to_csv, to_json
from record_factory import case, metric, ok, published


def test_a_spreadsheet_computes_no_text_of_a_record():
    hostile = case(1, model="=cmd|' /C calc'!A0", engine="@SUM(1)")
    text = to_csv([ok(hostile, [metric("decode", [5.0])])])
    for formula in ("=cmd|", "@SUM"):
        assert f"'{formula}" in text
        assert f",{formula}" not in text


def test_a_number_beyond_all_is_absent_from_json():
    made = published(case(1), [metric("decode", [5.0])], price_usd=1e-320)
    rows = json.loads(to_json([made]))["rows"]
    assert all("per_usd" not in row for row in rows)


def test_no_cell_of_a_csv_begins_a_line_of_its_own():
    hostile = case(1, model="a\r=cmd|' /C calc'!A0")
    text = to_csv([ok(hostile, [metric("decode", [5.0])])])
    assert "\r" not in text
    assert {row[0] for row in csv.reader(io.StringIO(text))} == {"kind", "run"}
