"""No line of a program that only we wrote: fixtures are made again, and what is not says why."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from provenance import FORM, texts, texts_of
from tool_outputs import FIXTURES

SCRIPTS = Path("tools/fixtures")
MANIFEST = tomllib.loads((FIXTURES / "provenance.toml").read_text())


def files(made):
    """The files of a folder of fixtures, each below each release that has it."""
    yield from made.get("posted", ())
    for name in made.get("files", ()):
        if "/" in name or "releases" not in made:
            yield name
        else:
            yield from (f"{release}/{name}" for release in made["releases"])


def test_every_fixture_is_in_the_manifest_and_the_other_way_round():
    listed = [f"{folder}/{name}" for folder, of in MANIFEST.items() for name in files(of)]
    there = [str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*") if path.is_file()]
    assert sorted(listed) == sorted(set(there) - {"provenance.toml"})


@pytest.mark.parametrize("folder", [name for name, made in MANIFEST.items() if "script" in made])
def test_a_fixture_is_made_by_a_script_that_names_it(folder):
    made = MANIFEST[folder]
    assert made["version"]
    text = (SCRIPTS / made["script"]).read_text()
    for file in map(Path, made["files"]):
        loops = f"{file.stem}.$form", f"$table{file.suffix}", f'"{file.stem}"'
        loops += (f"{{name}}.{{api}}{file.suffix}",)
        loops += f"$program.{file.name.partition('.')[2]}", f"bench-serve-$version{file.suffix}"
        assert file.name in text or any(loop in text for loop in loops), file


def test_what_people_posted_names_its_source():
    sources = [one for made in MANIFEST.values() for one in made.get("posted", {}).values()]
    assert [one for one in sources if "https://" not in one] == []


def test_every_script_makes_fixtures_or_helps_with_it():
    scripts = {made["script"] for made in MANIFEST.values() if "script" in made}
    texts = [(SCRIPTS / name).read_text() for name in scripts]
    rest = {path.name for path in SCRIPTS.iterdir() if path.is_file()} - scripts - {"make.py"}
    assert [name for name in rest if not any(name in text for text in texts)] == []


@pytest.mark.parametrize("folder", sorted(n for n, made in MANIFEST.items() if "needs" in made))
def test_a_script_that_needs_more_than_programs_is_skipped_with_what_it_needs(folder):
    make = [sys.executable, SCRIPTS / "make.py", folder]
    made = subprocess.run(make, capture_output=True, text=True, check=True)
    assert made.stdout.startswith(f"{folder}: skipped; make it with '{folder}=")


@pytest.mark.slow
def test_every_text_in_a_test_of_a_reader_is_no_programs_or_says_why_it_is_hand_made():
    unlisted = [text for text in texts() if not text.kind]
    assert not unlisted, "\n" + "\n".join(map(str, unlisted))


@pytest.mark.slow
def test_what_is_hand_made_names_where_its_form_comes_from():
    without = [text for text in texts() if text.kind == "hand-made" and not FORM.search(text.words)]
    assert not without, "\n" + "\n".join(map(str, without))


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("x = 'a\\nb'", [""]),
        ("x = 'ping: there is no route\\n'", [""]),
        ("x = '/proc/meminfo:MemTotal: 5 kB'", [""]),
        ("x = f'{y}\\nb'", [""]),
        ("x = b'a\\nb'", [""]),
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
