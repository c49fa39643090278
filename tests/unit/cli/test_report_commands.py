import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from nixwulf.cli.records import report, validate
from record_factory import case, make_record, ok, plan, write_run

PLATFORM = 'name = "box"\ndescription = "A box"\nsystem = "x86_64-linux"\n'
SWEEP = """
name: small
models: {tiny: {random: {}}}
matrix: {model: [tiny], nodes: [1], parallelism: [single]}
"""
CLUSTER = """
name = "small"
[lab]
nodes = 2
[fabrics.lan]
kind = "ethernet"
speed_gbps = 1
mtu = 1500
subnet = "10.9.0.0/24"
"""


def run(command, *arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", [make_record()], plan([case(1)]))


def test_report_writes_the_page_and_prints_its_path(folder):
    done = run(report, folder)
    assert (done.exit_code, done.output) == (0, f"{folder / 'report.html'}\n")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("form", "start"), [("md", "## demo"), ("csv", "kind,platform,cluster,"), ("json", "{")]
)
def test_the_other_forms_are_printed_and_write_nothing(folder, form, start):
    done = run(report, folder, "--format", form)
    assert done.exit_code == 0
    assert done.output.startswith(start)
    assert not (folder / "report.html").exists()


def test_svg_is_the_plot_of_decode_against_the_round_trip_as_a_file(tmp_path):
    fabrics = [("near", 20.0), ("far", 900.0)]
    records = [ok(case(2, name), {"decode": [8.0, 9.0]}, rtt_us=rtt) for name, rtt in fabrics]
    done = run(report, write_run(tmp_path / "run", records), "--format", "svg")
    assert done.exit_code == 0
    image = ElementTree.fromstring(done.output)  # noqa: S314 - drawn by this test
    texts = {element.text for element in image.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Decode, tensor", "near 20 µs", "far 900 µs", "2 nodes"} <= texts
    assert "Means ± one standard deviation, n = 2 samples in 1 run" in texts
    assert 'fill="#ffffff"' in done.output
    assert "var(" not in done.output


def test_without_two_fabrics_there_is_no_svg_and_exit_code_2(folder):
    done = run(report, folder, "--format", "svg")
    assert done.exit_code == 2
    assert done.output == (
        "Error: 'demo' has 0 settings with decode over two fabrics, and the SVG shows one setting; "
        "--format html shows what there is.\n"
    )


def test_a_folder_that_does_not_exist_is_one_sentence_and_exit_code_2(tmp_path):
    done = run(report, tmp_path / "none")
    assert done.exit_code == 2
    assert done.output == (
        f"Error: {str(tmp_path / 'none')!r} does not exist; name the folder that 'nixwulf bench' "
        "wrote.\n"
    )


def test_a_folder_without_records_is_exit_code_2(tmp_path):
    done = run(report, tmp_path)
    assert done.exit_code == 2
    assert "holds no record" in done.output


def test_validate_counts_what_is_valid(folder, tmp_path):
    for name, text in (("box.toml", PLATFORM), ("small.toml", CLUSTER), ("small.yaml", SWEEP)):
        (tmp_path / name).write_text(text)
    files = [tmp_path / "box.toml", tmp_path / "small.toml", tmp_path / "small.yaml"]
    done = run(validate, folder, *files)
    assert (done.exit_code, done.output) == (
        0,
        "1 cluster, 1 plan, 1 platform, 1 record, 1 sweep: valid.\n",
    )


def test_validate_knows_a_file_of_facts_of_models_by_its_content(tmp_path):
    shipped, path = Path("driver/nixwulf/data/model/models.toml"), tmp_path / "foo.toml"
    path.write_text("[[models]]" + shipped.read_text().split("[[models]]")[1])
    assert run(validate, path).output == "1 models file: valid.\n"
    bad = tmp_path / "bad.toml"
    bad.write_text(path.read_text().replace("layers =", "storeys ="))
    assert "unknown key 'moe_storeys'" in run(validate, bad).output


def test_validate_names_every_problem_on_a_line_of_its_own(tmp_path):
    write_run(tmp_path, [make_record(), ok(case(2), {"decode": [20.0]})])
    first, second = sorted((tmp_path / "records").iterdir())
    first.write_text("{")
    document = json.loads(second.read_text())
    second.write_text(json.dumps({**document, "repetition": 7}))
    (tmp_path / "bad.toml").write_text('name = "x"\n')
    done = run(validate, tmp_path, tmp_path / "bad.toml", tmp_path / "none.toml")
    assert done.exit_code == 2
    problems = done.output.splitlines()
    assert len(problems) == 4
    for path, what in ((first, "not JSON"), (second, "was edited"), ("bad.toml", "lacks the key")):
        assert any(str(path) in problem and what in problem for problem in problems)


def test_validate_finds_a_plan_that_was_edited(folder):
    document = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**document, "repetitions": 9}))
    done = run(validate, folder)
    assert done.exit_code == 2
    assert "plan was edited" in done.output


def test_validate_refuses_a_file_of_another_kind(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    done = run(validate, tmp_path / "notes.txt")
    assert done.exit_code == 2
    assert "is not a .json, .toml or .yaml file" in done.output
