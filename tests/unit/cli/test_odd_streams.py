"""Streams that take no text or not every character, and too little memory: sentences."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from nixwulf.sweep.recording import TerminalProgress

_COMMAND = """
import sys
from nixwulf.cli.main import main
sys.argv = ["nixwulf", "--version"]
try:
    main()
except SystemExit:
    print("\\u00b5s")
"""


def test_a_character_that_the_terminal_lacks_is_printed_as_its_number():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    argv = [sys.executable, "-c", _COMMAND]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("\\xb5s\n"), done.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc")
def test_libraries_of_numbers_start_no_threads():
    # OpenBLAS, which cannot have its threads, sends the process an interrupt.
    code = f"{_COMMAND}\n    import os, numpy\n    print(len(os.listdir('/proc/self/task')))"
    environment = {key: value for key, value in os.environ.items() if "THREADS" not in key}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("\n1\n"), done.stderr


def test_progress_on_a_full_stream_does_not_end_the_sweep():
    with Path("/dev/full").open("w", buffering=1) as full:
        TerminalProgress(Console(file=full)).step("Bringing up the lab")
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_full_stream_is_a_sentence():
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, "-m", "nixwulf", "models", "ls", "--help"]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict --cluster framework-2 --model gpt-oss-120b >file", "Error: File too large."),
        ("cluster new --output new.toml 127.0.0.1", "Error: No usable temporary directory found"),
    ],
)
def test_where_no_file_may_be_written_is_a_sentence(tmp_path, command, words):
    script = f'ulimit -f 0; exec "{sys.executable}" -m nixwulf {command}'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(words)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", ["EDQUOT", "EROFS", "ESTALE", "ENOTCONN", "ETIMEDOUT"])
def test_what_a_quota_or_a_network_file_system_refuses_is_a_sentence(number):
    done = loading(f"import errno; raise OSError(errno.{number}, os.strerror(errno.{number}))")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


_LOADING = """
import os, signal, sys
from nixwulf.cli import main
def load(name):
    {effect}
main.importlib.import_module = load
sys.argv = ["nixwulf", "models"]
main.main()
"""


def loading(effect):
    """A command in whose loading something happens."""
    argv = [sys.executable, "-c", _LOADING.format(effect=effect)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_too_little_memory_for_a_library_is_a_sentence():
    done = loading("raise ImportError('/lib/x.so: failed to map segment from shared object')")
    assert "'ulimit -v'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_too_little_memory_for_a_thread_is_a_sentence(tmp_path: Path):
    cluster = tmp_path / "one.toml"
    cluster.write_text(
        'name = "one"\n[fabrics]\n[[nodes]]\nname = "n1"\nssh = "127.0.0.1"\n'
        'platform = "generic-x86_64"\nfabrics = {}\n'
    )
    # The stack of a thread is as large as that of a process may be.
    limited = ["bash", "-c", 'ulimit -s 8000000 -v 4000000; exec "$@"', "bash"]
    argv = [sys.executable, "-m", "nixwulf", "nodes", "exec", "--cluster", str(cluster), "true"]
    done = subprocess.run([*limited, *argv], capture_output=True, text=True, check=False)
    assert "'ulimit -v'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_an_interrupt_while_a_command_loads_is_a_word():
    done = loading("os.kill(os.getpid(), signal.SIGINT)")
    assert (done.returncode, done.stderr.strip()) == (130, "Interrupted.")
