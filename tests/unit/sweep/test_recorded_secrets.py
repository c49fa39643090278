"""No secret of a run's programs is in its record, in what is kept beside it, or in its report."""

from datetime import UTC, datetime

import pytest

from launch_plan import planned
from nixwulf.report import summary_of, write
from nixwulf.results.publish.secrets import named_secrets
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
