"""Where MLX's programs are looked for, and how they are installed once."""

from __future__ import annotations

import sys

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.plugins.engines.local import Wheels
from nixwulf.plugins.engines.mlx import ENGINE, MLX, MLX_LM, WHEELS
from stand_in import put


def quiet(step: str, share: float) -> None:
    pass


def test_nothing_is_found_where_there_is_nothing_or_a_part_only(empty):
    assert ENGINE.find_local() is None
    put(empty / "bin", WHEELS.programs[0])
    assert ENGINE.find_local() is None


def test_programs_on_path_win_and_say_their_version(empty):
    for name in WHEELS.programs:
        put(empty / "bin", name)
        put(WHEELS.folder / "bin", name)
    put(empty / "bin", "mlx_lm", "echo 9.9.9")
    found = ENGINE.find_local()
    assert found is not None
    assert (found.origin, found.version) == ("path", "9.9.9")
    assert found.programs == {name: empty / "bin" / name for name in WHEELS.programs}


def test_what_was_installed_before_is_found_without_an_installation(empty):
    for name in WHEELS.programs:
        put(WHEELS.folder / "bin", name)
    found = ENGINE.install_local(quiet)
    assert (found.origin, found.version) == ("cache", "0.32.2-0.32.4")


def test_an_environment_is_made_by_the_users_own_python_and_pip(tmp_path):
    make, fill = WHEELS.steps(tmp_path)
    assert make == [sys.executable, "-m", "venv", str(tmp_path / "environment")]
    assert fill[:4] == [str(tmp_path / "environment/bin/python"), "-m", "pip", "install"]
    assert "--require-hashes" in fill


def test_the_lock_has_the_versions_that_records_name():
    (lock,) = WHEELS.locks
    assert {f"mlx=={MLX} \\", f"mlx-lm=={MLX_LM} \\"} <= set(lock.read_text().splitlines())


@pytest.mark.repository
def test_only_the_programs_of_mlx_reach_the_nodes_path(empty, monkeypatch):
    """The environment's folder has a python, which would hide that of the nodes."""
    names = " ".join((*WHEELS.programs, "python"))
    script = 'mkdir -p "$1/bin"; for p in $2; do echo >"$1/bin/$p"; chmod +x "$1/bin/$p"; done'
    monkeypatch.setattr(
        Wheels,
        "steps",
        lambda _, folder: [["/bin/bash", "-c", script, "sh", str(folder / "environment"), names]],
    )
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    found = ENGINE.install_local(quiet)
    (folder,) = {program.parent for program in found.programs.values()}
    assert sorted(program.name for program in folder.iterdir()) == sorted(WHEELS.programs)


def test_a_failed_installation_quotes_pips_last_words_and_leaves_no_programs(empty, monkeypatch):
    words = "ERROR: No matching distribution found for mlx"
    failing = [["/bin/sh", "-c", f"echo '{words}'; exit 1"]]
    monkeypatch.setattr(Wheels, "steps", lambda *_: failing)
    with pytest.raises(NixwulfError, match=words) as error:
        ENGINE.install_local(quiet)
    assert "mlx_lm.benchmark on PATH needs no installation" in error.value.message
    assert ENGINE.find_local() is None


def test_a_cache_that_cannot_be_written_is_named_in_one_sentence(empty):
    (empty / "cache").write_text("")
    with pytest.raises(NixwulfError, match="Cannot install MLX in"):
        ENGINE.install_local(quiet)
