"""What the documents show is what the program does."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from nixwulf.core.schema import schema
from nixwulf.inventory.cluster import load_cluster
from nixwulf.inventory.platforms import flake_platforms, load_platform
from nixwulf.llm.random_model import RandomModel
from nixwulf.ops.deploy.plan import make_plan, plan_text
from nixwulf.plugins.benchmarks import all_benchmarks
from nixwulf.plugins.engines import all_engines
from nixwulf.report.lines import COMPARISONS, band_of, decodes
from nixwulf.sweep.phases import hint_for
from nixwulf.sweep.plan import parse_sweep
from record_factory import case, ok, write_run

sys.path.append("tools/docs")
import published
import runs
import words

ROOT = Path()
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(map(str, Path("docs").rglob("*.md")))]
# hand-made: of a desk that has no key, whose node is off (form: 'nixwulf deploy --dry-run')
DRY_RUN = """\
mini1  root@192.168.1.31  generic-x86_64: installed over ssh (kexec)
  not reached  Node 'mini1' cannot be reached: Connection timed out.
  WIPES        /dev/disk/by-id/nvme-EXAMPLE_1 (not seen)
  build        nix build --extra-experimental-features 'nix-command flakes' \
--out-link runs/kexec-generic-x86_64.tar '.#packages.x86_64-linux.kexec-generic-x86_64'
  command      nixos-anywhere --flake '.#mini-3-mini1' --target-host root@192.168.1.31 \
--kexec runs/kexec-generic-x86_64.tar --copy-host-keys --print-build-logs \
--phases kexec,disko,install,reboot

REFUSED: clusters/mini-3.toml: you have no public key in ~/.ssh, so you would be locked out.
"""


def words_of(page):
    return " ".join(Path(page).read_text().split())


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", Path(path).read_text(), re.DOTALL)


def test_the_reference_is_what_its_sources_say():
    done = subprocess.run(
        [sys.executable, "tools/docs", "--check"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_documents_stay_within_what_one_reads():
    counts = words.counts(ROOT)
    assert sum(counts.values()) <= words.MOST_IN_DOCS
    assert len(counts) <= words.MOST_PAGES
    assert words.in_readme(ROOT) <= words.MOST_IN_README


def test_the_first_screen_has_the_two_commands_within_sixty_words():
    text = (ROOT / "README.md").read_text()
    before = text[: text.index("make test")]
    assert "make demo" in before
    assert len(before.split()) <= 60
    assert {"demo", "test"} <= set(
        re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )


def test_each_parameter_says_what_it_does():
    having = [*all_engines().values(), *all_benchmarks().values()]
    silent = [f"{one.name}: {n}" for one in having for n, p in one.parameters.items() if not p.help]
    assert silent == []


def test_each_key_of_a_file_says_what_it_means():
    page = "".join(
        Path(f"docs/reference/{name}-file.md").read_text()
        for name in ("cluster", "sweep", "models", "platform")
    )
    silent = re.findall(r"^\| `(.*)` \|.*\|  \|$", page, re.MULTILINE)
    # The coordinates of a point are those of the matrix.
    assert [key for key in silent if not key.startswith(("exclude[].", "expect[].case."))] == []


def test_the_defaults_in_the_schema_are_those_of_the_code():
    keys = schema("sweep")["properties"]
    least = parse_sweep({"name": "x", "matrix": {"nodes": [1]}}, "test")
    assert {key: keys[key]["default"] for key in ("repetitions", "samples", "warm_up", "seed")} == {
        "repetitions": least.repetitions,
        "samples": least.samples,
        "warm_up": least.warm_up,
        "seed": least.seed,
    }
    limits = keys["limits"]["properties"]
    assert limits["wall_s"]["default"] == least.limits.wall_s
    assert limits["progress_s"]["default"] == least.limits.progress_s
    kinds = keys["models"]["additionalProperties"]["oneOf"]
    (model,) = (k["properties"]["random"]["properties"] for k in kinds if "random" in k["required"])
    assert RandomModel(**{key: one["default"] for key, one in model.items()}) == RandomModel()


def test_the_columns_of_the_published_numbers_are_described_in_order():
    named = tomllib.loads(Path("results/published/columns.toml").read_text())
    with Path("results/published/numbers.csv").open() as file:
        assert ",".join(named) == file.readline().strip()


def test_the_model_s_figures_in_the_page_are_those_of_its_scores():
    scores = "".join(path.read_text() for path in Path("results/model").glob("*.txt"))
    page = Path("docs/model.md").read_text().partition("## How good it is")[2].partition("\n## ")[0]
    figures = re.findall(r"\b(\d+\.\d) %", page) + re.findall(r"\d+ of \d+ pairs", page)
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in scores] == []


def test_the_picture_of_published_speeds_is_described_as_it_is():
    bands = [(one.measured, band_of(one)) for each in COMPARISONS for one in decodes(each)]
    inside = sum(band.low <= measured <= band.high for measured, band in bands)
    assert f"{inside} of these {len(bands)} speeds lie in their interval" in words_of("README.md")
    drawn = Path("docs/published.svg").read_text()
    assert drawn.count("tok/s</title>") == 2 * len(bands)


def test_pictures_with_the_same_texts_are_the_same_whatever_draws_them():
    assert published.same_words(
        '<g x="1"><title>2 nodes</title></g>', "<g><title>2 nodes</title></g>"
    )
    assert not published.same_words("<title>2 nodes</title>", "<title>3 nodes</title>")


def test_a_place_for_a_run_is_filled_from_its_records(tmp_path):
    records = [ok(case(nodes), {"decode": [9.0, 10.0]}) for nodes in (1, 2)]
    write_run(tmp_path / "examples" / "demo", records)
    page = "before\n<!-- run examples/demo -->\nold\n<!-- end of the run -->\nafter\n"
    filled = runs.filled(page, tmp_path / "README.md", tmp_path)
    assert "old" not in filled
    assert len(re.findall(r"\| 9\.50 ± 0\.71 \|", filled)) == 2
    assert "runs: 2 ok ([records](examples/demo))" in filled
    assert runs.filled(filled, tmp_path / "README.md", tmp_path) == filled


def test_a_place_for_a_run_without_records_is_empty(tmp_path):
    page = "<!-- run examples/demo -->\nold\n<!-- end of the run -->\n"
    filled = runs.filled(page, tmp_path / "docs" / "x.md", tmp_path)
    assert filled == "<!-- run examples/demo -->\n<!-- end of the run -->\n"


@pytest.mark.parametrize(
    ("number", "needs", "shown"), [(0, "pandas", "efficiency"), (1, "duckdb", "decode")]
)
def test_the_python_in_the_documents_runs_as_it_is_written(
    number, needs, shown, tmp_path, monkeypatch, capsys
):
    pytest.importorskip(needs)
    code = blocks("docs/results.md", "python")[number]
    assert len(code.splitlines()) <= 10
    (folder,) = re.findall(r'load\("([^"]*)"', code)
    records = [ok(case(nodes), {"decode": [9.0, 10.0]}) for nodes in (1, 2)]
    write_run(tmp_path / folder, records)
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # noqa: S102 - our own
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("ggml-rpc.cpp:566: Remote RPC server crashed or returned malformed response", "died"),
        ("Failed to connect to 10.77.0.11:50052", "nothing listens"),
        ("failed to allocate RPC0[10.77.0.11:50052] buffer of size 1", "too little memory"),
        ("tensor 'blk.0.attn_k.weight' data is not within the file bounds", "cut short"),
        ("RPC server version mismatch", "different builds"),
        ("RuntimeError: NCCL error: ncclCommInitRank failed: internal error", "no rdma device"),
        ("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out", "2.30.7"),
        ("On node 'spark2' NCCL crossed NET/Socket, not NET/IB.", "took tcp"),
        ("ValueError: Free memory is less than desired GPU memory utilization", "do not fit"),
        ("(EngineCore pid=45) ERROR EngineCore encountered a fatal error.", "died"),
    ],
)
def test_a_known_output_of_an_engine_has_a_hint(output, cause):
    assert cause in (hint_for(output) or "").lower()


def test_an_unknown_output_has_none():
    assert hint_for("ggml_backend: all is well") is None


def test_a_dry_run_prints_what_is_wiped_and_every_command():
    unreached = re.search(r"not reached  (.*)", DRY_RUN)[1]
    refusal = re.search(r"REFUSED: (.*)", DRY_RUN)[1]
    cluster = load_cluster("mini-3")
    platforms = {"generic-x86_64": load_platform("generic-x86_64")}
    machines = {"mini1": unreached}
    plan = make_plan(cluster, ".", cluster.nodes[:1], platforms, machines, locked_out=refusal)
    assert f"{plan_text(plan)}\n" == DRY_RUN


def test_the_sweep_in_the_docs_works_as_it_stands():
    (text, *_) = blocks("docs/sweeps.md", "yaml")
    assert parse_sweep(yaml.safe_load(text), "docs/sweeps.md").repetitions == 3


def anchors(text):
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_no_link_between_the_documents_is_broken(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", Path(page).read_text()):
        if "://" in target:
            continue
        there = Path(page).parent / target if target else Path(page)
        assert there.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(there.read_text()), f"{page}: {target}#{anchor}"


@pytest.mark.parametrize("platform", sorted(set(flake_platforms()) - {"lab"}))
def test_each_platform_has_a_folder_and_a_place_in_the_docs(platform):
    assert Path("nixos/platforms", platform, "default.nix").exists()
    assert f"`{platform}`" in Path("docs/hardware.md").read_text()
