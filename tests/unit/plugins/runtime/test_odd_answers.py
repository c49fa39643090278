"""An answer that is too deep, too long or without an end fails the run, in little memory."""

import math
import socketserver
import threading
import time
import tracemalloc
from types import SimpleNamespace

import pytest

from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import RunFailure

# no output: what no server should send
HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n\r\n"
DEEP = HEAD % b"200 OK" + b"[" * 200_000
GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnone"


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    """Of a server that sends bytes, and for `flood` some more without an end."""

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.request.recv(65536)
            try:
                self.request.sendall(server.first)
                while server.flood:
                    self.request.sendall(server.flood)
                    time.sleep(server.pause_s)
            except OSError:
                pass

    server = Server(str(tmp_path / "s"), Handler)
    server.first, server.flood, server.pause_s = b"", b"", 0
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    process = SimpleNamespace(
        program="server", running=True, output_at=0.0, background=True, stop=lambda: None
    )
    run = SimpleNamespace(
        limits=SimpleNamespace(wall_s=60, progress_s=60),
        deadline=math.inf,
        owned=[process],
        deaths=lambda: "",
        prove_from_here=lambda: None,
    )
    yield Endpoint(run, tmp_path / "s", "tiny", process), server
    server.flood = b""
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("content", [DEEP, GZIP, b"HTTP/9.9 abc\r\n\r\n", b"", HEAD % b"204 No"])
def test_an_answer_that_cannot_be_read_is_a_failure_without_a_traceback(endpoint, content, capfd):
    reached, server = endpoint
    server.first = content
    with pytest.raises(RunFailure, match="'server' did not answer '/tokenize': .") as failure:
        reached.post("/tokenize", {})
    assert failure.value.outcome == "failed"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("status", [b"200 OK", b"500 No"])
def test_an_answer_without_an_end_is_not_kept(endpoint, monkeypatch, status):
    monkeypatch.setattr("nixwulf.core.web.LONGEST", 4 << 20)
    reached, server = endpoint
    server.first, server.flood = HEAD % status, b" " * 65536
    tracemalloc.start()
    with pytest.raises(RunFailure, match="more than 4 MiB came"):
        reached.get("/props")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 << 20


def test_a_health_whose_body_never_ends_is_health(endpoint):
    reached, server = endpoint
    server.first, server.flood, server.pause_s = HEAD % b"200 OK", b" ", 0.5
    begin = time.monotonic()
    reached.wait_until_healthy()
    assert time.monotonic() - begin < 5
