"""Private texts do not leave, wherever they are; texts of records that are public stay."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.cli.main import cli
from nixwulf.core.files import read_toml
from nixwulf.plugins import benchmarks, engines
from nixwulf.results import record
from nixwulf.results.publish.patterns import FAMILIES, PATTERNS, closed_words, ipv6_spans
from nixwulf.results.publish.scrub import Scrubber, publication
from nixwulf.results.store import Entry, RunFolder
from record_factory import case, ok, plan

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "tests/campaign"))

import planted  # noqa: E402

PLUGINS = (*engines.all_engines(), *benchmarks.all_benchmarks())
CLOSED = closed_words(PLUGINS)


@pytest.mark.repository
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 16])
def test_no_planted_text_leaves_from_any_field(step):
    every = planted.texts()
    assert len(every) >= 400
    # Each in one field, and in steps of 16 each of 15 fields has some; 'make campaign' plants all
    # in all.
    for place, one in list(enumerate(every))[::step]:
        field = planted.FIELDS[place % len(planted.FIELDS)]
        assert list(planted.leaks([one], [field])) == []


@pytest.mark.parametrize("text", planted.public())
def test_a_public_text_that_looks_like_a_private_one_stays(text):
    assert Scrubber(closed=CLOSED).text(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "0", ":", "/", "\\", "-", "_", "a.", "-a", "ab01", "1.", "%2F", "$6$", "é", "a:1,"),
        *("-u ab -p ", "echo a ", "mysql ", "redis-cli ", "-H a,", "A_KEY ", "<<<", "openssl -k "),
    ],
)
def test_a_long_text_of_one_sign_takes_no_square_of_its_length(unit):
    text = unit * (40_000 // len(unit)) + "!"
    for spans in (*(pattern.spans for pattern in PATTERNS), ipv6_spans):
        before = time.process_time()
        list(spans(text))
        # Seen: 0.3 s at most; 3 s and more of what takes the square.
        assert time.process_time() - before < 1.5


@pytest.mark.parametrize("name", sorted(read_toml(FAMILIES)["families"]))
@settings(max_examples=5)
@given(st.data())
def test_a_token_of_each_family_is_taken_out(name, data):
    family = read_toml(FAMILIES)["families"][name]
    alphabet = st.characters(codec="ascii", exclude_categories=["Cc"])
    made = data.draw(st.from_regex(family, fullmatch=True, alphabet=alphabet))
    assert Scrubber(closed=CLOSED).text(f"with {made} now").startswith("with [key]")


@pytest.mark.slow
@pytest.mark.repository
def test_of_the_records_in_the_repository_nothing_but_what_is_private_changes():
    changed, texts = set(), 0
    for path in sorted(
        [*ROOT.glob("results/**/records/*.json"), *ROOT.glob("examples/**/*-r0.json")]
    ):
        scrubber = Scrubber(closed=CLOSED)
        document = json.loads(path.read_bytes())
        scrubber.record(document)
        texts += 1
        public = document.get("source", {}).get("url", "")  # the account where the number stands
        found = [f for f in scrubber.found if f.was not in public]
        changed |= {(f.kind, f.was) for f in found if f.kind != "raw output"}
    assert texts > 400
    assert {was for kind, was in changed if not kind.startswith(("address", "kernel"))} == set()
    assert all(
        re.fullmatch(r"10\.\d+\.\d+\.\d+", was) for kind, was in changed if kind == "address"
    )


@pytest.mark.repository
@pytest.mark.parametrize(
    "run", sorted(path.parent.name for path in ROOT.glob("examples/*/records"))
)
def test_a_published_run_has_its_numbers_names_and_flags_and_is_valid(tmp_path, run):
    done = CliRunner().invoke(
        cli, ["publish", str(ROOT / "examples" / run), "--lab", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    originals = sorted(ROOT.glob(f"examples/{run}/records/*.json"))
    assert len(originals) == len([*folder.glob("records/*.json")]) > 0
    for path in originals:
        before = json.loads(path.read_bytes())
        after = json.loads((folder / "records" / path.name).read_bytes())
        for field in ("metrics", "case", "model", "engine", "outcome", "samples", "sanity"):
            assert after.get(field) == before.get(field)
        for was, now in zip(before.get("commands", ()), after.get("commands", ()), strict=True):
            # An address may be taken out of a word, such as --rpc's; nothing else.
            address = r"(?:\d{1,3}\.){3}\d{1,3}"
            assert now["argv"] == [re.sub(address, _shown, word) for word in was["argv"]]
    assert CliRunner().invoke(cli, ["validate", str(folder)]).exit_code == 0


def _shown(address):
    return address[0] if address[0].startswith(("127.", "0.")) else "[address]"


def test_homes_of_the_desk_and_of_nodes_are_taken_out_wherever_they_are():
    run = ok(case(1), {"decode": [20.0]})
    run["nodes"][0]["facts"] |= {"home": "/tank/people/zaphod", "login": "zaphod7"}
    run["commands"][0]["argv"] = ["/opt/trillian/x", "file=%2Fopt%2Ftrillian%2Fy", "of zaphod7"]
    run["engine"]["origin"] = "/tank/people/zaphod/bin/llama-bench"
    folder = RunFolder(None, (Entry(None, record.sealed(run)),), plan([]))
    (made,) = publication(folder, PLUGINS, homes=["/opt/trillian", "/root"]).records
    text = json.dumps(made)
    assert "zaphod" not in text
    assert "trillian" not in text
    assert made["engine"]["origin"] == "/[user]/bin/llama-bench"


@pytest.mark.parametrize("rest", ["0" * 43 + "=", "AAAA" + "b" * 20, "MIID" + "c" * 70])
def test_a_token_whose_rest_looks_like_a_key_is_taken_out_with_its_prefix(rest):
    assert Scrubber(closed=CLOSED).text(f"with tfp_{rest} now") == "with [key] now"
