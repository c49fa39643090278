"""tools/ask_sources.py asks the threads that known_bad.toml cites, of a server on this machine."""

import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import ask_sources
from meter_server import serving, unreachable
from nixwulf.plugins.gates.kernel import table

pytestmark = pytest.mark.repository
URLS = [url for _, _, url in ask_sources.threads(table())]
OPEN = {"state": "open", "closed_at": None}


def path(url):
    return f"/repos{urlsplit(url).path.replace('/pull/', '/issues/')}"


def run(api):
    return subprocess.run(
        [sys.executable, "tools/ask_sources.py", "--api", api],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_cited_thread_is_asked_and_one_that_was_closed_since_is_named_with_its_day():
    day = next(iter(table().values()))["read"]
    before = {"closed_at": "2020-01-01T00:00:00Z"}
    since = {"closed_at": "2099-03-04T05:06:07Z", "state_reason": "completed"}
    answers = dict.fromkeys(map(path, URLS), OPEN) | {path(URLS[1]): before}
    with serving(answers) as api:
        quiet = run(api)
    with serving(answers | {path(URLS[0]): since}) as api:
        done = run(api)
    # no output: what the tool itself prints
    none = f"None of {len(URLS)} threads was closed since it was read.\n"
    assert (quiet.returncode, quiet.stdout) == (0, none), quiet.stderr
    assert (done.returncode, done.stdout) == (
        1,
        # no output: what the tool itself prints
        f"{next(iter(table()))}: {URLS[0]} was closed on 2099-03-04, as completed, and was read on "
        f"{day}; read it again.\n",
    )


def test_a_thread_that_is_gone_or_gives_no_thread_is_named():
    answers = dict.fromkeys(map(path, URLS), OPEN)
    del answers[path(URLS[0])]
    with serving(answers | {path(URLS[2]): ["limit"]}) as api:
        done = run(api)
    assert done.returncode == 1
    gone, odd = done.stdout.splitlines()
    assert gone.endswith(f"{URLS[0]} is answered with status 404; look at it by hand.")
    assert f"{URLS[2]} is answered with '[\"limit\"]'; look" in odd


def test_without_a_network_no_thread_counts_as_open():
    done = run(unreachable())
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == len(URLS)
    assert all("gave no answer" in line for line in done.stdout.splitlines())
