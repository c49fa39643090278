"""What a sweep or a run of somebody else takes of this machine, only where its user allows it."""

import shlex
import socket

import pytest
from click.testing import CliRunner

from nixwulf.cli.bench import own_folder
from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.results.record import save
from nixwulf.sweep import consent, session
from nixwulf.sweep.consent import Consent
from nixwulf.sweep.plan import make_plan, parse_sweep, plan_to_resume, save_plan
from record_factory import metric, ok

CLUSTER = """
name = "own"
[fabrics.cable]
kind = "ethernet"
speed_gbps = 1
mtu = 1500
subnet = "10.99.0.0/24"
[[nodes]]
name = "a"
platform = "generic-x86_64"
ssh = "me@a.invalid"
fabrics.cable = { interface = "eth0", address = "10.99.0.1" }
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(CLUSTER)
    return path


def plan_of(own, engine="endpoint", **parameters):
    model = {"served": "m"} if engine == "endpoint" else {"path": "/models/m.gguf"}
    document = {
        "name": "theirs",
        "models": {"m": model},
        "matrix": {
            "engine": [engine],
            "benchmark": ["serve"],
            "model": ["m"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {key: [value] for key, value in parameters.items()},
        },
    }
    return make_plan(parse_sweep(document, "theirs.yaml"), load_cluster(own))


ELSEWHERE = [
    ("http://evil.example:8000", "evil.example"),
    ("http://127.0.0.1.evil.example", "127.0.0.1.evil.example"),
    ("http://10.99.0.2:80", "10.99.0.2"),
    ("http://localhost.evil", "localhost.evil"),
    ("https://EVIL.example/v1", "evil.example"),
    ("http://[2001:db8::1]:80", "2001:db8::1"),
    ("http://2130706433:80", "2130706433"),
    ("http://192.0.2.1:80/v1", "192.0.2.1"),
]


@pytest.mark.parametrize(("url", "host"), ELSEWHERE)
def test_an_address_outside_of_the_cluster_is_asked_only_where_it_is_allowed(own, url, host):
    plan = plan_of(own, url=url)
    with pytest.raises(InputError) as refusal:
        consent.require(plan, Consent())
    assert f"--allow-url {shlex.quote(host)}" in refusal.value.message
    with pytest.raises(InputError):
        consent.require(plan, Consent(hosts=frozenset({"example"})))
    consent.require(plan, Consent(hosts=frozenset({host})))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "http://localhost:1",
        "http://[::1]:1",
        "http://10.99.0.1",
        "http://a.invalid",
    ],
)
def test_the_clusters_own_addresses_need_no_consent(own, url):
    consent.require(plan_of(own, url=url), Consent())


def test_a_variable_of_this_environment_is_taken_only_by_its_name(own):
    plan = plan_of(own, url="http://127.0.0.1:1", environment={"OPENAI_API_KEY": None})
    with pytest.raises(InputError) as refusal:
        consent.require(plan, Consent(secrets=frozenset({"OPENAI"})))
    assert "--allow-secrets OPENAI_API_KEY" in refusal.value.message
    consent.require(plan, Consent(secrets=frozenset({"OPENAI_API_KEY"})))


@pytest.mark.parametrize(
    "parameters",
    [
        {"arguments": "--otlp-traces-endpoint http://evil.example:4317"},
        {"environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://evil.example:4317"}},
    ],
)
def test_an_address_in_arguments_or_variables_is_asked_only_where_it_is_allowed(own, parameters):
    plan = plan_of(own, "llama.cpp", **parameters)
    with pytest.raises(InputError) as refusal:
        consent.require(plan, Consent())
    assert "--allow-url evil.example'" in refusal.value.message
    consent.require(plan, Consent(hosts=frozenset({"evil.example"})))


def test_a_text_that_only_looks_like_an_address_is_asked_for_as_it_is(own):
    plan = plan_of(own, "llama.cpp", arguments="--x http://[::::]/")
    assert consent.needed(plan).hosts == {"[::::]"}


def test_what_runs_code_is_named_before_it_runs_and_in_a_dry_run(own, tmp_path, monkeypatch):
    plan = plan_of(own, "llama.cpp", arguments="--tools all")
    assert [line.split()[0] for line in consent.active(plan)] == ["--tools"]
    save_plan(plan, tmp_path / "plan.json")
    argv = ["bench", "--resume", str(tmp_path)]
    shown = CliRunner().invoke(cli, [*argv, "--dry-run"])
    assert "--tools runs" in shown.output
    monkeypatch.setattr(session, "run_plan", lambda *_, **__: NixwulfError("no run"))
    assert "--tools runs" in CliRunner().invoke(cli, [*argv, "--allow-url", "a.invalid"]).stderr


def test_a_key_that_crosses_a_network_by_http_is_a_warning(own):
    key = {"OPENAI_API_KEY": None}
    plans = [
        plan_of(own, url=url, environment=key)
        for url in ("http://10.99.0.1", "https://10.99.0.1", "http://127.0.0.1:1")
    ]
    assert [len(consent.in_clear(plan.cases)) for plan in plans] == [1, 0, 0]
    assert not consent.in_clear(plan_of(own, url="http://10.99.0.1").cases)


@pytest.mark.parametrize("command", ["reproduce", "bench"])
def test_the_folder_of_somebody_elses_run_takes_no_key(own, tmp_path, monkeypatch, command):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-victim")
    theirs = tmp_path / "stranger"
    theirs.mkdir()
    plan = plan_of(own, url="http://evil.example", environment={"OPENAI_API_KEY": None})
    save_plan(plan, theirs / "plan.json")
    served = metric("throughput", [9.0], conditions={"concurrency": 1})
    record = ok(plan.document()["cases"][0], [served])
    save(record, theirs / "records" / f"{record['id']}.json")
    argv = {
        "reproduce": ["reproduce", str(theirs), "--cluster", str(own)],
        "bench": ["bench", "--resume", str(theirs)],
    }[command]
    shown = CliRunner().invoke(cli, [*argv, "--dry-run"])
    assert (shown.exit_code, "http://evil.example" in shown.output) == (0, True), shown.output
    refused = CliRunner().invoke(cli, argv)
    assert refused.exit_code == 2
    assert "--allow-secrets OPENAI_API_KEY" in refused.output
    assert "--allow-url evil.example" in refused.output


LINKED = ("raw", "records", "references", ".lock", "raw/RUN", "raw/RUN/answers.jsonl", "records/x")


@pytest.mark.parametrize("command", ["bench", "reproduce"])
@pytest.mark.parametrize("name", LINKED)
def test_a_link_in_the_folder_of_a_run_is_refused_before_anything_starts(
    own, tmp_path, name, command
):
    theirs, mine = tmp_path / "stranger", tmp_path / "mine"
    theirs.mkdir()
    mine.mkdir()
    plan = plan_of(own, url="http://127.0.0.1:1")
    save_plan(plan, theirs / "plan.json")
    link = theirs / name.replace("RUN", plan.cases[0].run_name(0))
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(mine)
    refused = CliRunner().invoke(cli, [command, "--resume", str(theirs)])
    assert refused.exit_code == 2, refused.output
    assert str(link) in refused.output.replace("\n", "")
    assert not any(mine.iterdir())


def test_what_cannot_be_cleared_of_an_unfinished_run_ends_the_sweep(tmp_path):
    (tmp_path / "raw").write_text("no folder")
    with pytest.raises(NixwulfError, match=shlex.quote(str(tmp_path / "raw"))):
        session.clear(tmp_path / "raw")
    session.clear(tmp_path / "nothing")


def test_a_run_folder_that_is_reached_by_a_link_goes_on(own, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk")
    save_plan(plan_of(own, url="http://127.0.0.1:1"), tmp_path / "run" / "plan.json")
    assert plan_to_resume(tmp_path / "run", None).cases


METER = 'meter = { kind = "tasmota", url = "http://127.0.0.2:%s" }\n'


def test_nothing_of_somebody_elses_cluster_is_asked_before_its_user_allows_it(own, tmp_path):
    with socket.create_server(("127.0.0.2", 0)) as meter:
        meter.settimeout(0)
        own.write_text(CLUSTER + METER % meter.getsockname()[1])
        theirs = tmp_path / "stranger"
        theirs.mkdir()
        save_plan(plan_of(own, url="http://10.99.0.1:80"), theirs / "plan.json")
        refused = CliRunner().invoke(cli, ["bench", "--resume", str(theirs)])
        assert refused.exit_code == 2
        for host in ("10.99.0.1", "127.0.0.2", "a.invalid"):
            assert f"--allow-url {host}" in refused.output
        with pytest.raises(BlockingIOError):
            meter.accept()


def test_a_plan_that_was_made_here_has_a_cluster_of_ones_own(own, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    plan = plan_of(own, url="http://10.99.0.1")
    with own_folder(folder, plan):
        pass
    file = folder / "plan.json"
    assert consent.is_own(file)
    file.write_bytes(file.read_bytes() + b" ")
    assert not consent.is_own(file)
    assert consent.needed(plan, own_cluster=False).hosts == {"10.99.0.1", "a.invalid"}
    assert not consent.needed(plan).hosts
