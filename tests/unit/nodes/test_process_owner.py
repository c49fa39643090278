"""What a node runs of the driver's own where there is no /proc and no setsid, as on macOS.

The scripts are the driver's, in the shell that macOS calls sh, with those two out of reach.
"""

import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from nixwulf.nodes import process

LEFT = "old"


def script(text):
    text = text.replace("/proc/", "/no-proc/").replace("command -v setsid", "command -v no-setsid")
    return re.sub("/(run|tmp)", rf"{os.environ['PLACE']}/\1", text)


def sh(text, *arguments, **options):
    argv = ["bash", "--posix", "-c", script(process.SHELL + text), "sh", *arguments]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def runs(number):
    """A zombie that nobody has waited for holds nothing."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The folder of the processes that drivers own."""
    monkeypatch.setenv("PLACE", str(tmp_path))
    run = tmp_path / "run" if os.getuid() == 0 else tmp_path / f"run/user/{os.getuid()}"
    run.mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    folder = run / "nixwulf"
    folder.mkdir(mode=0o700)
    return folder


def owned(*argv):
    given = (
        f"mark=end:\nafter=\nvariables='export NAME=\"a b\"'\nset -- {shlex.join(argv)}\nready=1\n"
    )
    one = sh('own "$@"', "mine", str(len(given)), "20", stdin=subprocess.PIPE)
    one.stdin.write(given)
    one.stdin.flush()
    return one


@pytest.mark.repository
def test_output_environment_and_exit_status_arrive(state):
    with owned("sh", "-c", 'echo "$NAME"; exit 7') as one:
        # The owner ends what it owns when its input ends, which communicate() would do at once.
        output, errors = one.stdout.read(), one.stderr.read()
    assert (output, errors) == ("a b\n", "end:7\n")
    assert list(state.iterdir()) == []


def test_the_group_ends_with_the_connection_and_the_owner_does_not(state):
    with owned("sh", "-c", "sleep 600 & echo $!; echo $$; wait") as one:
        numbers = [int(one.stdout.readline()) for _ in range(2)]
        assert all(runs(number) for number in numbers)
        deadline = time.monotonic() + 20
        while not (told := "".join(path.read_text() for path in state.iterdir()).split()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert told[:2] == [str(numbers[1]), str(one.pid)]
        # By these modules/bench-node.nix lets what takes the disk wait.
        assert list(state.glob("*.pid"))
        one.stdin.close()
        one.wait(timeout=30)
        # A process ends a moment after the signal that kills it.
        deadline = time.monotonic() + 20
        while any(runs(number) for number in numbers):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert one.stderr.read() == "end:143\n"


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox ash", "zsh"])
@pytest.mark.parametrize("how", ["ends", "is stopped"])
def test_without_setsid_nothing_of_it_is_left_on_linux_either(state, shell, how):
    """Job control may refuse a shell without a terminal, and then there is no group to stop."""
    name, *more = shell.split()
    if shutil.which(name) is None or not Path("/proc/self/environ").exists():
        pytest.skip(f"this machine has no {name} or no /proc")
    text = process.SHELL.replace("command -v setsid", "command -v no-setsid")
    text = re.sub("/(run|tmp)", rf"{os.environ['PLACE']}/\1", text)
    program = "sleep 601 & echo $!" + ("; wait" if how == "is stopped" else "")
    given = f"mark=end:\nafter=\nvariables=\nset -- sh -c {shlex.quote(program)}\nready=1\n"
    argv = [name, *more, "-c", text + 'own "$@"', "sh", "mine", str(len(given)), "20"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        one.stdin.write(given)
        one.stdin.flush()
        number = int(one.stdout.readline())
        if how == "is stopped":
            assert runs(number)
            one.stdin.close()
        one.wait(timeout=30)
        deadline = time.monotonic() + 20
        while runs(number):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert one.stderr.read().startswith("end:")


@pytest.fixture
def orphan(state):
    """A process whose owner is gone, with what is left of it; another began at another time."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)

    def leave(since):
        ray = state / "ray"
        ray.write_text(f"#!/bin/sh\ntouch {state}/after\n")
        ray.chmod(0o700)
        (state / f"{LEFT}.pid").write_text(
            f"{sleeper.pid} {gone.pid} {since}\n1\n{state}/ray\nstop\n--force\n"
        )
        return sleeper

    yield leave
    sleeper.kill()
    sleeper.wait()


def swept():
    with sh("sweep orphans") as one:
        return one.communicate(timeout=30)[0].split()


@pytest.mark.repository
def test_an_orphan_is_found_by_its_start_and_stopped(orphan, state):
    with sh('started "$1"', str(orphan("").pid)) as one:
        since = one.communicate()[0].strip()
    assert time.strptime(since, "%a %b %d %H:%M:%S %Y")
    sleeper = orphan(since)
    assert swept() == [f"{LEFT}.pid"]
    assert sleeper.wait(timeout=30) == -9
    assert sorted(path.name for path in state.iterdir()) == ["after", "ray"]


def test_a_stranger_that_got_an_orphans_number_is_left_alone(orphan, state):
    sleeper = orphan("Thu Jan 1 00:00:00 1970")
    assert swept() == []
    assert sleeper.poll() is None
    assert sorted(path.name for path in state.iterdir()) == ["after", "ray"]


def listed():
    """The names of all processes that still run and that drivers own here."""
    with sh("owned") as one:
        output, errors = one.communicate(timeout=30)
    assert errors == ""
    return output.splitlines()


def started(number):
    """When a process was started, as the driver's own scripts write it."""
    with sh('started "$1"', str(number)) as one:
        return one.communicate(timeout=30)[0].strip()


@pytest.fixture
def alive():
    with subprocess.Popen(["sleep", "600"]) as one:
        yield f"{one.pid} 1 {started(one.pid)}"
        one.kill()


@pytest.mark.repository
def test_what_still_runs_is_listed_and_what_has_ended_is_not(state, alive):
    (state / "alive.pid").write_text(f"{alive}\n\n")
    (state / "ended.pid").write_text(f"{alive} of another process\n\n")
    (state / "empty.pid").write_text("")
    found = listed()
    assert "alive" in found
    assert not {"ended", "empty"} & set(found)


@pytest.mark.repository
@pytest.mark.skipif(os.getuid() != 0, reason="only root reads another user's files")
def test_root_sees_what_runs_of_another_user(state, alive):
    folder = state.parent / "user/65533/nixwulf"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "bench.pid").write_text(f"{alive}\n\n")
    os.chown(folder, 65533, 65533)
    assert "bench of user 65533" in listed()


@pytest.mark.parametrize("what", ["open to others", "a link", "another's"])
def test_a_folder_that_is_not_private_is_refused_and_nothing_in_it_runs(orphan, state, what):
    sleeper = orphan(started(orphan("").pid))
    if what == "a link":
        state.rename(state.parent / "elsewhere")
        state.symlink_to(state.parent / "elsewhere")
    elif what == "open to others":
        state.chmod(0o770)
    else:
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(state, 65533, 65533)
    with sh("sweep orphans") as one:
        output, errors = one.communicate(timeout=30)
    assert (one.returncode, output) == (1, "")
    assert "is not private to user" in errors
    assert sleeper.poll() is None
    assert not (state / "after").exists()


def test_what_comes_afterwards_is_none_but_the_two_commands(state):
    (state / "x.pid").write_text(f"1 1 x\n1\ntouch\n{state}/pwned\n")
    assert swept() == []
    assert list(state.iterdir()) == []
