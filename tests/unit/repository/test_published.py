"""The published numbers: a table, the records made of it, and what has to be in them."""

import csv
import importlib.util
import json
import os
import random
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.platforms import flake_platforms
from nixwulf.plugins.engines import all_engines
from nixwulf.results.publish import patterns

TOOL = Path("tools/publish_numbers.py")
TABLE = Path("results/published/numbers.csv")
RECORDS = Path("results/published/records")
REMAKE = f"run '.venv/bin/python {TOOL}' and commit what it writes"


def _tool(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


publish = _tool(TOOL)
public_words = _tool(Path("tools/public_words.py"))
add_numbers = _tool(Path("tools/add_numbers.py"))
ROWS = publish.read_table(TABLE)
MADE = publish.records(ROWS)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_records_are_what_the_table_gives_byte_for_byte(tmp_path):
    publish.write(MADE, tmp_path)
    assert files(tmp_path) == files(RECORDS), REMAKE


@pytest.mark.slow
def test_making_them_again_changes_nothing_and_removes_what_the_table_has_not(tmp_path):
    publish.write(MADE, tmp_path)
    before = files(tmp_path)
    (tmp_path / "of-a-row-that-went.json").write_text("{}")
    publish.write(MADE, tmp_path)
    assert files(tmp_path) == before


def test_the_order_of_rows_does_not_matter():
    rows = list(ROWS)
    random.Random(7).shuffle(rows)  # noqa: S311 - an order, not a secret
    assert publish.records(rows) == MADE


def test_every_row_is_in_a_record_is_a_price_or_repeats_another_row():
    repeated = [row for row in ROWS if row["same_as"]]
    prices = [row for row in ROWS if row["metric"] == "price_usd" and not row["same_as"]]
    numbers = sum(len(record["metrics"]) for record in MADE)
    assert len(ROWS) == numbers + len(repeated) + len(prices)
    ids = {row["id"]: row for row in ROWS}
    assert all(not ids[row["same_as"]]["same_as"] for row in repeated)


def values(metric, **wanted):
    """Values of a metric in the records whose case, cluster or model has what is wanted."""
    found = []
    for record in MADE:
        told = {
            **record["case"],
            **record["case"]["parameters"],
            **record["cluster"],
            "platform": "+".join(record["cluster"]["platforms"]),
            "weights": record.get("model", {}).get("weights"),
            "stack": record.get("fabric", {}).get("stack"),
        }
        if all(told.get(key) == value for key, value in wanted.items()):
            found += [one["value"] for one in record["metrics"] if one["name"] == metric]
    return found


FRAMEWORK = {"platform": "framework-desktop"}
MS_S1 = {"platform": "minisforum-ms-s1-max"}
FEVM = {"platform": "fevm-fa-ex9"}
SPARK = {"platform": "dgx-spark"}
STUDIO = {"platform": "mac-studio-m3-ultra"}
CM5 = {"platform": "raspberry-pi-cm5"}
QWEN = {"model": "qwen3-235b-a22b"}


@pytest.mark.parametrize(
    ("metric", "value", "wanted"),
    [
        ("gflops", 307.84, {**FRAMEWORK, "nodes": 1}),
        ("gflops", 1084, {**FRAMEWORK, "nodes": 4, "price_usd": 8004}),
        ("power", 536.6, {**FRAMEWORK, "nodes": 4, "benchmark": "hpl"}),
        ("decode", 8.25, {**FRAMEWORK, "nodes": 4, "model": "deepseek-r1-671b"}),
        ("decode", 45.01, {**FRAMEWORK, "nodes": 1, "model": "gpt-oss-20b"}),
        ("decode", 0.71, {**FRAMEWORK, "nodes": 4, "model": "llama-3.1-405b"}),
        ("decode", 33.5, {**FRAMEWORK, "nodes": 1, "model": "gpt-oss-120b", "weights": "F16"}),
        ("decode", 21.61, {**FRAMEWORK, "nodes": 4, "model": "gpt-oss-120b"}),
        ("bandwidth", 10, {**FRAMEWORK, "nodes": 2, "fabric": "usb4"}),
        ("rdma_latency", 5.23, {**FRAMEWORK, "transport": "rdma", "stack": "RoCE v2"}),
        ("decode", 22.9, {**MS_S1, "nodes": 2, "transport": "tcp"}),
        ("decode", 25.0, {**MS_S1, "nodes": 2, "transport": "rdma"}),
        ("decode", 25.6, {**MS_S1, "nodes": 2, "transport": "rdma"}),
        ("decode", 29, {**MS_S1, "nodes": 4, "transport": "tcp"}),
        ("decode", 38.3, {**MS_S1, "nodes": 4, "transport": "rdma"}),
        ("decode", 6.23, {**MS_S1, "nodes": 4, "model": "deepseek-r1-671b", "transport": "rdma"}),
        ("decode", 5.94, {**MS_S1, "nodes": 4, "model": "deepseek-r1-671b", "transport": None}),
        ("decode", 48, {**MS_S1, "nodes": 1, "engine": "mesh-llm", "model": "qwen3-8b"}),
        ("power", 187, MS_S1),
        ("bandwidth", 9.33, {**FEVM, "benchmark": "iperf3", "streams": 1}),
        ("bandwidth", 9.47, {**FEVM, "benchmark": "iperf3", "streams": 4}),
        ("bandwidth", 4.17, {**FEVM, "benchmark": "iperf3", "direction": "bidir"}),
        ("bandwidth", 2.39, {**FEVM, "benchmark": "iperf3", "direction": "bidir"}),
        ("rdma_latency", 6.94, {**FEVM, "stack": "thunderbolt_ibverbs"}),
        ("gflops", 675.39, {**SPARK, "nodes": 1}),
        ("gflops", 1333.2, {**SPARK, "nodes": 2}),
        ("decode", 97.93, {**SPARK, "model": "llama-3.2-3b", "price_usd": 4000}),
        ("bandwidth", 106, {**SPARK, "benchmark": "iperf3"}),
        ("rdma_latency", 1, {**SPARK, "nodes": 2, "price_usd": 10000}),
        ("rdma_bandwidth", 206, {**SPARK, "transport": "rdma"}),
        ("decode", 20.4, {**STUDIO, **QWEN, "nodes": 1, "engine": "llama.cpp"}),
        ("decode", 17.2, {**STUDIO, **QWEN, "nodes": 2, "engine": "llama.cpp"}),
        ("decode", 15.2, {**STUDIO, **QWEN, "nodes": 4, "engine": "llama.cpp"}),
        ("decode", 19.5, {**STUDIO, **QWEN, "nodes": 1, "engine": "exo"}),
        ("decode", 26.2, {**STUDIO, **QWEN, "nodes": 2, "engine": "exo", "transport": "rdma"}),
        ("decode", 31.9, {**STUDIO, **QWEN, "nodes": 4, "engine": "exo", "transport": "rdma"}),
        ("decode", 32.5, {**STUDIO, "model": "deepseek-v3.1-671b", "nodes": 4, "engine": "exo"}),
        ("decode", 28.3, {**STUDIO, "model": "kimi-k2-thinking", "nodes": 4, "engine": "exo"}),
        ("gflops", 3731.1, {**STUDIO, "nodes": 4}),
        ("gflops", 275, {**CM5, "nodes": 10, "price_usd": 3000}),
        ("gflops", 324.66, {**CM5, "nodes": 10, "price_usd": 3000}),
        ("power", 132, {**CM5, "nodes": 10}),
        ("decode", 6.07, {**CM5, "nodes": 1, "engine": "llama.cpp"}),
        ("decode", 0.28, {**CM5, "nodes": 10, "engine": "llama.cpp", "model": "llama-3.3-70b"}),
        ("decode", 0.85, {**CM5, "nodes": 8, "engine": "distributed-llama"}),
    ],
)
def test_the_numbers_that_this_project_began_with_are_there(metric, value, wanted):
    assert value in values(metric, **wanted)


def test_speeds_of_one_run_lie_in_one_record_its_watts_beside_them():
    spark = record_of("dgx-spark", "gpt-oss-120b", "b7941", "llama-bench")
    told = {(one["name"], one["conditions"]["n_depth"]): one["value"] for one in spark["metrics"]}
    assert told["prompt", 0] == 2443.91
    assert told["decode", 0] == 58.72
    assert told["decode", 32768] == 42.76
    studio = record_of("mac-studio-m3-ultra", "llama-3.3-70b", "b7315", "llama-bench")
    assert [one["name"] for one in studio["metrics"]] == ["decode", "power", "prompt", "prompt"]


def record_of(platform, model, version, benchmark):
    (found,) = (
        record
        for record in MADE
        if record["cluster"]["platforms"] == [platform]
        and record["case"].get("model") == model
        and record.get("engine", {}).get("version") == version
        and record["case"]["benchmark"] == benchmark
    )
    return found


def test_what_is_ours_has_our_names():
    engines = {record["case"]["engine"] for record in MADE if "engine" in record["case"]}
    assert engines - set(all_engines()) == {"ollama"}
    ours = set(flake_platforms()) - {"generic-x86_64", "lab"}
    assert ours <= {name for record in MADE for name in record["cluster"]["platforms"]}
    for record in MADE:
        if record["case"]["nodes"] == 1:
            assert not {"fabric", "transport"} & record["case"].keys()


def test_notes_are_keys_and_numbers_not_sentences_of_others():
    for row in ROWS:
        for part in row["note"].split("; "):
            assert len(part) <= 60
            assert '"' not in part
            assert not part.endswith(".")


def test_every_number_of_the_seed_that_has_a_source_is_in_the_table_as_it_was():
    if "NIXWULF_REFERENCE" not in os.environ:
        pytest.skip("NIXWULF_REFERENCE does not name the reference outputs")
    path = Path(os.environ["NIXWULF_REFERENCE"]) / "published.csv"
    units = {"GFLOPS": "Gflop/s"}
    with path.open(encoding="utf-8", newline="") as file:
        seed = {
            row["id"]: (row["value"], units.get(row["unit"], row["unit"]))
            for row in csv.DictReader(file)
            if row["source_url"].startswith("https://")
        }
    table = {row["id"]: (row["value"], row["unit"]) for row in ROWS}
    assert len(seed) > 800
    assert {name: table.get(name) for name in seed} == seed


def changed(tmp_path, change):
    """The table with its first rows alone, and one thing changed."""
    rows = [dict(row) for row in ROWS[:4]]
    change(rows)
    path = tmp_path / "numbers.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, publish.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.append({**rows[0], "id": "again"}), "under the same conditions"),
        (lambda rows: rows[0].update(same_as="p9999"), "the same as no row 'p9999'"),
        (lambda rows: rows[1].update(id=rows[0]["id"]), "two rows have the id"),
        (lambda rows: rows[0].update(conditions="warm"), "expected key=value"),
        (lambda rows: rows[0].update(unit="t/s"), "'t/s', expected one of"),
        (lambda rows: rows[0].update(value="-1"), "minimum"),
        (lambda rows: rows[0].update(source_url="seed 001"), "url"),
        (lambda rows: rows[0].update(value="nan"), "value is 'nan', expected a number"),
        (lambda rows: rows[0].update(nodes="two"), "nodes is 'two', expected a number"),
    ],
)
def test_a_table_that_contradicts_itself_or_the_schema_is_refused(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        publish.records(publish.read_table(changed(tmp_path, change)))


def test_a_column_that_is_missing_is_named_before_anything_is_written(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("id,value\np1,3\n")
    with pytest.raises(InputError, match="the columns are not id, same_as, source"):
        publish.read_table(path)


def test_a_price_is_that_of_all_nodes_of_a_cluster():
    price = {
        (record["cluster"]["name"], record["case"]["nodes"]): record["cluster"]["price_usd"]
        for record in MADE
        if "price_usd" in record["cluster"]
    }
    assert price["geerlingguy-framework-desktop", 4] == 8004
    assert price["geerlingguy-raspberry-pi-cm5", 10] == 3000
    assert ("geerlingguy-raspberry-pi-cm5", 8) not in price
    row = next(row for row in ROWS if row["metric"] == "price_usd")
    with pytest.raises(InputError, match="keep one"):
        publish.records([*ROWS, {**row, "id": "again", "value": "1"}])


def test_the_files_are_small_enough_to_read():
    assert max(path.stat().st_size for path in RECORDS.iterdir()) < 20_000
    assert all(json.loads(path.read_text())["kind"] == "published" for path in RECORDS.iterdir())


def test_public_words_are_those_of_this_project_and_of_no_person():
    listed = patterns.public_words()
    assert 5_000 < len(listed) < 10_000
    assert not listed & public_words.PERSONS
    read = {
        part
        for text in public_words.texts()
        for word in patterns.WORD.findall(text)
        for part in patterns.parts(word)
    }
    # Texts change with every commit; tools/public_words.py brings the file up to date.
    assert len(listed - read) < len(listed) / 50


def given(**columns):
    """A row as tools/add_numbers.py takes it."""
    return {
        "id": "x1",
        "source": "somebody some-bench",
        "source_url": "https://example.org/results.csv",
        "platform": "DGX Spark",
        "nodes": "1",
        "interconnect": "",
        "transport": "",
        "engine": "llama.cpp",
        "engine_version": "b9049",
        "parallelism": "single",
        "model": "gpt-oss-20b",
        "quant": "MXFP4",
        "metric": "tg128",
        "value": "50.1",
        "unit": "tok/s",
        "n_prompt": "",
        "n_gen": "128",
        "note": "date=2026-05-07; depth=4096; drafts=3; acceptance_percent=71.2",
        **columns,
    }


def test_a_row_becomes_one_of_the_table_with_its_day_and_what_its_note_has():
    row = add_numbers.table_row(given(), "n9999")

    assert (row["date"], row["platform"], row["backends"]) == ("2026-05-07", "dgx-spark", "CUDA")
    assert (row["metric"], row["n_depth"], row["n_gen"]) == ("decode", "4096", "128")
    assert (row["parameters"], row["observed"]) == ("drafts=3", "acceptance_percent=71.2")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"source": ""}, "source is empty"),
        ({"source_url": "a video"}, "expected https://"),
        ({"source_url": "https://github.com/search?q=spark"}, "search results"),
        ({"note": ""}, "date is ''"),
        ({"note": "date=2026-05-07; REVIEW: of an open pull request"}, "of an open pull request"),
        ({"metric": "ttft"}, "expected tg or pp"),
        ({"platform": "Cray-1"}, "no facts are known"),
    ],
)
def test_a_row_without_a_source_or_a_day_is_refused(columns, why):
    with pytest.raises(InputError, match=why):
        add_numbers.table_row(given(**columns), "n9999")
