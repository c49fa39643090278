"""/metrics and top: what the watch sees, as the real Prometheus reads it and a screen shows it."""

import json
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from test_served_documents import SERVICE

from nixwulf.core import web
from nixwulf.core.files import cache_dir
from nixwulf.nodes.counters import Counters
from nixwulf.sweep.serve import seen, top, units
from nixwulf.sweep.serve.control import LiveService
from nixwulf.sweep.serve.watch import ServerSample

PATH = f"/usr/bin:{cache_dir() / 'prometheus/usr/bin'}"
PROMTOOL, PROMETHEUS = (shutil.which(name, path=PATH) for name in ("promtool", "prometheus"))
needs_prometheus = pytest.mark.skipif(not PROMTOOL, reason="no promtool here")

# no output: of our own script, after a line of /proc/net/dev
LOOK = """nixwulf-unit n2-llama-server 41 R 250
nixwulf-microwatts 41000000
nixwulf-millidegrees k10temp 51000
nixwulf-millidegrees coretemp 61000
nixwulf-millidegrees coretemp 64500
nixwulf-kilohertz cpu 2400000
nixwulf-kilohertz cpu 3600000
nixwulf-memory MemTotal: 1024
nixwulf-memory MemAvailable: 512
nixwulf-nvidia 12.40, 45, 208
nixwulf-nvidia [N/A], 46, [N/A]
/proc/net/dev:  eth1: 1000 9 2 0 0 0 0 0 500 9 1 0 0 0 0 0
/proc/net/dev:    lo: 7 9 9 0 0 0 0 0 5 9 1 0 0 0 0 0
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def looked(text=LOOK):
    return units.parse_look(text)


def node(before=None, seconds=5.0):
    return seen.seen_node(SERVICE.host("n2"), looked(), before, seconds)


# no output: what the watch keeps
SERVER = {
    "state": "decoding",
    "why": "",
    "still_s": 0.0,
    "restarts": 1,
    "requests": 2,
    "queued": None,
    "prompted": 1500,
    "generated": 96,
    "prompt_per_s": None,
    "decode_per_s": 34.25,
    "first_token_s": 1.5,
    "first_tokens": 3,
    "canary_s": 0.41,
}
# no output: what the watch keeps
SEEN = {
    "at": "2026-11-29T02:00:00.000Z",
    "watched": True,
    "held": True,
    "servers": {"n1": SERVER, "n2": {**SERVER, "state": "stalled", "why": "It stands still."}},
    "nodes": {"n1": None, "n2": node()},
}


def test_a_look_has_what_sensors_memory_and_interfaces_tell():
    look = looked()
    assert look.watts == pytest.approx(53.4)
    assert look.celsius == {"k10temp": 51.0, "coretemp": 64.5, "nvidia": 46.0}
    assert look.mhz == {"cpu": 3000.0, "nvidia": 208.0}
    assert look.memory == {"MemTotal": 1 << 20, "MemAvailable": 1 << 19}
    assert look.errors == {"eth1": 3, "lo": 10}


def test_a_node_has_its_ends_of_the_fabric_and_rates_since_the_look_before():
    now = node()
    assert (now["fabric_bytes"], now["fabric_errors"]) == ({"eth1": 1500}, {"eth1": 3})
    assert now["fabric_per_s"] is now["units"]["n2-llama-server"]["cores"] is None
    before = looked(LOOK.replace("R 250", "R 50").replace("eth1: 1000", "eth1: 500"))
    later = node(before, 2.0)
    assert later["fabric_per_s"] == 250.0
    assert later["units"]["n2-llama-server"] == {"running": True, "cpu_s": 2.5, "cores": 1.0}


def test_tokens_a_second_are_of_the_last_two_samples_and_of_no_restart():
    def sample(at, prompted, generated):
        return ServerSample(at, (), answers=True, prompted=prompted, generated=generated)

    assert seen.rates([sample(1.0, 0, 0)]) == (None, None)
    assert seen.rates([sample(1.0, 0, 10), sample(3.0, None, 30)]) == (None, 10.0)
    assert seen.rates([sample(1.0, 500, 90), sample(3.0, 0, 4)]) == (None, None)


@pytest.fixture(scope="module")
def published():
    port = free_port()
    seen.publish(replace(SERVICE, metrics_port=port), lambda: SEEN)
    return port


def text_of(port):
    return web.fetch(web.client(f"http://127.0.0.1:{port}"), "GET", "/metrics", 5).text


def test_metrics_have_a_value_for_each_server_node_and_unit(published):
    rows = {
        (row.name.removeprefix("nixwulf_"), *sorted(row.labels.values())): row.value
        for family in text_string_to_metric_families(text_of(published))
        for row in family.samples
    }
    assert rows["server_state", "chat", "decoding", "n1"] == 1
    assert rows["server_state", "chat", "decoding", "n2"] == 0
    assert rows["server_generated_tokens_total", "chat", "n1"] == 96
    assert (rows["node_up", "chat", "n1"], rows["node_up", "chat", "n2"]) == (0, 1)
    assert rows["node_fabric_bytes_total", "chat", "eth1", "n2"] == 1500
    assert rows["node_temperature_celsius", "chat", "coretemp", "n2"] == 64.5
    assert rows["unit_up", "chat", "n2", "n2-llama-server"] == 1
    # What nobody tells has no value, not 0.
    assert not [row for row in rows if row[0] == "server_queued_requests"]


@needs_prometheus
def test_promtool_finds_nothing_to_say_of_the_metrics(published):
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=text_of(published),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_prometheus
@pytest.mark.slow
@pytest.mark.repository
def test_prometheus_reads_the_example_and_answers_every_query_of_the_dashboard(published, tmp_path):
    config = yaml.safe_load(Path("examples/monitoring/prometheus.yml").read_text())
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{published}"]
    config["global"]["scrape_interval"] = "200ms"
    file, port = tmp_path / "prometheus.yml", free_port()
    file.write_text(yaml.safe_dump(config))
    command = [PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={tmp_path}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stderr=log) as running:
        try:
            dashboard = json.loads(Path("examples/monitoring/grafana.json").read_text())
            asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
            empty = {one for one in asked if "queued" in one}
            found = {}
            until = time.monotonic() + 60
            while set(found) | empty < set(asked) and time.monotonic() < until:
                time.sleep(0.5)
                for expr in asked:
                    words = quote(expr.replace("$service", "chat"))
                    if rows := query(port, words):
                        found[expr] = rows
            assert set(asked) - set(found) == empty
        finally:
            running.terminate()


def query(port, words):
    client = web.client(f"http://127.0.0.1:{port}")
    try:
        reply = web.fetch(client, "GET", f"/api/v1/query?query={words}", 5)
    except web.NoAnswer:
        return []
    return reply.json["data"]["result"] if reply.ok else []


def test_a_screen_has_eighty_columns_and_says_what_is_not_told():
    console = Console(width=80, record=True, force_terminal=False)
    console.print(top.screen(LiveService(SERVICE, {}), SEEN))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    words = [line.split() for line in lines]
    assert ["n1", "decoding", "2", "-", "-", "34.2", "0", "1"] in words
    assert ["n1", "no", "answer"] in words
    assert ["n2", "-", "53", "64", "3,000", "0.0", "-", "3"] in words
    assert "n2: It stands still." in lines


def test_a_service_without_a_watch_is_no_quiet_one():
    console = Console(width=80, record=True, force_terminal=False)
    console.print(top.screen(LiveService(SERVICE, {}), {**SEEN, "watched": False}))
    assert "NOBODY WATCHES IT" in console.export_text()
    assert isinstance(looked().counters, Counters)
