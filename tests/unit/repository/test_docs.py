"""What the documents show is what the program does."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from nixwulf.inventory.cluster import load_cluster
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.ops.deploy.plan import make_plan
from nixwulf.ops.deploy.text import plan_text
from nixwulf.plugins.gates import all_gates
from nixwulf.plugins.runtime import upstream
from nixwulf.results.table import OF_CASE_COLUMNS, TIDY_COLUMNS
from nixwulf.sweep.hints import HINTS, hint_for
from nixwulf.sweep.sweep_file import parse_sweep
from record_factory import case, ok, write_run


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", Path(path).read_text(), re.DOTALL)


def test_the_table_of_symptoms_is_the_table_of_hints():
    rows = [
        line for line in Path("docs/troubleshooting.md").read_text().splitlines() if "|" in line
    ]
    assert rows[2:] == [f"| {hint.symptom} | {hint.cause} | {hint.fix} |" for hint in HINTS]


def test_the_table_of_gates_is_that_of_the_code():
    rows = [line for line in Path("docs/gates.md").read_text().splitlines() if line[:1] == "|"]
    assert rows[2:] == [
        f"| `{gate.name}` | {gate.holds} | {gate.reads} | {gate.fix} |"
        for gate in all_gates().values()
    ]


def test_the_table_of_versions_is_that_of_the_data():
    rows = [line for line in Path("docs/upstream.md").read_text().splitlines() if line[:1] == "|"]
    assert rows[2:] == [
        f"| {each.name} | {each.engine or '-'} | {upstream.range_of(each)} | "
        f"{'; '.join(_more(each)) or '-'} | {each.read[0]} to {each.read[-1]} |"
        for each in upstream.families()
    ]


def _more(family):
    """What single cases need beyond that."""
    whens = [dict(row.when) for row in family.rows if row.when and not row.optional]
    for number, when in enumerate(whens):
        wanted = upstream.range_of(family, **when)
        if when not in whens[:number] and wanted != upstream.range_of(family):
            (pair,) = when.items()
            yield f"`{pair[0]}: {pair[1]}`: {wanted}"


def test_the_tables_of_columns_are_those_of_the_code():
    rows = [line for line in Path("docs/python.md").read_text().splitlines() if line[:3] == "| `"]
    columns = [*TIDY_COLUMNS.items(), *OF_CASE_COLUMNS.items()]
    assert rows[: len(columns)] == [f"| `{name}` | {text} |" for name, text in columns]


def test_the_python_in_the_documents_runs_as_it_is_written(tmp_path, monkeypatch, capsys):
    (code,) = blocks("docs/python.md", "python")
    (folder,) = re.findall(r'load\("([^"]*)"', code)
    records = [ok(case(nodes), {"decode": [9.0, 10.0]}) for nodes in (1, 2)]
    write_run(tmp_path / folder, records)
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # noqa: S102 - our own
    assert "efficiency" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("ggml-rpc.cpp:566: Remote RPC server crashed or returned malformed response", "died"),
        ("Failed to connect to 10.77.0.11:50052", "nothing listens"),
        ("failed to allocate RPC0[10.77.0.11:50052] buffer of size 1", "too little memory"),
        ("tensor 'blk.0.attn_k.weight' data is not within the file bounds", "cut short"),
        ("RPC server version mismatch", "different builds"),
        ("RuntimeError: NCCL error: ncclCommInitRank failed: internal error", "no rdma device"),
        ("On node 'spark2' NCCL crossed NET/Socket, not NET/IB.", "took tcp"),
        ("ValueError: Free memory is less than desired GPU memory utilization", "do not fit"),
        ("(EngineCore pid=45) ERROR EngineCore encountered a fatal error.", "died"),
    ],
)
def test_a_known_output_of_an_engine_has_a_hint(output, cause):
    assert cause in (hint_for(output) or "").lower()


def test_an_unknown_output_has_none():
    assert hint_for("ggml_backend: all is well") is None


def test_the_cluster_in_the_readme_works_as_it_stands(tmp_path):
    (text,) = blocks("README.md", "toml")
    (tmp_path / "mine.toml").write_text(text)
    assert len(load_cluster(tmp_path / "mine.toml").nodes) == 2
    assert len(text.splitlines()) <= 20
    assert tomllib.loads(text)["name"] == "mine"


def test_the_sweep_in_the_docs_works_as_it_stands():
    (text,) = blocks("docs/files.md", "yaml")
    assert parse_sweep(yaml.safe_load(text), "docs/files.md").repetitions == 3


def test_the_dry_run_in_the_docs_is_what_a_dry_run_prints():
    (text,) = blocks("docs/deploy.md", "text")
    unreached = re.search(r"not reached  (.*)", text)[1]
    refusal = re.search(r"REFUSED: (.*)", text)[1]
    cluster = load_cluster("mini-3")
    platforms = {"generic-x86_64": load_platform("generic-x86_64")}
    machines = {"mini1": unreached}
    plan = make_plan(cluster, ".", cluster.nodes[:1], platforms, machines, locked_out=refusal)
    assert f"{plan_text(plan)}\n" == text


@pytest.mark.parametrize("page", ["README.md", *sorted(map(str, Path("docs").rglob("*.md")))])
def test_no_link_between_the_documents_is_broken(page):
    for target in re.findall(r"\]\(([^)#]+)\)", Path(page).read_text()):
        if "://" not in target:
            assert (Path(page).parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("platform", sorted(set(platform_names()) - {"lab"}))
def test_each_platform_has_a_folder_and_a_page(platform):
    assert Path("nixos/platforms", platform, "default.nix").exists()
    assert Path("docs/platforms", f"{platform}.md").exists()
