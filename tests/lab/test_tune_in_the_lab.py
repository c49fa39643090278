"""Finding the best way for real: nodes, engines, records, and a search that can be interrupted."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import lab
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.results import record
from nixwulf.results.store import read_folder
from nixwulf.sweep.plan import load_sweep
from nixwulf.tune import search
from nixwulf.tune.render import serve_commands, serving

SHORT = ("--engine", "llama.cpp", "--n-prompt", "16", "--n-gen", "8", "--samples", "1")


@pytest.fixture(scope="module", autouse=True)
def _engine():
    ENGINE.install_local(lambda step, share: None)


def start(*arguments):
    command = [sys.executable, "-m", "nixwulf", "tune", "--model", "random", *SHORT]
    return subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def records(folder):
    return [record.load(path) for path in sorted((folder / "records").glob("*.json"))]


def typed_in(line, **streams):
    """A line as it is typed where nixwulf is on PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", line], stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": path}, **streams,
    )  # fmt: skip


@contextmanager
def terminals(lines, folder):
    """Each line in a terminal of its own, and Ctrl-C in all of them when the block ends."""
    running = []
    for number, line in enumerate(lines):
        keyboard, terminal = os.openpty()
        output = (folder / f"terminal-{number}").open("w")
        running.append((keyboard, typed_in(line, stdin=terminal, stdout=output)))
        os.close(terminal)
    yield [process for _, process in running]
    for keyboard, process in running:
        os.write(keyboard, b"\x03")
        process.wait(timeout=20)
        os.close(keyboard)


@pytest.fixture
def on_a_free_port():
    """Lines as they are, but for their port on this machine where something else has it."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 8080))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return lambda line: line.replace("-L 8080:", f"-L {port}:").replace(
        "http://127.0.0.1:8080/", f"http://127.0.0.1:{port}/"
    )


def wait_for_workers(way):
    """Until each RPC server listens: the next line is typed when the one before is up."""
    for worker in way.servers[:-1]:
        argv = worker.argv
        listens = f": </dev/tcp/{argv[argv.index('-H') + 1]}/{argv[argv.index('-p') + 1]}"
        inside = shlex.join(["bash", "-c", listens])
        deadline = time.monotonic() + 30
        while typed_in(f"nixwulf lab exec --name serve {worker.node} -- {inside}").wait() != 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def answer(line, servers):
    """What a server says to the line that asks it; it may take a while to load."""
    deadline = time.monotonic() + 60
    while True:
        text, _ = typed_in(line, stdout=subprocess.PIPE).communicate(timeout=60)
        if '"choices"' in text:
            return json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert [server.poll() for server in servers] == [None] * len(servers)
        assert time.monotonic() < deadline, text
        time.sleep(0.2)


def block(output, begin, end):
    """The indented lines between two others, as a user copies them."""
    lines = output.partition(begin)[2].partition(end)[0].splitlines()
    return [line.removeprefix("  ") for line in lines if line.startswith("  ")]


def test_the_best_way_is_measured_and_can_be_served_measured_again_and_reported(
    tmp_path, on_a_free_port
):
    folder = tmp_path / "run"
    # One at a time, so that no replicas are among them, which are served by several lines.
    process = start("--goal", "throughput", "--concurrency", "1", "--budget", "25s",
                    "--out", folder)  # fmt: skip
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors

    found = read_folder(folder)
    speeds = {
        one["id"]: metric["value"]
        for one in found.records
        for metric in one["metrics"]
        if metric["name"] == "throughput"
    }
    fastest = max(found.records, key=lambda one: speeds.get(one["id"], 0))
    assert fastest["outcome"] == "ok"
    (line,) = [line for line in output.splitlines() if line.startswith("Best measured: ")]
    assert f"{fastest['case']['nodes']} node" in line
    assert "predicted at first ~" in line

    assert found.planned_runs > len(found.records)
    assert load_sweep(folder / "best.yaml").name == "best"
    matrix = yaml.safe_load((folder / "best.yaml").read_text())["matrix"]
    assert matrix["nodes"] == [fastest["case"]["nodes"]]
    assert f"nixwulf bench {folder / 'best.yaml'} --cluster lab" in output
    assert (folder / "report.html").exists()

    (up,) = block(output, "To serve it", "until Ctrl-C:")
    *others, server = block(output, "until Ctrl-C:", "To ask it:")  # one node, or several
    (ask,) = map(on_a_free_port, block(output, "To ask it:", "At the end:"))
    (down,) = [line for line in output.splitlines() if line.startswith("At the end: ")]
    cluster = load_cluster("lab")
    try:
        assert typed_in(up).wait(timeout=60) == 0
        with terminals(others, tmp_path):
            if others:
                wait_for_workers(serving(fastest, cluster, fastest["case"]["nodes"]))
            with terminals([on_a_free_port(server)], tmp_path) as running:
                assert answer(ask, running)["choices"][0]["text"]
    finally:
        assert typed_in(down.removeprefix("At the end: ")).wait(timeout=30) == 0
    assert lab.labs() == []


def measured_on_two(parallelism, concurrency, tmp_path):
    """A record of serving with two nodes, measured now."""
    sweep, folder = tmp_path / "two.yaml", tmp_path / "run"
    parameters = {
        "threads": [1], "concurrency": [concurrency], "requests": [2], "n_prompt": [16],
        "n_gen": [8],
    }  # fmt: skip
    matrix = {
        "benchmark": ["serve"],
        "model": ["tiny"],
        "nodes": [2],
        "parallelism": [parallelism],
        "parameters": parameters,
    }
    document = {"name": "two", "models": {"tiny": {"random": {}}}, "matrix": matrix, "samples": 1}
    sweep.write_text(yaml.safe_dump(document))
    done = CliRunner().invoke(cli, ["bench", str(sweep), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return records(folder)[0]  # the pipeline is measured over each fabric


def test_two_nodes_of_one_pipeline_are_served_by_a_line_each(tmp_path, on_a_free_port):
    cluster = load_cluster("lab")
    way = serving(measured_on_two("pipeline", 1, tmp_path), cluster, 2)
    lines = serve_commands(way, cluster, "lab")
    *workers, head = lines.servers
    assert len(workers) == 2
    (up,), (down,) = lines.first, lines.last
    try:
        assert typed_in(up).wait(timeout=60) == 0
        with terminals(workers, tmp_path):
            wait_for_workers(way)
            with terminals([on_a_free_port(head)], tmp_path) as running:
                ask = on_a_free_port(lines.then[-1])
                assert answer(ask, running)["choices"][0]["text"]
    finally:
        assert typed_in(down).wait(timeout=30) == 0


def free_ports(count):
    """Ports of this machine that nothing has."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def test_replicas_are_served_by_a_line_each_and_answer_on_ports_of_their_own(tmp_path):
    measured = measured_on_two("replicas", 2, tmp_path)
    cluster = load_cluster("lab")
    lines = serve_commands(serving(measured, cluster, 2), cluster, "lab")
    ports = free_ports(2)
    servers = [
        line.replace(f"-L {there}:", f"-L {here}:")
        for line, there, here in zip(lines.servers[:2], (8080, 8081), ports, strict=True)
    ]
    (up,), (down,) = lines.first, lines.last
    try:
        assert typed_in(up).wait(timeout=60) == 0
        with terminals(servers, tmp_path) as running:
            for line, there, here in zip(lines.then, (8080, 8081), ports, strict=True):
                ask = line.replace(f":{there}/", f":{here}/")
                assert answer(ask, running)["choices"][0]["text"]
    finally:
        assert typed_in(down).wait(timeout=30) == 0


def test_an_interrupted_search_keeps_what_it_measured_and_says_the_best_of_it(tmp_path):
    folder = tmp_path / "run"
    process = start("--goal", "prompt", "--out", folder)
    deadline = time.monotonic() + 60
    while not records(folder):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert records(folder)
    assert "it was interrupted" in output
    assert "Best measured: " in output


def test_an_interrupt_right_when_a_record_is_kept_loses_nothing(tmp_path, monkeypatch):
    def save_and_interrupt(*arguments):
        record.save(*arguments)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(search, "save", save_and_interrupt)
    folder = tmp_path / "run"
    done = CliRunner().invoke(
        cli, ["tune", "--model", "random", *SHORT, "--goal", "prompt", "--out", str(folder)]
    )

    assert done.exit_code == 130, done.output
    assert len(records(folder)) == 1
    assert "it was interrupted" in done.output
    assert "Best measured: " in done.output


def test_a_search_that_cannot_go_on_says_why_and_the_best_of_what_it_measured(
    tmp_path, monkeypatch
):
    def full_at_the_second(document, path, *rest):
        if records(folder):
            raise InputError(f"{path} cannot be written (No space left on device).")
        record.save(document, path, *rest)

    monkeypatch.setattr(search, "save", full_at_the_second)
    folder = tmp_path / "run"
    done = CliRunner().invoke(
        cli, ["tune", "--model", "random", *SHORT, "--goal", "prompt", "--out", str(folder)]
    )

    assert done.exit_code == 2, done.output
    assert "No space left on device" in done.output
    assert "Best measured: " in done.output
    assert (folder / "report.html").exists()
