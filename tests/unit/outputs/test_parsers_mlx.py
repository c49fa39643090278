"""What mlx_lm.benchmark printed in runs of our own, whole, noisy, failed and cut short."""

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.mlx import Trial, parse, recognises

FIXTURES = Path("tests/fixtures/mlx")
REFERENCE = Path(os.environ.get("NIXWULF_REFERENCE", "nowhere"), "outputs", "lab")
FILES = sorted([*FIXTURES.glob("*.txt"), *REFERENCE.glob("mlx.*.txt")])
NO_RESULT = ("fail.", "badhost", "launch.kill1", "server", ".r1.", "pipe.llama")


def text_of(name):
    return (FIXTURES / f"mlx.{name}.txt").read_text()


def test_trials_are_read_with_their_sizes_and_units():
    text = text_of("single.llama")
    found = parse(text)
    assert (found.prompt_tokens, found.generation_tokens, found.batch_size) == (128, 32, 1)
    rows = [re.findall(r"=([\d.]+)", line) for line in text.splitlines() if line[:5] == "Trial"]
    assert found.trials == tuple(
        Trial(
            float(prompt), float(decode), peak_memory_gb=float(memory), seconds=float(time), line=at
        )
        for at, (prompt, decode, memory, time) in enumerate(rows, 2)
    )
    assert len(rows) == 2
    for trial in found.trials:
        took = 128 / trial.prompt_tps + 32 / trial.generation_tps
        assert took == pytest.approx(trial.seconds, rel=0.1)


def test_noise_of_the_ring_after_the_averages_and_of_the_launcher_before_them_is_passed_over():
    noise = [line for line in text_of("fail.kill1.r0").splitlines() if line.startswith("[ring]")]
    assert noise
    quiet = text_of("single.llama")
    assert parse(quiet + "\n".join(noise)) == parse(quiet)
    assert len(parse(text_of("launch.ring2")).trials) == 2


def test_a_trial_that_was_printed_before_a_crash_is_kept():
    assert len(parse(text_of("ring2.killed.r0")).trials) == 1


@pytest.mark.parametrize("name", ["fail.kill1.r0", "fail.stop1.r0", "launch.badhost"])
def test_a_run_without_a_trial_is_refused_with_the_line_and_what_was_expected(name):
    with pytest.raises(ParseError, match=r"^mlx_lm\.benchmark: line \d+: expected a line 'T"):
        parse(text_of(name))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (("prompt_tps=[0-9.]+", "prompt_tps=fast"), "prompt_tps=NUMBER"),
        (("prompt_tps=[0-9.]+", "prompt_tps=nan"), "prompt_tps=NUMBER"),
        # no output: a pattern
        (("total_time=([0-9.]+)[0-9]{2}\n", r"total_time=\1\n"), "total_time=NUMBER"),
        (("peak_memory=[0-9.]+, ", ""), "peak_memory=NUMBER"),
        (("Trial 1:", "Trial 7:"), "trial 1"),
        (("Timing with", "Timed with"), "Timing with prompt_tokens"),
    ],
)
def test_a_damaged_line_is_named(damage, expected):
    text = text_of("single.llama")
    damaged = re.sub(*damage, text, count=1)
    assert damaged != text
    with pytest.raises(ParseError, match=expected):
        parse(damaged)


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
        # no output: the first line of mlx.single.llama.txt with smaller numbers, before any text
        "Timing with prompt_tokens=1, generation_tokens=1, batch_size=1.\nTrial 1: ",
    ):
        with suppress(ParseError):
            assert parse(prefix + text).trials


def test_its_outputs_are_recognised_also_when_cut_short():
    assert recognises(text_of("fail.stop1.r0"))
    assert not recognises(text_of("launch.badhost"))
