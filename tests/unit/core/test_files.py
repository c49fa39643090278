from pathlib import Path

import pytest

from nixwulf.core import files
from nixwulf.core.errors import InputError
from nixwulf.core.files import find_input, find_results, read_text


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DATA", tmp_path / "data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sweeps = tmp_path / "data" / "sweeps"
    sweeps.mkdir(parents=True)
    (sweeps / "demo.yaml").touch()
    (sweeps / "lab").mkdir()
    (sweeps / "lab" / "gpu.yaml").touch()
    return sweeps


def test_a_bare_name_is_found_among_the_files_of_an_installation(installed):
    assert find_input("demo", "sweeps", ".yaml") == installed / "demo.yaml"


def test_a_name_may_have_a_folder(installed):
    assert find_input("lab/gpu", "sweeps", ".yaml") == installed / "lab" / "gpu.yaml"


@pytest.mark.parametrize("name", ["there/mine.yaml", "/dev/null", "here/mine"])
def test_a_path_is_taken_as_it_is(installed, name):
    for folder, file in (("here", "mine"), ("there", "mine.yaml")):
        Path(folder).mkdir()
        (Path(folder) / file).touch()
    assert find_input(name, "sweeps", ".yaml") == Path(name)


def test_a_file_of_the_user_comes_before_the_one_that_was_shipped(installed):
    own = Path("sweeps") / "demo.yaml"
    own.parent.mkdir()
    own.touch()
    assert find_input("demo", "sweeps", ".yaml") == own


def test_an_unknown_name_is_refused_with_the_names_that_there_are(installed):
    with pytest.raises(InputError) as caught:
        find_input("dmo", "sweeps", ".yaml")
    assert caught.value.message == "No sweeps/dmo.yaml; did you mean 'demo'?"


@pytest.mark.parametrize(
    ("name", "missing"), [("mine.yaml", "mine.yaml"), ("no/mine", "sweeps/no/mine.yaml")]
)
def test_a_file_that_is_missing_is_refused_with_the_names_and_the_command_that_writes_one(
    installed, name, missing
):
    with pytest.raises(InputError) as caught:
        find_input(name, "sweeps", ".yaml", writer="nixwulf make --output")
    assert caught.value.message == (
        f"No {missing}; known: demo, lab/gpu. Write your own by 'nixwulf make --output {missing}'."
    )


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + ".yaml"])
def test_a_name_that_no_file_can_have_is_refused_when_it_is_read(installed, name):
    with pytest.raises(InputError, match="File name too long"):
        read_text(find_input(name, "sweeps", ".yaml"))


def test_results_that_are_not_here_are_those_of_an_installation(installed):
    brought = installed.parent / "results" / "published"
    brought.mkdir(parents=True)
    assert find_results(Path("results")) == brought.parent
    assert find_results(Path("results/published")) == brought
    assert find_results(Path("results/other")) == Path("results/other")
    assert find_results(Path("sweeps")) == Path("sweeps")


def test_results_of_the_user_come_before_those_of_an_installation(installed):
    (installed.parent / "results").mkdir()
    Path("results").mkdir()
    assert find_results(Path("results")) == Path("results")


def test_a_mark_that_an_editor_wrote_in_front_is_no_part_of_a_table(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b'\xef\xbb\xbfname = "mine"\n')
    assert files.read_toml(path) == {"name": "mine"}
