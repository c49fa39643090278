"""A service as a file, its limits by a record, what a server counts, and nginx in front of it."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from nixwulf.core.errors import InputError
from nixwulf.core.files import cache_dir
from nixwulf.core.schema import check
from nixwulf.core.web import Reply
from nixwulf.sweep.serve import counters, proxy, units
from nixwulf.sweep.serve.service import (
    Host,
    ServedGroup,
    Service,
    ServiceEvent,
    UnitOfServer,
    check_address,
    check_name,
    limits_of,
    moment,
    read_service,
)
from nixwulf.sweep.serve.watch import WatchLimits

GROUPS = (
    ServedGroup("n1", "127.0.0.1", 18081, (UnitOfServer("n1-llama-server", "n1"),), (), "/m.gguf"),
    ServedGroup("n2", "10.77.1.12", 18081, (UnitOfServer("n2-llama-server", "n2"),), (50052,)),
)
SERVICE = Service(
    name="chat",
    cluster="lab",
    created="2026-11-28T19:14:40.157Z",
    engine="llama.cpp",
    model="/m.gguf",
    called="m.gguf",
    case={"nodes": 2},
    record="74d4ae00ef82-r0",
    port=18080,
    proxied=True,
    hosts=(
        Host("n1", "n1"),
        Host("n2", "user@n2", "ssh-ed25519 AAAA", "10.77.1.12", ("eth1",), ("rxe0",)),
    ),
    groups=GROUPS,
    limits=WatchLimits(still_s=90, busy_watts=41.5),
    canary=("/v1/completions", {"prompt": "The quick"}),
)


def record(ttft=(), launch=0.0, watts=None):
    metrics = [{"name": "ttft", "unit": "ms", "value": ttft[0], "samples": [*ttft]}] if ttft else []
    nodes = {"n1": {"watts": watts}} if watts else {}
    return {"metrics": metrics, "phases": {"launch": launch}, "power": {"nodes": nodes}}


def test_a_service_is_read_back_as_it_was_written():
    text = json.dumps(SERVICE.document())
    assert read_service(text, "service.json") == SERVICE


@pytest.mark.parametrize("change", [{"schema_version": "2.0"}, {"kind": "run"}, {"hosts": 1}])
def test_another_document_is_refused_with_what_to_do(change):
    text = json.dumps({**SERVICE.document(), **change})
    with pytest.raises(InputError, match="is no service of version 1.0; the nixwulf that wrote"):
        read_service(text, "service.json")


@pytest.mark.parametrize("name", ["", "Chat", "a/b", "../x", "-a", "a" * 33, "a b"])
def test_a_name_that_is_no_plain_word_is_refused(name):
    with pytest.raises(InputError, match="give one by --name, such as --name chat"):
        check_name(name)


def test_the_limits_are_three_times_what_the_longest_prompt_and_loading_took():
    limits = limits_of(record([4_000, 61_000, 20_000], launch=200))
    assert (limits.still_s, limits.start_s) == (183, 600)


def test_a_case_that_answers_at_once_still_has_half_a_minute():
    limits = limits_of(record([12]))
    assert (limits.still_s, limits.start_s, limits.busy_watts) == (30, 60, None)


def test_watts_tell_only_where_work_draws_more_than_waiting():
    loaded = {"nvidia": {"idle": 20.0, "average": 120.0}, "rapl": {"idle": 5.0, "average": 50.0}}
    assert limits_of(record(watts=loaded)).busy_watts == 50.0
    flat = {"amdgpu": {"idle": 20.0, "average": 24.0}}
    assert limits_of(record(watts=flat)).busy_watts is None
    assert limits_of(record(watts={"amdgpu": {"average": 24.0}})).busy_watts is None


def test_an_event_holds_against_its_schema():
    event = ServiceEvent("chat", "n1", moment(), "stalled", "It holds a request.", "restarted")
    check(event.document(), "event", "test")
    full = replace(event, evidence="evidence/1", seconds={"noticed": 31.0}, restarts=1)
    check(full.document(), "event", "test")
    with pytest.raises(InputError, match="action is 'gone', expected one of 'started'"):
        check(replace(event, action="gone").document(), "event", "test")


# hand-made: cut from what llama-server 0c1e570 of the lab answered GET /slots while one of its two
# slots computed (form: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md)
SLOTS = [
    {"id": 0, "n_ctx": 1024, "speculative": False, "is_processing": False},
    {
        "id": 1,
        "is_processing": True,
        "id_task": 1,
        "n_prompt_tokens": 41,
        "n_prompt_tokens_processed": 15,
        "next_token": [{"has_next_token": True, "n_remain": 1474, "n_decoded": 26}],
    },
]
# hand-made: (form: https://docs.vllm.ai/en/latest/design/metrics.html)
METRICS = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 96.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 1.5
"""


def server(**bodies):
    """What a server with these answers by path gives to GET, and 404 for all others."""

    def fetch(path):
        body = bodies.get(path.strip("/").replace("/", "_"))
        return Reply(404 if body is None else 200, (body or "").encode(), {})

    return fetch


def test_requests_and_tokens_are_read_of_slots():
    fetch = server(slots=json.dumps(SLOTS))
    found = counters.read(fetch, counters.find_path(fetch))
    assert found == counters.ServerCounters(True, 1, prompted=15, generated=26)
    idle = server(slots=json.dumps(SLOTS[:1]))
    none = counters.ServerCounters(True, 0, prompted=0, generated=0)
    assert counters.read(idle, counters.find_path(idle)) == none


def test_requests_and_tokens_are_read_of_metrics_that_prometheus_reads():
    fetch = server(metrics=METRICS)
    found = counters.read(fetch, counters.find_path(fetch))
    assert found == counters.ServerCounters(True, 3, 1, 1500, 96, 3, 1.5)


def test_a_server_without_counters_is_only_asked_whether_it_answers():
    fetch = server(v1_models="{}")
    assert counters.find_path(fetch) == counters.MODELS
    assert counters.read(fetch, counters.MODELS) == counters.ServerCounters(answers=True)
    assert counters.read(server(), counters.MODELS) == counters.ServerCounters(answers=False)


def test_a_look_has_each_process_with_its_state_and_its_seconds():
    # no output: of our own script
    text = "nixwulf-unit n1-a 12 T 250\nnixwulf-unit n1-b 0 - 0\nnixwulf-microwatts 41000000\n"
    look = units.parse_look(text)
    assert look.units["n1-a"] == units.UnitSign(12, stopped=True, cpu_s=2.5)
    assert look.units["n1-b"].process == 0
    assert look.watts == 41.0


def test_nginx_leads_to_every_server_and_listens_on_the_loopback_alone():
    text = proxy.config(SERVICE, "/home/user/service")
    assert text.count("server 127.0.0.1:18081 ") == text.count("server 10.77.1.12:18081 ") == 2
    assert [line.strip() for line in text.splitlines() if "listen" in line] == [
        "listen 127.0.0.1:18080;"
    ]


def test_nginx_listens_where_others_are_only_by_an_address_with_a_key():
    with pytest.raises(InputError, match="give a key by --api-key-file FILE"):
        check_address("192.168.7.5", closed=False)
    with pytest.raises(InputError, match="is no IPv4 address"):
        check_address("head", closed=True)
    assert check_address("", closed=False) == check_address("", closed=True) == "127.0.0.1"
    open_ = replace(SERVICE, address=check_address("192.168.7.5", closed=True), closed=True)
    assert "listen 192.168.7.5:18080;" in proxy.config(open_, "/home/user/service")
    assert (open_.url, open_.local, SERVICE.local) == ("http://192.168.7.5:18080/v1", False, True)


# no output: files of keys
NO_KEYS = ["", "short", "two words of a key", "0123456789abcdef\nmore", '"']


@pytest.mark.parametrize("text", NO_KEYS)
def test_a_file_without_a_key_is_refused_and_never_quoted(tmp_path, text):
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(InputError, match="openssl rand -hex 24") as refused:
        proxy.read_key(file)
    assert not text or text not in refused.value.message.replace(str(file), "")
    # no output: a key
    file.write_text("0123456789abcdef\n")
    assert proxy.read_key(file) == "0123456789abcdef"


NGINX = shutil.which("nginx", path=f"/usr/sbin:/usr/bin:{cache_dir() / 'nginx/usr/sbin'}")


@pytest.mark.skipif(not NGINX, reason="no nginx here")
@pytest.mark.parametrize("key", ["", "0123456789abcdef" * 8])
def test_nginx_itself_finds_nothing_wrong_with_its_configuration(tmp_path, key):
    file = tmp_path / proxy.FILE
    file.write_text(proxy.config(SERVICE, str(tmp_path)))
    (tmp_path / proxy.KEYS).write_text(proxy.known(key))
    command = [NGINX, "-t", "-p", tmp_path, "-c", file, "-e", "stderr"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
