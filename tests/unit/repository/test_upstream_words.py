"""Which word that the driver gives to a program its newest release lost."""

import subprocess
import sys
import zipfile

import pytest

import upstream_words
from nixwulf.plugins.runtime import upstream

pytestmark = pytest.mark.repository


def test_a_word_is_there_as_it_is_or_as_the_field_that_its_flag_is_made_of():
    words = ["--max-model-len", "-sm", "/v1/models", "RAY_ADDRESS"]
    files = [b"max_model_len: int", b'add("-sm", "/v1/models")']
    assert upstream_words.lost(words, iter(files)) == ["RAY_ADDRESS"]


def test_a_word_that_upstream_took_away_is_not_asked_for():
    exo = next(one for one in upstream.families() if one.name == "exo")
    gone = {word for row in exo.rows if row.until for word in row.words}
    assert gone
    assert not gone & set(upstream_words.words_of(exo))


@pytest.mark.parametrize(("text", "code"), [("every", 0), ("none", 1)])
def test_a_release_without_a_word_ends_with_1_and_names_it(
    tmp_path, monkeypatch, capsys, text, code
):
    ray = next(one for one in upstream.families() if one.name == "ray")
    content = " ".join(upstream_words.words_of(ray)) if text == "every" else ""

    def fetched(package, version, folder):
        assert (package, version) == ("ray", "9.9")
        with zipfile.ZipFile(folder / "ray-9.9.whl", "w") as wheel:
            wheel.writestr("ray/scripts.py", content)
        return folder / "ray-9.9.whl"

    monkeypatch.setattr(upstream_words, "_fetched", fetched)
    assert upstream_words.main(["ray=9.9"]) == code
    assert ("--num-gpus is nowhere" in capsys.readouterr().out) == bool(code)


def test_an_unknown_program_is_named_with_those_that_there_are():
    script = upstream_words.__file__
    done = subprocess.run(
        [sys.executable, script, "nobody"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "unknown program 'nobody'" in done.stderr
