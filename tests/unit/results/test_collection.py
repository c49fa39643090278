"""Records in files and folders: which are found, and what counts once."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import nixwulf
from nixwulf.cli.records import validate
from nixwulf.core.errors import InputError
from nixwulf.results import record
from nixwulf.results.store import read_records, record_paths
from nixwulf.results.table import TIDY_COLUMNS
from record_factory import case, make_record, ok, published, write_run


def ids(paths):
    return sorted(one["id"] for one in read_records(paths))


def other(one, **changes):
    return record.sealed({**one, **changes})


def test_a_table_is_loaded_from_a_file_a_run_folder_or_a_folder_of_those(tmp_path):
    first = write_run(tmp_path / "all/first", [make_record()])
    write_run(tmp_path / "all/deeper/second", [ok(case(2), {"decode": [9.0]})])
    file = next((first / "records").iterdir())
    assert [len(nixwulf.load(path)) for path in (file, str(first), tmp_path / "all")] == [2, 2, 3]
    assert list(nixwulf.load(file)) == list(TIDY_COLUMNS)


def test_several_paths_are_one_table_and_a_record_met_twice_counts_once(tmp_path):
    first = write_run(tmp_path / "first", [make_record()])
    copy = write_run(tmp_path / "copy", [make_record()])
    second = write_run(tmp_path / "second", [ok(case(2), {"decode": [9.0]})])
    assert len(ids([first, copy, second, first])) == 2


def test_json_among_the_raw_outputs_and_beside_the_records_is_no_record(tmp_path):
    folder = write_run(tmp_path, [make_record()])
    for name in ("raw/x/records", "references", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "no.json").write_text("{}")
    (folder / "plan.json").write_text("{}")
    assert len(record_paths(folder)) == 1


def test_records_may_lie_loose_in_the_folder_that_is_named(tmp_path):
    record.save(make_record(), tmp_path / "loose.json")
    assert ids(tmp_path) == [make_record()["id"]]


def test_runs_of_two_folders_share_ids_and_both_count(tmp_path):
    run = make_record()
    again = other(run, started="2026-02-03T00:00:00Z", finished="2026-02-03T00:01:00Z")
    write_run(tmp_path / "a", [run])
    write_run(tmp_path / "b", [again])
    assert ids(tmp_path) == [run["id"]] * 2


def test_two_records_with_one_id_and_different_content_name_both_files_and_the_key(tmp_path):
    run = make_record()
    first = write_run(tmp_path / "a", [run])
    second = write_run(tmp_path / "b", [other(run, cluster={**run["cluster"], "name": "mine"})])
    with pytest.raises(InputError) as refused:
        nixwulf.load(tmp_path)
    file = f"records/{run['id']}.json"
    assert refused.value.message == (
        f"{second / file}: id {run['id']!r} is also that of {str(first / file)!r}, and they differ "
        "in cluster.name ('mine' here, 'lab' there); name only one of them."
    )


def test_a_published_number_has_its_id_alone(tmp_path):
    one = published(case(), {"decode": [10.0]}, id="box-llama-1")
    write_run(tmp_path / "a", [one])
    write_run(tmp_path / "b", [published(case(), {"decode": [11.0]}, id="box-llama-1")])
    with pytest.raises(InputError, match=r"differ in metrics \("):
        nixwulf.load(tmp_path)


def test_who_wrote_the_same_numbers_down_makes_no_difference(tmp_path):
    one = published(case(), {"decode": [10.0]}, id="box-llama-1")
    write_run(tmp_path / "a", [one])
    write_run(tmp_path / "b", [other(one, provenance={"nixwulf": "0.9.0"})])
    assert ids(tmp_path) == ["box-llama-1"]


def test_a_run_beside_its_published_copy_is_refused_with_the_reason(tmp_path):
    run = make_record()
    write_run(tmp_path / "mine", [run])
    write_run(tmp_path / "results", [other(run, scrubbed={"host name": 2})])
    with pytest.raises(InputError, match="'nixwulf publish' made of the other; name only one"):
        nixwulf.load(tmp_path)


def test_validate_finds_two_records_with_one_id(tmp_path):
    run = make_record()
    write_run(tmp_path / "a", [run])
    write_run(tmp_path / "b", [other(run, raw=[])])
    done = CliRunner().invoke(validate, [str(tmp_path)])
    assert done.exit_code == 2
    assert "they differ in raw" in done.output


@pytest.mark.parametrize(
    ("name", "sentence"), [("none", "does not exist; name a record"), (".", "holds no record")]
)
def test_nothing_to_load_is_one_sentence(tmp_path, name, sentence):
    with pytest.raises(InputError, match=sentence):
        nixwulf.load(tmp_path / name)


def test_importing_nixwulf_imports_neither_pandas_nor_a_schema():
    heavy = "{'pandas', 'numpy', 'jsonschema', 'nixwulf.results.table', 'click'}"
    code = f"import nixwulf, sys; print(sorted({heavy} & set(sys.modules)), nixwulf.load.__doc__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] The tidy table")


def test_load_stays_a_function_whatever_is_imported():
    code = (
        "import nixwulf, pkgutil, importlib\n"
        "names = [m.name for m in pkgutil.walk_packages(nixwulf.__path__, 'nixwulf.')]\n"
        "assert 'nixwulf.load' not in names and callable(nixwulf.load)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_of_all_failed_runs_is_not_empty(tmp_path):
    document = json.loads(json.dumps(make_record()))
    failed = other(
        document, outcome="failed", failure={"phase": "launch", "reason": "No."}, metrics=[]
    )
    table = nixwulf.load(write_run(tmp_path, [failed]))
    assert table["reason"].tolist() == ["No."]


def test_a_folder_of_a_whole_disk_is_refused_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr("nixwulf.results.store._MOST_FOLDERS", 20)
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(InputError, match="has more than 20 folders in it; name the run folders."):
        record_paths(tmp_path)
