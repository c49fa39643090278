"""What llama-benchy is given, how its failures are worded, and the port in front of a server."""

import contextlib
import json
import re
import socket
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from socketserver import ThreadingUnixStreamServer
from types import SimpleNamespace

import pytest

from launch_plan import planned
from nixwulf.llm.random_model import tokenizer
from nixwulf.outputs.llama_benchy import metrics_of, report_in
from nixwulf.plugins.benchmarks import llama_benchy
from nixwulf.plugins.benchmarks.llama_benchy import BENCHMARK, arguments, problem_in, warnings
from nixwulf.plugins.runtime.loopback import loopback_port
from nixwulf.plugins.runtime.run import RunFailure
from tool_outputs import fixture

# no output: coordinates of a case
POINT = {"engine": "llama.cpp", "nodes": 1, "parallelism": "single", "transport": None}
# no output: parameters of a case
VALUES = {"concurrency": 1, "n_prompt": 64, "n_gen": 8, "depth": 0, "prefix_caching": "off"}
VALUES |= {"tokenizer": ""}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-book", "on a machine with internet run 'curl -o book.txt https://www.gutenberg.org/"),
        ("no-book", "copy book.txt to '~/.cache/llama-benchy/cc6a0b5782734ee3b9069aa3b64cc62c.txt"),
        ("no-tokenizer", "found no tokenizer 'no/such'; give the parameter tokenizer"),
        ("too-long", "request that failed: HTTP 400: .*exceeds the available context size"),
    ],
)
def test_a_failure_is_one_sentence_with_what_to_do(name, words):
    problem = problem_in(fixture(f"llama-benchy/{name}.txt"))
    assert problem
    assert "\n" not in problem
    assert re.search(words, problem)


def test_an_output_with_results_has_no_problem():
    assert problem_in(fixture("llama-benchy/one-request.txt")) is None


def test_prompts_that_it_counts_otherwise_than_asked_for_are_a_warning():
    """The server's template has 54 tokens, which leaves 10 of 64: it then counts 10, not 64."""
    found = metrics_of(report_in(fixture("llama-benchy/one-request.txt")))
    (sentence,) = warnings(found, VALUES)
    assert sentence.startswith("Of 2 prompts 2 had another length than asked for, the first 10 ")
    assert "instead of 64: the parameter tokenizer names another model's" in sentence
    assert warnings(found, {**VALUES, "n_prompt": 10}) == []


def test_caching_of_no_depth_is_no_case():
    point = {**POINT, "parameters": {**VALUES, "prefix_caching": "on"}}
    assert BENCHMARK.unsupported(point) == (
        "prefix_caching caches the depth, and that is 0; give a depth"
    )
    assert BENCHMARK.unsupported({**POINT, "parameters": VALUES}) is None


def run_of(tmp_path, model, **parameters):
    matrix = {"engine": ["llama.cpp"], "benchmark": ["llama-benchy"], "nodes": [1]}
    matrix |= {"parallelism": ["single"]}
    matrix["parameters"] = {name: [value] for name, value in parameters.items()}
    run = planned(tmp_path, "framework-2", model, matrix)
    given = SimpleNamespace(random=None, id=None, hub=None, **model) if "hub" not in model else None
    given = given or SimpleNamespace(random=None, id=None, **model)
    run.bring_model = lambda name: SimpleNamespace(model=given)
    return run


def test_its_command_line_has_the_case_and_nothing_that_is_cached(tmp_path):
    run = run_of(tmp_path, {"path": "/m.gguf"}, n_prompt=512, n_gen=16, depth=64)
    argv = arguments(run, "http://127.0.0.1:1/v1", "m.gguf", "a/b")
    pairs = dict(pairwise(argv))
    assert pairs["--base-url"] == "http://127.0.0.1:1/v1"
    assert (pairs["--pp"], pairs["--tg"], pairs["--depth"]) == ("512", "16", "64")
    assert (pairs["--served-model-name"], pairs["--tokenizer"]) == ("m.gguf", "a/b")
    assert "--no-cache" in argv
    cached = run_of(tmp_path, {"path": "/m.gguf"}, depth=64, prefix_caching="on")
    argv = arguments(cached, "http://127.0.0.1:1/v1", "m.gguf", "a/b")
    assert "--enable-prefix-caching" in argv
    assert "--no-cache" not in argv


def test_the_tokenizer_is_the_one_given_else_the_models_own(tmp_path):
    (tmp_path / "here").mkdir()
    here = str(tmp_path / "here")
    with llama_benchy._tokenizer(run_of(tmp_path, {"path": "/m.gguf"}, tokenizer=here)) as found:
        assert found == here
    with llama_benchy._tokenizer(run_of(tmp_path, {"path": "/m.gguf", "hub": "a/b"})) as found:
        assert found == "a/b"
    for parameters, words in (
        ({}, "The tokenizer of 'm' is not known; give the parameter tokenizer"),
        ({"tokenizer": "/no/such"}, "There is no tokenizer '/no/such' on this machine"),
    ):
        run = run_of(tmp_path, {"path": "/m.gguf"}, **parameters)
        with pytest.raises(RunFailure, match=words) as failure, llama_benchy._tokenizer(run):
            pass
        assert failure.value.outcome == "skipped"


def test_the_byte_tokenizer_has_each_byte_once():
    words = tokenizer()["model"]["vocab"]
    assert sorted(words.values()) == list(range(256))
    assert json.dumps(tokenizer())


def test_the_gate_says_how_to_install_what_this_machine_lacks(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert BENCHMARK.missing_here() == (
        "'llama-benchy' on PATH; run \"pip install 'llama-benchy>=0.3.8'\""
    )
    assert BENCHMARK.missing({}) is None
    program = tmp_path / "llama-benchy"
    program.touch(0o755)
    assert BENCHMARK.missing_here() is None


class Answering(BaseHTTPRequestHandler):
    """Keeps connections open, as HTTP/1.1 does, and answers with what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        for name in ("Host", "Authorization"):
            self.send_header(f"Sent-{name}", self.headers.get(name, ""))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass

    def address_string(self):
        return ""


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "s"
    with ThreadingUnixStreamServer(str(path), Answering) as serving:
        serving.daemon_threads = True
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield path
        serving.shutdown()


def endpoint_at(path, base_url="http://head", headers=()):
    return SimpleNamespace(socket=path, base_url=base_url, headers=dict(headers))


def test_the_port_carries_all_bytes_and_closes_after_each_answer(server):
    events = []
    sent = bytes(range(256)) * 4000
    with loopback_port(endpoint_at(server), lambda: events.append(1)) as port:
        client = HTTPConnection("127.0.0.1", port, timeout=20)
        for _ in range(3):
            client.request("POST", "/", sent)
            answer = client.getresponse()
            assert answer.will_close
            assert answer.read() == sent
    assert events
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_request_has_the_key_and_the_host_of_the_endpoint_in_place_of_the_clients(server):
    foreign = endpoint_at(server, "http://box.test:8000/api", {"Authorization": "Bearer secret"})
    for endpoint, host, key in (
        (endpoint_at(server), "head", ""),
        (foreign, "box.test:8000", "Bearer secret"),
    ):
        with loopback_port(endpoint, lambda: None) as port:
            client = HTTPConnection("127.0.0.1", port, timeout=20)
            client.request("POST", "/", b"x", {"Authorization": "Bearer EMPTY"})
            answer = client.getresponse()
            assert answer.read() == b"x"
        assert (answer.headers["Sent-Host"], answer.headers["Sent-Authorization"]) == (host, key)


def test_what_is_no_request_is_a_closed_connection(server):
    with loopback_port(endpoint_at(server), lambda: None) as port:
        # no output: what a client sends
        for sent in (b"GET / HTTP/1.1\r\n", b"x" * (1 << 17)):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""


def test_a_server_that_is_gone_is_a_closed_connection(tmp_path):
    with loopback_port(endpoint_at(tmp_path / "none"), lambda: None) as port:
        client = HTTPConnection("127.0.0.1", port, timeout=20)
        client.connect()
        client.sock.settimeout(20)
        assert client.sock.recv(1) == b""
