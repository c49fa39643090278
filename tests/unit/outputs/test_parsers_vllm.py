import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.vllm import ServeResult, parse_serve, parse_throughput

FIXTURES = Path("tests/fixtures/vllm")
RESULT = json.loads((FIXTURES / "bench-serve-0.33.0.json").read_text())
SERVE = "djangodevreng-vllmserve-"
EXPECTED = {
    f"{SERVE}mistral-small-4-119b-07-office-baseline.txt": (200, 120.53, 2205.82, 311.67, 376.25),
    f"{SERVE}gpt-oss-20b-07-office-baseline.txt": (200, 116.14, 826.65, 48.07, 167.91),
    f"{SERVE}gpt-oss-20b-09-reasoning.txt": (50, 329.30, 260.93, 59.35, 168.50),
    f"{SERVE}lfm2.5-2.6b-10-monday-peak.txt": (300, 481.84, 482.61, 48.13, 60.93),
    f"{SERVE}gpt-oss-20b-07.json.txt": (
        200,
        116.1434699526445,
        826.6547418522532,
        48.07029424934648,
        167.91427575033882,
    ),
}
# no output: figures of published outputs
THROUGHPUT = {
    "hellas-vllm-throughput-smoke.txt": {"single-node": 207.523586028, "Ray TP=2": 10.244564217},
    "kyuz0-vllm-throughput-minimax-m2.7-tp2.json.txt": {"": 85.28594554049253},
}


@pytest.mark.parametrize("version", ["0.16.0", "0.33.0"])
def test_what_vllm_wrote_and_what_it_printed_agree(version):
    found = parse_serve((FIXTURES / f"bench-serve-{version}.json").read_text())
    assert (found.completed, found.failed, found.concurrency) == (4, 0, 2)
    assert (found.input_tokens, found.output_tokens) == (384, 452)
    assert (found.model, found.backend) == ("model", "vllm")
    assert (len(found.ttfts_ms), len(found.itls_ms)) == (4, 4)
    assert sum(found.ttfts_ms) / 4 == pytest.approx(found.mean_ttft_ms)
    printed = parse_serve((FIXTURES / f"bench-serve-{version}.txt").read_text())
    assert printed.input_tokens == 384
    for key in ("mean_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "output_throughput"):
        assert getattr(printed, key) == round(getattr(found, key), 2)


@pytest.fixture(scope="module")
def outputs():
    if "NIXWULF_REFERENCE" not in os.environ:
        pytest.skip("NIXWULF_REFERENCE names no folder of outputs")
    return Path(os.environ["NIXWULF_REFERENCE"]) / "outputs"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_result_of_bench_serve_has_its_values(outputs, name):
    found = parse_serve((outputs / name).read_text())
    values = (found.output_throughput, found.mean_ttft_ms, found.mean_tpot_ms, found.p99_tpot_ms)
    assert (found.completed, *values) == EXPECTED[name]
    assert found.failed == 0


@pytest.mark.parametrize("name", THROUGHPUT)
def test_a_real_result_of_bench_throughput_has_its_values(outputs, name):
    found = parse_throughput((outputs / name).read_text())
    assert {one.label: one.total_per_s for one in found} == THROUGHPUT[name]


@pytest.mark.parametrize(
    ("name", "parse"),
    [*((name, parse_serve) for name in EXPECTED), *((n, parse_throughput) for n in THROUGHPUT)],
)
def test_a_cut_file_is_a_result_or_the_parsers_own_error(outputs, name, parse):
    lines = (outputs / name).read_text().splitlines(keepends=True)
    for count in range(len(lines)):
        with contextlib.suppress(ParseError):
            parse("".join(lines[:count]))


def test_the_times_of_single_requests_are_read_in_milliseconds():
    found = parse_serve(json.dumps(RESULT))
    assert found.ttfts_ms[0] == pytest.approx(5.56119)
    assert found.itls_ms[0][:2] == pytest.approx((0.381038, 0.357933))


def test_what_is_missing_or_no_number_is_named():
    without = {key: value for key, value in RESULT.items() if key != "output_throughput"}
    with pytest.raises(ParseError, match="no line has 'Output token throughput"):
        parse_serve(json.dumps(without))
    with pytest.raises(ParseError, match="'mean_ttft_ms' is 'nan', expected a number"):
        parse_serve(json.dumps(RESULT | {"mean_ttft_ms": float("nan")}))
    with pytest.raises(ParseError, match="line 1: .* expected a whole JSON object"):
        parse_serve("{")
    with pytest.raises(ParseError, match="vllm bench throughput: no line has 'elapsed_time'"):
        parse_throughput("")


strange = st.sampled_from(
    [None, True, -1, float("inf"), 10**400, "", "1", "x", [], [1], [None], [[1, None]], {}, [{}]]
)


@given(st.dictionaries(st.sampled_from(list(RESULT)), strange))
def test_any_json_is_a_result_or_the_parsers_own_error(changes):
    for parse in (parse_serve, parse_throughput):
        try:
            parse(json.dumps(RESULT | changes))
        except ParseError:
            continue


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    for parse in (parse_serve, parse_throughput):
        try:
            found = parse(text)
        except ParseError:
            continue
        assert isinstance(found, ServeResult | tuple)
