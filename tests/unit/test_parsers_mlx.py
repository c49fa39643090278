"""What mlx_lm.benchmark printed in runs of our own, whole, noisy, failed and cut short."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.parsers import ParseError
from nixwulf.parsers.mlx import Result, Trial, parse, recognises

FIXTURES = Path("tests/fixtures/mlx")
REFERENCE = Path(os.environ.get("NIXWULF_REFERENCE", "nowhere"), "outputs", "lab")
FILES = sorted([*FIXTURES.glob("*.txt"), *REFERENCE.glob("mlx.*.txt")])
NO_RESULT = ("fail.", "badhost", "launch.kill1", "server", ".r1.", "pipe.llama")


def text_of(name):
    return (FIXTURES / f"mlx.{name}.txt").read_text()


def test_trials_are_read_with_their_sizes_and_units():
    assert parse(text_of("single.llama")) == Result(
        prompt_tokens=128,
        generation_tokens=32,
        batch_size=1,
        trials=(
            Trial(93.220, 62.675, peak_memory_gb=0.120, seconds=1.884, line=2),
            Trial(92.833, 59.315, peak_memory_gb=0.121, seconds=1.918, line=3),
        ),
    )


def test_noise_of_the_ring_after_the_averages_and_of_the_launcher_before_them_is_passed_over():
    (noisy,) = FIXTURES.glob("mlx.s20.*")
    assert noisy.read_text().splitlines()[-1].startswith("[ring]")
    assert [trial.generation_tps for trial in parse(noisy.read_text()).trials] == [70.044, 70.593]
    assert len(parse(text_of("launch.ring2")).trials) == 2


def test_a_trial_that_was_printed_before_a_crash_is_kept():
    assert len(parse(text_of("ring2.pipe.qwen2.r0")).trials) == 1


@pytest.mark.parametrize("name", ["fail.kill1.r0", "fail.stop1.r0", "launch.badhost"])
def test_a_run_without_a_trial_is_refused_with_the_line_and_what_was_expected(name):
    with pytest.raises(ParseError, match=r"^mlx_lm\.benchmark: line \d+: expected a line 'T"):
        parse(text_of(name))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (("prompt_tps=93.220", "prompt_tps=fast"), "prompt_tps=NUMBER"),
        (("prompt_tps=93.220", "prompt_tps=nan"), "prompt_tps=NUMBER"),
        (("total_time=1.918", "total_time=1.9"), "total_time=NUMBER"),
        (("peak_memory=0.120, ", ""), "peak_memory=NUMBER"),
        (("Trial 1:", "Trial 7:"), "trial 1"),
        (("Timing with", "Timed with"), "Timing with prompt_tokens"),
    ],
)
def test_a_damaged_line_is_named(damage, expected):
    with pytest.raises(ParseError, match=expected):
        parse(text_of("single.llama").replace(*damage))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_output_has_its_trials_or_is_refused(path):
    text = path.read_text(errors="replace")
    if any(part in path.name for part in NO_RESULT):
        with pytest.raises(ParseError):
            parse(text)
    else:
        trials = parse(text).trials
        assert len(trials) in {1, 2, 3}
        assert all(trial.prompt_tps > 0 and trial.generation_tps > 0 for trial in trials)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_output_cut_anywhere_gives_trials_or_a_parse_error(path):
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    for count, line in enumerate(lines):
        for text in ("".join(lines[:count]), "".join(lines[:count]) + line[: len(line) // 2]):
            with suppress(ParseError):
                assert parse(text).trials


@given(st.text())
def test_any_text_at_all_gives_trials_or_a_parse_error(text):
    for prefix in (
        "",
        "Timing with prompt_tokens=1, generation_tokens=1, batch_size=1.\nTrial 1: ",
    ):
        with suppress(ParseError):
            assert parse(prefix + text).trials


def test_its_outputs_are_recognised_also_when_cut_short():
    assert recognises(text_of("fail.stop1.r0"))
    assert not recognises(text_of("launch.badhost"))
