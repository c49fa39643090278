"""What is published of a run has nothing private in it, whatever was in its records."""

import copy
import json
import os
import string
import subprocess
import sys

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nixwulf.cli.main import cli
from nixwulf.plugins import benchmarks, engines
from nixwulf.results import record
from nixwulf.results.publish.patterns import Word, closed_words, unknown_words
from nixwulf.results.publish.scrub import Scrubber, publication, split_kernel_parameters
from nixwulf.results.store import Entry, RunFolder
from record_factory import case, failed, ok, plan, write_run
from tool_outputs import reference

PLUGINS = (*engines.all_engines(), *benchmarks.all_benchmarks())
STORE = "/nix/store/0c5x1b2d3f4g5h6i7j8k9l0m1n2p3q4r"
UUID = "0b6f7c1e-3a52-4d1b-9a35-7c1f0b7e2d11"
CLUSTER = {
    "name": "desk",
    "fabrics": {},
    "deploy": {"ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBogusBogusBogus alice@thinkpad"]},
    "nodes": [
        {
            "name": "spark1",
            "platform": "dgx-spark",
            "ssh": "alice@spark1.lan",
            "disk": "/dev/disk/by-id/nvme-Samsung_SSD_990_PRO_S6Z2NJ0W",
            "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostHostHost",
            "meter": {"kind": "shelly", "url": "http://plug-kitchen.lan"},
        },
        {"name": "spark2", "platform": "dgx-spark", "ssh": "192.168.7.12"},
    ],
}


def real(record_of_lab):
    """A record as if of a cluster that is no lab, with nodes of that cluster file."""
    document = copy.deepcopy(record_of_lab)
    document["cluster"] = {"name": "desk", "platforms": ["dgx-spark"], "lab": False}
    names = {"n1": "spark1", "n2": "spark2"}
    for node in document["nodes"]:
        node |= {"name": names[node["name"]], "platform": "dgx-spark"}
        node["facts"]["command_line"] = (
            f"BOOT_IMAGE=/vmlinuz root=UUID={UUID} ip=192.168.7.11::192.168.7.1 amd_iommu=off "
            f"ttm.pages_limit=1 init={STORE}-nixos-system-spark1-26.05/init"
        )
    for command in document["commands"]:
        command["node"] = names[command["node"]]
    for link in document.get("fabric", {}).get("links", ()):
        link |= {"from": names[link["from"]], "to": names[link["to"]]}
    return record.sealed(document)


def folder_of(*records, cluster=CLUSTER):
    the_plan = plan([])
    the_plan["cluster"]["document"] = cluster
    entries = tuple(Entry(None, one) for one in records)
    return RunFolder(None, entries, the_plan)


def scrubbed(text, **options):
    return Scrubber(closed=closed_words(PLUGINS), **options).text(text)


def command(*arguments):
    return CliRunner().invoke(cli, ["publish", *map(str, arguments)])


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("failed to connect to 10.77.0.11:50052", "failed to connect to [address]:50052"),
        ("-H 192.168.1.7,10.0.0.2/24", "-H [address],[address]/24"),
        ("bind fe80::1%eth0, [2001:db8::7]:80", "bind [address]%eth0, [[address]]:80"),
        ("at:::ffff:7d1e:abfd,fe80:::x", "at:[address],[address]:x"),
        ("_2001:db8:0:0:0:0:0:7_x", "_[address]_x"),
        ("ether 3c-6d-66-0a-1b-2c", "ether [address]"),
        ("::ffff:10.1.2.3", "[address]:[address]"),
        ("ether 3c:6d:66:0a:1b:2c up", "ether [address] up"),
        ("enx3c6d660a1b2c: link", "enx[address]: link"),
        ("127.0.0.1 ::1 0.0.0.0 255.255.255.0", "127.0.0.1 ::1 0.0.0.0 255.255.255.0"),
        ("std::add at ggml::bad 12:34:56 0000:c1:00.0", None),
        ("llama.cpp b9601, mlx 0.32.4, 2026-01-02T03:04:05Z", None),
        ("/home/carol/models/x.gguf", "/home/[user]/models/x.gguf"),
        ("/Users/carol/x /root/.cache", "/Users/[user]/x /root/.cache"),
        ("dave@desk-7:~$ ./run", "[user]@[host]:~$ ./run"),
        ("image ghcr.io/x@sha256:00ff, memcpy@GLIBC_2.14", None),
        ("see spark1.local and huggingface.co", "see [host] and huggingface.co"),
        ("Serial Number: PF3XQ81Z", "Serial Number: [serial]"),
        ("serial console on", None),
        (f"root=UUID={UUID}", "root=UUID=[serial]"),
        ("nvme-Samsung_SSD_990_S6Z2NJ0W", "[serial]"),
        ("/dev/disk/by-id/ata-X_1 left", "/dev/disk/by-id/[serial] left"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=[key]"),
        ("trusted hf_abcdefghijklmnopqrst.", "trusted [key]."),
        ("DB_PASSWORD=correct-horse now", "DB_PASSWORD=[key] now"),
        ("--password hunter2hunter2 --yes", "--password [key] --yes"),
        ("--ray-token 4f9a8b7c6d5e --max-tokens 2048", "--ray-token [key] --max-tokens 2048"),
        (f"with nvapi-{'aB3_' * 8} and tskey-auth-{'kC5N' * 4}", "with [key] and [key]"),
        ("by eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3j now", "by [key] now"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", "[key]"),
        (f"Host key SHA256:{'aB3+' * 10}xyz is", "Host key [key] is"),
        ("on /dev/disk/by-uuid/12AB-34CD", "on /dev/disk/by-uuid/[serial]"),
        (f"machine-id {'0af1' * 8}", "machine-id [serial]"),
        ("ip-10-1-2-3: up", "[host]: up"),
        ("GUID 3c6d:6603:000a:1b2c", "GUID [address]"),
        ("GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:50:00:02", "GID: [address]"),
        (f"peer 12D3KooW{'aB3' * 14}xy left", "peer [serial] left"),
        ("n_tokens = 2048, 31.25 tok/s, tokens: 1024,", None),
        ("Authorization: Bearer abc.def-ghi_jkl", "Authorization: Bearer [key]"),
        ("http://me:pa55@proxy/", "http://[key]@[host]/"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBogus", "ssh-ed25519 [key]"),
        (f"{STORE}-llama-cpp-1.2.3.4/bin/llama-bench", None),
        (f"{STORE}-nixos-system-spark9-26.05/init", f"{STORE}-nixos-system-[host]-26.05/init"),
    ],
)
def test_texts_lose_what_looks_private_and_nothing_else(text, published):
    assert scrubbed(text) == (text if published is None else published)


def test_what_was_published_once_is_published_again_as_it_is():
    texts = [
        "dave@desk-7 fe80::1 10.0.0.1 Serial: PF3XQ81Z /home/carol spark1.local",
        f"{STORE}-nixos-system-spark9-26.05/init HF_TOKEN=hf_abcdefghijklmnopqrst {UUID}",
    ]
    for text in map(scrubbed, texts):
        assert scrubbed(text) == text


def test_of_the_kernels_command_line_only_what_matters_to_speed_is_kept():
    kept, removed = split_kernel_parameters(
        "root=UUID=1 amd_iommu=off pcie_aspm=off hostname=me mitigations=off -- --token x"
    )
    assert kept == ["amd_iommu=off", "pcie_aspm=off", "mitigations=off"]
    assert removed == ["--", "--token", "x", "root=UUID=1", "hostname=me"]


def test_a_run_of_a_real_cluster_is_published_without_its_names_and_addresses():
    run = real(ok(case(2), {"decode": [20.0, 21.0]}))
    hang = real(
        failed(
            case(2, "cable"),
            "hang",
            reason="'spark2' (192.168.7.12) was silent for 20 s.",
            log_tail="alice@spark1 spark2:12:14 [0] NCCL\nS6Z2NJ0W on plug-kitchen",
        )
    )
    made = publication(folder_of(run, hang), PLUGINS)
    text = json.dumps(made.records) + made.readme() + made.name
    for private in (
        *("spark1", "spark2", "alice", "192.168", "10.0.0.12", UUID, "S6Z2NJ0W", "kitchen"),
        *("BOOT_IMAGE", "thinkpad", "raw/"),
    ):
        assert private not in text, private
    first, second = made.records
    assert [node["name"] for node in first["nodes"]] == ["n1", "n2"]
    assert first["fabric"]["links"][0]["to"] == "n2"
    assert second["failure"]["reason"] == "'n2' (n2) was silent for 20 s."
    assert first["nodes"][0]["facts"]["command_line"] == "amd_iommu=off ttm.pages_limit=1"
    assert first["cluster"]["platforms"] == ["dgx-spark"]
    assert first["metrics"] == run["metrics"]
    assert first["raw"] == []
    assert first["scrubbed"]["kernel parameter"] == 8
    for one in made.records:
        record.validate(one, "published")
    assert "ended hang" in made.readme()


@pytest.mark.parametrize(
    ("output", "private"),
    [
        ("nvidia-ib_write_bw-spark-client1.txt", ["nvidia@", "bd26", "192:168:", "192.168."]),
        ("nccl-allreduce-roce-pod.txt", ["pod-vf01", "pod-vf02", "192.168."]),
        ("hellas-iperf3-tbnet-1stream.txt", ["10.0.5.", "10.50.0."]),
        ("lab/mpirun.badhost.txt", ["10.77.0.", "node0"]),
    ],
)
def test_a_log_of_a_real_tool_loses_its_hosts_and_addresses(output, private):
    text = reference(output)
    assert any(word in text for word in private)
    run = real(failed(case(2), log_tail=text))
    (published,) = publication(folder_of(run), PLUGINS).records
    for word in private:
        assert word not in published["nodes"][0]["log_tail"]


def test_secret_options_and_variables_lose_their_values():
    run = real(ok(case(1), {"decode": [20.0]}))
    run["commands"][0] |= {
        "argv": ["vllm", "--api-key", "sesame", "--port", "8000"],
        "environment": {"HF_TOKEN": "sesame", "USER": "mallory", "OMP_NUM_THREADS": "4"},
    }
    run["nodes"][0]["facts"]["note"] = "of mallory"
    (published,) = publication(folder_of(record.sealed(run)), PLUGINS).records
    assert published["commands"][0]["argv"] == ["vllm", "--api-key", "[key]", "--port", "8000"]
    assert published["commands"][0]["environment"] == {
        "HF_TOKEN": "[key]",
        "USER": "[user]",
        "OMP_NUM_THREADS": "4",
    }
    assert published["nodes"][0]["facts"]["note"] == "of [user]"


def test_a_cluster_named_after_a_host_loses_its_name():
    run = {**real(ok(case(1), {"decode": [20.0]}))}
    run["cluster"] = {**run["cluster"], "name": "spark1-and-friends"}
    made = publication(folder_of(record.sealed(run)), PLUGINS)
    assert made.clusters == ("cluster",)


@pytest.mark.parametrize("host", ["mybox", "mybox.example.net", "mybox:8080", "10.9.8.7:11434"])
def test_the_host_of_an_address_that_a_case_asks_is_taken_out(host):
    run = ok(case(1, parameters={"url": f"http://{host}/v1"}), {"decode": [20.0]})
    run["warnings"] = [f"The server at {host.partition(':')[0]} was slow."]
    (published,) = publication(folder_of(record.sealed(run)), PLUGINS).records
    assert published["case"]["parameters"]["url"].startswith("http://[")
    assert host.partition(":")[0] not in repr(published)


def test_a_node_called_like_a_word_of_the_schema_leaves_the_record_valid():
    cluster = {"name": "x", "nodes": [{"name": "head", "ssh": "head"}, {"name": "ok", "ssh": "b"}]}
    run = ok(case(2), {"decode": [20.0, 21.0]})
    for node, name in zip(run["nodes"], ("head", "ok"), strict=True):
        node |= {"name": name, "platform": "dgx-spark"}
    (published,) = publication(folder_of(record.sealed(run), cluster=cluster), PLUGINS).records
    record.validate(published, "published")
    assert [node["name"] for node in published["nodes"]] == ["n1", "n2"]
    assert [node["role"] for node in published["nodes"]] == ["head", "worker"]
    assert published["outcome"] == "ok"


def test_an_import_is_published_without_the_path_and_host_in_it(tmp_path):
    document = ok(case(1), {"decode": [20.0, 21.0]})
    for key in ("nodes", "commands", "raw", "phases", "started", "finished", "repetition"):
        del document[key]
    metrics = [{k: v for k, v in m.items() if k != "samples"} for m in document["metrics"]]
    document |= {
        "schema_version": "1.2",
        "kind": "imported",
        "id": "spark9.local-llama-bench-00ff",
        "cluster": {"name": "mine", "platforms": ["dgx-spark"], "lab": False},
        "source": {"tool": "llama-bench", "sha256": "0" * 64, "file": "10.0.0.7.md"},
        "metrics": metrics,
    }
    write_run(tmp_path / "run", [record.sealed(document)])
    done = command(tmp_path / "run", "--out", tmp_path / "results")
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "results").rglob("*.json")
    published = record.load(path)
    assert (published["id"], path.stem) == ("host-llama-bench-00ff", "host-llama-bench-00ff")
    assert published["source"]["file"] == "[address].md"


def test_a_login_to_a_known_host_loses_its_user():
    words = {"gate.example.com": Word("host name", "[host]")}
    assert scrubbed("ssh carol@gate.example.com", words=words) == "ssh [user]@[host]"


def test_letters_that_only_look_alike_without_case_do_no_harm():
    words = {"spark": Word("host name", "n1")}
    assert scrubbed("SPARK \u017fpark", words=words) == "n1 [...]"


def test_published_numbers_are_not_published_again(tmp_path):
    source = {"name": "them", "url": "https://example.com/"}
    document = {**ok(case(1), {"decode": [20.0]}), "schema_version": "1.2"}
    folder = write_run(
        tmp_path / "run", [record.sealed({**document, "kind": "published", "source": source})]
    )
    done = command(folder, "--out", tmp_path / "results")
    assert (done.exit_code, "which are public already" in done.output) == (2, True)


NAMES = st.text("ghjkmpqrtvwxyz", min_size=8, max_size=12)
ADDRESSES = st.one_of(
    st.ip_addresses(v=4).map(str).filter(lambda a: not a.startswith(("127.", "0.", "255."))),
    st.ip_addresses(v=6).map(str).filter(lambda a: a.count(":") > 3),
    st.binary(min_size=6, max_size=6).map(lambda b: b.hex(":")),
)
PLANTS = st.one_of(
    ADDRESSES.map(lambda address: (address, address)),
    NAMES.map(lambda name: (name, f"/home/{name}/x")),
    NAMES.map(lambda name: (name, f"{name}.local")),
    NAMES.map(lambda name: (name, f"{name}@desk")),
    st.text(string.ascii_uppercase, min_size=6, max_size=9).map(
        lambda serial: (f"{serial}7", f"serial number: {serial}7")
    ),
    st.uuids().map(lambda uuid: (str(uuid), f"UUID={uuid}")),
)
AROUND = st.sampled_from(list(" \n\t()[]<>\"'=,;:/|\\.-_@%+"))


def leaves(value, place=()):
    """The places of all texts that are free, and of the keys of free objects."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, dict):
        for key, inner in value.items():
            if place or key not in ("schema_version", "kind", "outcome", "digest", "raw"):
                yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*place, index))


def rich_record():
    """A record with every free text that there is."""
    run = real(
        failed(case(2), "hang", reason="silent", hint="look", log_tail="last words\nof a node")
    )
    run |= {"warnings": ["mind"], "waived": ["clock"]}
    run["gates"] = [
        {"gate": "clock", "node": "spark1", "state": "waived", "sentences": ["It is late."]}
    ]
    run["power"] = {"absent": "none", "nodes": {"spark1": {"absent": {"watts": "none"}}}}
    run["engine"] |= {"origin": f"{STORE}-llama-cpp/bin/llama-bench", "image": "x@sha256:0"}
    run["commands"][0]["environment"] = {"OMP_PLACES": "cores"}
    run["provenance"]["driver"]["machine"] = "x86_64"
    return run


RICH = rich_record()
# Closed lists of the schema, or patterns that a planted text would break.
CLOSED = {"role", "state", "phase", "transport", "parallelism", "unit", "id", "started", "finished"}
PLACES = [place for place in leaves(RICH) if place[-1] not in CLOSED]


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), PLANTS, AROUND, AROUND), min_size=1, max_size=6),
       NAMES, NAMES)  # fmt: skip
def test_nothing_planted_anywhere_survives(plants, host, user):
    document = copy.deepcopy(RICH)
    for place, (_, planted), before, after in plants:
        target = document
        for step in place[:-1]:
            target = target[step]
        target[place[-1]] = f"{target[place[-1]]}{before}{planted}{after}{host} {user}"
    document["nodes"][0]["facts"][f"link to {host}"] = "up"
    cluster = {"name": "desk", "nodes": [{"name": "spark1", "ssh": f"{user}@{host}"}]}
    made = publication(folder_of(record.sealed(document), cluster=cluster), PLUGINS)
    record.validate(made.records[0], "published")
    text = (json.dumps(made.records, ensure_ascii=False) + made.readme() + made.name).lower()
    for secret in (host, user, *(secret for _, (secret, _), *_ in plants)):
        assert secret.lower() not in text


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(PLACES), PLANTS), min_size=1, max_size=4))
def test_publishing_twice_is_publishing_once(plants):
    document = copy.deepcopy(RICH)
    for place, (_, planted) in plants:
        target = document
        for step in place[:-1]:
            target = target[step]
        target[place[-1]] = f"{target[place[-1]]} {planted}"
    once = publication(folder_of(record.sealed(document)), PLUGINS)
    again = publication(
        RunFolder(None, tuple(Entry(None, r) for r in once.records), plan([])), PLUGINS
    )
    assert again.records == once.records


@pytest.fixture
def run_folder(tmp_path):
    runs = [real(ok(case(2), {"decode": [20.0 + i, 21.0]}, repetition=i)) for i in range(2)]
    folder = write_run(tmp_path / "run", runs)
    the_plan = plan([case(2)])
    the_plan["cluster"]["document"] = CLUSTER
    (folder / "plan.json").write_text(json.dumps(record.sealed(the_plan)))
    return folder


def test_the_folder_is_ready_to_commit_and_what_was_taken_out_is_shown(tmp_path, run_folder):
    done = command(run_folder, "--out", tmp_path / "results")
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "results").iterdir()
    assert sorted(path.name for path in folder.rglob("*.json")) == [
        f"{case(2)['id']}-r0.json",
        f"{case(2)['id']}-r1.json",
    ]
    assert (folder / "README.md").read_text().startswith("# demo on 2 × dgx-spark\n")
    assert "spark1 -> n1" in done.output
    assert f"git add {folder}" in done.output
    assert "The name of the cluster is in it: desk." in done.output
    valid = CliRunner().invoke(cli, ["validate", str(folder)])
    assert valid.output == "2 records: valid.\n"


def test_publishing_again_and_publishing_what_is_published_change_nothing(tmp_path, run_folder):
    def content():
        return {
            path.relative_to(tmp_path): path.read_bytes()
            for path in (tmp_path / "results").rglob("*")
            if path.is_file()
        }

    command(run_folder, "--out", tmp_path / "results")
    before = content()
    (folder,) = (tmp_path / "results").iterdir()
    for source in (run_folder, folder):
        done = command(source, "--out", tmp_path / "results")
        assert done.exit_code == 0, done.output
        assert content() == before
    assert "Nothing private was found." in done.output


def test_a_word_that_nobody_can_know_is_taken_out_when_it_is_named(tmp_path, run_folder):
    path = next((run_folder / "records").iterdir())
    document = json.loads(path.read_text())
    document["warnings"] = ["Measured at Acme."]
    path.write_text(json.dumps(record.sealed(document)))
    command(run_folder, "--out", tmp_path / "results")
    done = command(run_folder, "--out", tmp_path / "results", "--hide", "acme")
    assert done.exit_code == 0
    (folder,) = (tmp_path / "results").iterdir()
    assert "Acme" not in (folder / "records" / path.name).read_text()


@pytest.mark.parametrize("word", ["acmee", "cme", "", " ", "Acme Labs"])
def test_a_word_that_stands_nowhere_is_refused_and_nothing_is_written(tmp_path, run_folder, word):
    named_acme(run_folder)
    done = command(run_folder, "--out", tmp_path / "results", "--hide", word)
    assert done.exit_code == 2
    assert repr(word.strip()) in done.stderr
    assert ("'acme'" in done.stderr) == (word not in {"", " "})
    assert not (tmp_path / "results").exists()


def test_a_word_of_two_letters_is_taken_out_wherever_it_stands(tmp_path, run_folder):
    name = named_acme(run_folder)
    assert command(run_folder, "--out", tmp_path / "results", "--hide", "at").exit_code == 0
    (folder,) = (tmp_path / "results").iterdir()
    document = json.loads((folder / "records" / name).read_text())
    assert document["warnings"] == ["Measured [...] Acme."]


def named_acme(run_folder):
    """The record of a run that has a word nobody else knows."""
    path = next((run_folder / "records").iterdir())
    document = json.loads(path.read_text())
    document["warnings"] = ["Measured at Acme."]
    document["nodes"][0]["facts"]["rack of Acme"] = "Zurbaran3"
    path.write_text(json.dumps(record.sealed(document)))
    return path.name


def test_words_that_are_in_no_text_of_ours_are_shown_with_where_they_stand(tmp_path, run_folder):
    named_acme(run_folder)
    done = command(run_folder, "--out", tmp_path / "results")
    assert done.exit_code == 0
    rows = [line.split() for line in done.stderr.splitlines()]
    found = {row[0]: row[1:3] for row in rows if len(row) > 2 and row[1].isdecimal()}
    assert found == {"acme": ["2", "nodes.facts"], "zurbaran3": ["1", "nodes.facts.rack"]}
    assert list(found) == ["acme", "zurbaran3"]


def test_what_was_taken_out_and_all_unknown_words_are_there_as_json(tmp_path, run_folder):
    named_acme(run_folder)
    done = command(run_folder, "--out", tmp_path / "results", "--format", "json")
    found = json.loads(done.stdout)
    assert (tmp_path / "results").joinpath(found["folder"]).is_dir()
    assert {"kind", "was", "now"} == set(found["taken_out"][0])
    assert [one["word"] for one in found["unknown"]] == ["acme", "zurbaran3"]
    assert found["clusters"]


@pytest.mark.repository
def test_on_a_terminal_the_words_that_are_named_are_taken_out(tmp_path, run_folder):
    name = named_acme(run_folder)
    theirs, ours = os.openpty()
    os.write(theirs, b"acme, zurbaran3\n")
    words = [sys.executable, "-m", "nixwulf", "publish", run_folder, "--out", tmp_path / "results"]
    done = subprocess.run(
        words, check=False, stdin=ours, capture_output=True, text=True, timeout=60
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "results").iterdir()
    text = (folder / "records" / name).read_text().lower()
    assert "acme" not in text
    assert "zurbaran" not in text


@pytest.mark.repository
@pytest.mark.parametrize("run", ["examples/demo", "examples/delays"])
def test_an_ordinary_run_has_few_words_to_ask_about(tmp_path, run):
    done = command(run, "--lab", "--out", tmp_path)
    assert done.exit_code == 0
    assert len([line for line in done.stderr.splitlines() if "nodes." in line]) < 15


def test_a_number_that_is_called_a_serial_one_is_taken_out(tmp_path):
    run = real(ok(case(1), {"decode": [20.0]}))
    run["nodes"][0]["facts"] |= {"serial_number": 1983925012345, "serial_ports": 2}
    (published,) = publication(folder_of(record.sealed(run)), PLUGINS).records
    assert published["nodes"][0]["facts"]["serial_number"] == "[serial]"
    assert published["nodes"][0]["facts"]["serial_ports"] == 2


@pytest.mark.parametrize(
    "text",
    ["%70assword%3Dtiger", "p\\u0061ssword: tiger", "&#112;assword=tiger", "passwor\u200bd: tiger"],
)
def test_what_an_escape_hides_is_read_and_taken_out(text):
    assert scrubbed(text) in ("password=[key]", "password: [key]")


def test_what_a_terminal_broke_into_two_lines_is_taken_out_and_other_lines_stay():
    text = "starting\nthe server of this long line is at 10.20.3\n0.40 and is up\nready\n"
    shown = "starting\nthe server of this long line is at [address] and is up\nready\n"
    assert scrubbed(text) == shown
    assert (
        scrubbed("a line that is longer\nthan another\n") == "a line that is longer\nthan another\n"
    )


def test_what_is_asked_to_stay_stays(tmp_path, run_folder):
    command(run_folder, "--out", tmp_path / "results", "--keep", "host", "--keep", "address")
    text = next((tmp_path / "results").rglob("*-r0.json")).read_text()
    assert "spark1" in text
    assert "10.0.0.12" in text
    assert UUID not in text


def test_a_run_of_the_lab_is_published_only_when_asked_for(tmp_path):
    folder = write_run(tmp_path / "run", [ok(case(1), {"decode": [20.0]})])
    done = command(folder, "--out", tmp_path / "results")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "to publish it nevertheless, give --lab." in done.output
    assert not (tmp_path / "results").exists()
    assert command(folder, "--out", tmp_path / "results", "--lab").exit_code == 0


@pytest.mark.parametrize("text", ["10,20,30,40", "10/20/30/40", "172,8,16,32"])
def test_four_numbers_that_may_be_an_address_are_shown_and_stay(text):
    (shown,) = unknown_words([{"warnings": [f"sizes {text} and 8,16,32,64 or 1/2/3/4"]}])
    assert shown.word == text
    assert scrubbed(f"sizes {text}") == f"sizes {text}"
