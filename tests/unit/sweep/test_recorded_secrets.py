"""No secret of a run's programs is in its record, in what is kept beside it, or in its report."""

import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from launch_plan import planned
from nixwulf.core.secrets import named_secrets, pattern
from nixwulf.report import summary_of, write
from nixwulf.results.record import save
from nixwulf.sweep.recording import Findings, record_of

TOKEN = "4f1d0c9be2a7865311ab04fe90cd7728"  # noqa: S105 - of no machine


@pytest.fixture
def ended(tmp_path):
    """A failed run with a program of this command line and environment that repeats its secrets."""

    def end(argv, environment):
        matrix = {"engine": ["mesh-llm"], "benchmark": ["serve"], "nodes": [1]}
        matrix |= {"fabric": ["switch"], "parallelism": ["single"]}
        run = planned(tmp_path, "pi-cm5-4", {"path": "/models/llama.gguf"}, matrix)
        run.raw = tmp_path / "raw" / run.name
        run.raw.mkdir(parents=True)
        run.start(run.head, "engine", argv, environment)
        (process,) = run.owned
        process.stdout.write_text(f"listening\nInvite: {TOKEN}\n")
        process.stderr.write_text(f"refused '{TOKEN}'\n")
        reason = f"it ended with 1: refused '{TOKEN}'"
        found = Findings(outcome="failed", failure={"phase": "launch", "reason": reason})
        record = record_of(run, found, 1, datetime.now(UTC))
        save(record, tmp_path / "records" / f"{record['id']}.json")
        return record

    return end


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (["ray", "start"], {"RAY_AUTH_TOKEN": TOKEN, "RAY_AUTH_MODE": "token"}),
        (["mesh-llm", "--join", "$MESH_LLM_JOIN", "--split"], {"MESH_LLM_JOIN": TOKEN}),
        (["vllm", "serve", "--api-key", TOKEN, "--port", "8000"], {}),
        (["vllm", "serve", f"--api-key={TOKEN}"], {}),
        (["env", f"HF_TOKEN={TOKEN}", "vllm"], {}),
    ],
)
def test_a_secret_is_in_no_record_no_output_and_no_report(ended, tmp_path, argv, environment):
    record = ended(argv, environment)
    write(summary_of(tmp_path))
    assert record["nodes"][0]["log_tail"].count("[key]") == 2
    assert "[key]" in record["failure"]["reason"]
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) > 3
    assert "[key]" in (tmp_path / "report.html").read_text()
    assert not any(TOKEN in text for text in texts)
    (command,) = record["commands"]
    assert command["argv"][0] == argv[0]
    assert command.get("environment", {}).get("RAY_AUTH_MODE") in (None, "token")


KEY = "sk-ab+/cd?ef~9f>>>x"
WHOLE = {
    "plain": KEY,
    "JSON": json.dumps(KEY).replace("/", "\\/"),
    "escapes of JSON": "".join(f"\\u{ord(one):04X}" for one in KEY),
    "percent": quote(KEY, safe=""),
    "percent, small": quote(KEY, safe="").lower(),
    "all in percent": "".join(f"%{one:02x}" for one in KEY.encode()),
    "percent twice": quote(quote(KEY, safe="")),
    "hexadecimal": KEY.encode().hex().upper(),
    "characters of HTML": "".join(f"&#{ord(one)};" for one in KEY),
    "base64": b64encode(KEY.encode()).decode(),
    "base64 of a URL": urlsafe_b64encode(KEY.encode()).decode().rstrip("="),
    "base64 after a name": b64encode(f"Bearer {KEY}".encode()).decode(),
    "base64 of a login": b64encode(f"me:{KEY}".encode()).decode(),
    "base64 in the middle": b64encode(f"user:{KEY}:tail".encode()).decode(),
    "base64 in percent": quote(b64encode(KEY.encode()).decode(), safe=""),
    "base64 in lines": encodebytes(("x" * 50 + KEY).encode()).decode(),
}


@pytest.mark.parametrize("form", WHOLE)
def test_a_secret_is_found_as_programs_write_it(form):
    """Of base64 at most the characters that it shares with its neighbours stay."""
    before, _, after = pattern(frozenset({KEY})).sub("\0", WHOLE[form]).partition("\0")
    assert pattern(frozenset({KEY})).search(WHOLE[form])
    known = b64encode(KEY.encode()).decode()
    for rest in (before, after):
        assert not any(KEY[at : at + 5] in rest for at in range(len(KEY) - 4))
        assert not any(known[at : at + 5] in rest for at in range(len(known) - 4))


def test_other_texts_stay_as_they_are():
    text = "sk-ab sk-cd?ef c2stYWIr %73%6b " + "\\" * 5000
    assert pattern(frozenset({KEY})).sub("", text) == text
    assert pattern(frozenset()).sub("", text) == text


def test_numbers_of_tokens_and_a_secrets_place_are_none():
    argv = ["--max-num-batched-tokens", "8192", "--max-tokens=512", "--join", "$MESH_LLM_JOIN"]
    assert named_secrets(argv, {"RAY_AUTH_MODE": "token", "HF_TOKEN": ""}) == set()
    assert named_secrets(["--token", "--verbose", "--pwd", "x"], {}) == {"x"}


def test_a_secret_that_no_program_of_the_run_had_is_in_no_record_either(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    matrix = {"engine": ["endpoint"], "benchmark": ["serve"], "nodes": [1]}
    matrix |= {"fabric": ["switch"], "parallelism": ["single"]}
    matrix["parameters"] = {"url": ["http://box"], "environment": [{"OPENAI_API_KEY": None}]}
    run = planned(tmp_path, "pi-cm5-4", {"served": "m"}, matrix)
    run.raw = tmp_path / "raw" / run.name
    run.raw.mkdir(parents=True)
    (run.raw / "answers.jsonl").write_text(f'{{"model": "{TOKEN}"}}')
    reason = f"'http://box' did not answer '/v1/completions': 401 Incorrect key {TOKEN}."
    found = Findings(outcome="failed", failure={"phase": "launch", "reason": reason})
    record = record_of(run, found, 1, datetime.now(UTC))
    assert record["failure"]["reason"].endswith("401 Incorrect key [key].")
    assert TOKEN not in repr(record)
    assert "[key]" in (run.raw / "answers.jsonl").read_text()
