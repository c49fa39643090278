"""No line of a program that only we wrote: fixtures are made again, and what is not says why."""

import ast
import tomllib
from pathlib import Path

import pytest

from provenance import FORM, texts, texts_of
from tool_outputs import FIXTURES

SCRIPTS = Path("tools/fixtures")
MANIFEST = tomllib.loads((FIXTURES / "provenance.toml").read_text())
# Engines whose texts are replaced in branches of their own; a module leaves when it is done, and
# so does the folder of fixtures whose script comes from there.
OTHERS = {
    *("test_distributed_llama", "test_exo", "test_llama_cpp_plan", "test_llama_cpp_proof"),
    *("test_mesh_llm", "test_mlx_plan", "test_nccl", "test_parsers_dllama", "test_parsers_nccl"),
    *("test_parsers_vllm", "test_vllm"),
}
FOLDERS_OF_OTHERS = {"dllama"}


def test_every_fixture_is_in_the_manifest_and_the_other_way_round():
    listed = [f"{folder}/{name}" for folder, of in MANIFEST.items() for name in of["files"]]
    there = [str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*") if path.is_file()]
    assert sorted(listed) == sorted(set(there) - {"provenance.toml"})


@pytest.mark.parametrize("folder", MANIFEST.keys() - FOLDERS_OF_OTHERS)
def test_a_fixture_is_made_by_a_script_that_names_it(folder):
    made = MANIFEST[folder]
    assert made["version"]
    text = (SCRIPTS / made["script"]).read_text()
    for name in made["files"]:
        loops = f"{Path(name).stem}.$form", f"$table{Path(name).suffix}"
        assert name in text or any(loop in text for loop in loops), name


def test_every_text_in_a_test_of_a_reader_is_no_programs_or_says_why_it_is_hand_made():
    unlisted = [text for text in texts() if not text.kind and text.module not in OTHERS]
    assert not unlisted, "\n" + "\n".join(map(str, unlisted))


def test_what_is_hand_made_names_where_its_form_comes_from():
    without = [text for text in texts() if text.kind == "hand-made" and not FORM.search(text.words)]
    assert not without, "\n" + "\n".join(map(str, without))


def test_a_module_of_another_branch_still_has_a_text_to_replace():
    of_others = {text.module for text in texts() if not text.kind}
    assert set(OTHERS) <= of_others


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("x = 'a\\nb'", [""]),
        ("x = 'ping: there is no route\\n'", [""]),
        ("x = '/proc/meminfo:MemTotal: 5 kB'", [""]),
        ("x = f'{y}\\nb'", [""]),
        ("x = 'no output\\n'", []),
        ("'''A docstring.\n\nOf two lines.'''", []),
        ("# hand-made: a (form: b)\nx = 'a\\nb'", ["hand-made"]),
        ("# hand-made: a\n# (form: b)\nx = 'a\\nb'", ["hand-made"]),
        ("# hand-made: a (form: b)\ny = 1\nx = 'a\\nb'", [""]),
        ("# hand-made: a (form: b)\ndef f():\n    x = 'a\\nb'", [""]),
        ("f(\n    # no output: c\n    'a\\nb',\n    'c\\nd',\n)", ["no output", ""]),
        ("f(\n    # no output: c\n    (1, 'a\\nb'),\n    (2, 'c\\nd'),\n)", ["no output", ""]),
    ],
)
def test_a_text_is_found_with_the_comment_above_it(source, kinds):
    assert [text.kind for text in texts_of("x", ast.parse(source), source + "\n")] == kinds
