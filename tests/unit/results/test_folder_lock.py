"""One driver a run folder: another is refused with who it is, and no end leaves a lock."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from nixwulf.cli.bench import check_new
from nixwulf.core.errors import InputError
from nixwulf.results.store import LOCK, only_driver

DRIVER = """
import sys
from pathlib import Path
from nixwulf.results.store import only_driver
with only_driver(Path(sys.argv[1])):
    print("has it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def driver(tmp_path):
    folder = tmp_path / "runs/first"
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "has it\n"
        yield process, folder
        process.kill()


def test_a_second_driver_is_refused_with_who_has_the_folder(driver):
    process, folder = driver
    with pytest.raises(InputError) as refusal, only_driver(folder):
        pass
    assert refusal.value.exit_code == 2
    words = refusal.value.message
    assert words.startswith(f"{str(folder)!r} is in use by user '")
    assert f"process {process.pid} on " in words
    assert " UTC ('nixwulf " in words
    assert words.endswith(f"; wait until it has ended, or end it with 'kill {process.pid}'.")
    assert process.poll() is None


def test_the_lock_of_a_driver_that_was_killed_is_none(driver):
    process, folder = driver
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / LOCK).exists()
    (folder / "plan.json").touch()
    with only_driver(folder):
        pass
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_a_folder_in_which_a_driver_left_its_lock_alone_is_new(driver):
    process, folder = driver
    process.kill()
    process.wait()
    check_new(folder)
    (folder / "other").touch()
    with pytest.raises(InputError, match="is not empty and not a run"):
        check_new(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"user": 1}', b"x" * 10**6])
def test_whatever_is_in_the_file_the_refusal_is_a_sentence(driver, content):
    _, folder = driver
    (folder / LOCK).write_bytes(content)
    with pytest.raises(InputError, match="is in use by another nixwulf"), only_driver(folder):
        pass


def test_a_folder_made_for_nothing_goes_again(tmp_path):
    with only_driver(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_somebody_removed_meanwhile_ends_in_order(tmp_path):
    with only_driver(tmp_path / "new"):
        (tmp_path / "new" / LOCK).unlink()
        (tmp_path / "new").rmdir()
    assert list(tmp_path.iterdir()) == []


def test_where_the_file_system_has_no_locks_a_run_goes_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with only_driver(tmp_path / "new"), only_driver(tmp_path / "new"):
        (tmp_path / "new/plan.json").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["plan.json"]


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), only_driver(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
