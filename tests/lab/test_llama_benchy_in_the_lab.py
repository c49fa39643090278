"""llama-benchy against a real llama-server, by the server's own clock.

`make setup-tests` installs it, in .venv/llama-benchy; where neither that nor PATH has it, these
tests are skipped.
"""

import json
import os
import re
import shutil
import statistics
import sys
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from lab_under_test import Silent, llama_server, recorded

from nixwulf.llm import random_model
from nixwulf.plugins.benchmarks.llama_benchy import BOOK_FILE
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

LEFT = "grep -lsE 'rpc-server|llama-server|llama-benchy' /proc/[0-9]*/comm || true"
INSTALLED = f"{os.environ['PATH']}:{Path(sys.prefix) / 'llama-benchy' / 'bin'}"
# Large enough that a token takes milliseconds.
MODEL = {"layers": 4, "hidden": 768, "heads": 12, "kv_heads": 12, "feed_forward": 2048}

pytestmark = pytest.mark.skipif(
    shutil.which("llama-benchy", path=INSTALLED) is None,
    reason="there is no llama-benchy; 'make setup-tests' installs it",
)


def plan_for(cluster, samples=2, matrix=None, progress_s=30, **parameters):
    document = {
        "name": "benchy",
        "models": {"small": {"random": MODEL}},
        "matrix": {
            "benchmark": ["llama-benchy"],
            "model": ["small"],
            "nodes": [1],
            "parallelism": ["single"],
            **(matrix or {}),
            "parameters": {key: [value] for key, value in (parameters | {"threads": 1}).items()},
        },
        "samples": samples,
        "limits": {"wall_s": 120, "progress_s": progress_s},
    }
    return make_plan(parse_sweep(document, "benchy.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster), Silent()) as connected:
        yield connected


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a text in place of the book, which is on the internet."""
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", f"{Path.home()}/.cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", INSTALLED)
    book = tmp_path / "home" / BOOK_FILE
    book.parent.mkdir(parents=True)
    book.write_text("\n".join(topics[name] for name in sorted(topics)), "ascii", "ignore")
    return book


@pytest.fixture
def run(nodes, tmp_path, home):
    return partial(recorded, nodes, tmp_path, LEFT)


def metrics_of(record):
    assert record["outcome"] == "ok", record.get("failure")
    return {metric["name"]: metric for metric in record["metrics"]}


def test_its_numbers_are_the_servers_own_of_the_same_requests(run, cluster, tmp_path):
    record = run(plan_for(cluster, 4, n_prompt=512, n_gen=64))
    metrics = metrics_of(record)
    assert "warnings" not in record
    *_, log = sorted(tmp_path.glob("raw/*/llama-server-*.stderr"))
    prompts = re.findall(r"prompt eval time = +([\d.]+) ms / +(\d+) tok", log.read_text())[-4:]
    answers = re.findall(r"\|  +eval time = +([\d.]+) ms / +(\d+) tok", log.read_text())[-4:]
    assert [int(tokens) for _, tokens in answers] == [64] * 4, "by --exact-tg"
    server = {
        "decode": [63 / float(ms) * 1000 for ms, _ in answers],
        "prompt": [int(tokens) / float(ms) * 1000 for ms, tokens in prompts],
        "ttft": [float(ms) for ms, _ in prompts],
    }
    for name, theirs in server.items():
        pairs = zip(metrics[name]["samples"], theirs, strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        assert ratio == pytest.approx(1, abs=0.1), f"{name} is {ratio:.3f} times the server's"
    assert metrics["prompt"]["observed"]["llama_benchy"]
    (client,) = [c for c in record["commands"] if c["node"] == "driver"]
    assert client["returncode"] == 0
    assert client["environment"]["no_proxy"].endswith("127.0.0.1")


def test_a_cached_depth_is_read_once_for_requests_at_once_over_rpc(run, cluster):
    two = {"nodes": [2], "fabric": ["rdma-like"], "parallelism": ["pipeline"]}
    load = {"concurrency": 2, "n_prompt": 96, "n_gen": 8, "depth": 256, "prefix_caching": "on"}
    record = run(plan_for(cluster, 2, two, **load))
    assert record["outcome"] == "ok", record.get("failure")
    assert record["sanity"]["transport"]["proved"]
    of_depth = {one["name"] for one in record["metrics"] if one["conditions"].get("context")}
    of_rest = {one["name"] for one in record["metrics"] if "context" not in one["conditions"]}
    assert of_depth == of_rest
    assert {"prompt", "prompt_throughput", "decode", "throughput", "ttft"} <= of_rest
    assert all(len(one["samples"]) in (2, 4) for one in record["metrics"])
    server = record["commands"][-2]
    assert Path(server["argv"][0]).name == "llama-server"
    size = server["argv"].index("-np")
    assert server["argv"][size : size + 4] == ["-np", "2", "-c", str(2 * (256 + 96 + 8 + 128))]


def test_a_server_that_wants_a_key_gets_it_and_no_file_that_is_kept_has_it(
    nodes, home, cluster, tmp_path, monkeypatch
):
    key, port = "s3cr3t-of-the-endpoint", 18090
    tokenizer = tmp_path / "tokenizer" / "tokenizer.json"
    tokenizer.parent.mkdir()
    tokenizer.write_text(json.dumps(random_model.tokenizer()))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    document = plan_for(cluster, 1).sweep.document
    document["models"] = {"small": {"served": "mine"}}
    document["matrix"]["engine"] = ["endpoint"]
    document["matrix"]["parameters"] = {
        "url": [f"http://127.0.0.1:{port}"],
        "environment": [{"OPENAI_API_KEY": None}],
        "tokenizer": [str(tokenizer)],
        "n_prompt": [64],
        "n_gen": [8],
    }
    plan = make_plan(parse_sweep(document, "benchy.yaml"), cluster)
    left = LEFT.replace("|llama-server", "")
    with llama_server(nodes.nodes["n1"], tmp_path / "user", port, "-a", "mine", "--api-key", key):
        record = recorded(nodes, tmp_path / "run", left, plan)
    assert {"decode", "prompt", "ttft"} <= metrics_of(record).keys()
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(kept) > 2
    assert not [path for path in kept if key.encode() in path.read_bytes()]


def test_without_internet_it_says_what_to_put_where(run, cluster, home, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    home.unlink()
    record = run(plan_for(cluster, n_prompt=64, n_gen=8))
    assert record["outcome"] == "failed"
    assert f"copy book.txt to '~/{BOOK_FILE}' on this one." in record["failure"]["reason"]


def test_it_is_stopped_when_the_server_hangs(run, cluster, nodes, tmp_path):
    import threading
    import time

    def stop():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for output in tmp_path.glob("raw/*/llama-benchy.stdout"):
                if "Run 1/" in output.read_text():
                    nodes.nodes["n1"].script("pkill -STOP -x llama-server")
                    return
            time.sleep(0.02)

    def on_phase(phase):
        if phase == "measure":
            threading.Thread(target=stop, daemon=True).start()

    record = run(plan_for(cluster, 400, n_prompt=64, n_gen=64, progress_s=4), on_phase)
    assert record["outcome"] == "hang"
    assert "'llama-server' was silent for 4 s" in record["failure"]["reason"]
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(p)]
    assert left == []


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
