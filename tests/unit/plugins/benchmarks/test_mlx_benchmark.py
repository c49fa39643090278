"""When the trials of mlx_lm.benchmark read their prompts and generated, by their lines."""

from pathlib import Path

import pytest

from nixwulf.outputs.mlx import parse
from nixwulf.plugins.benchmarks.mlx_lm import measured, windows
from nixwulf.results.record import sealed, validate
from record_factory import make_record

TWO_TRIALS = Path("tests/fixtures/mlx/mlx.single.llama.txt").read_text()
CAME = [1.0, 3.0, 10.0, 20.0, 20.0]


def test_a_trial_reads_and_then_generates_until_its_line_comes():
    prompt, decode = windows(parse(TWO_TRIALS), CAME)
    one, two = parse(TWO_TRIALS).trials
    first, second = 128 / one.prompt_tps, 32 / one.generation_tps
    assert prompt[0] == pytest.approx((10 - one.seconds, 10 - one.seconds + first))
    assert decode[0] == pytest.approx((10 - second, 10))
    assert prompt[0][1] == pytest.approx(decode[0][0], abs=0.01), "and does nothing between"
    assert [begin for begin, _ in prompt] == pytest.approx([10 - one.seconds, 20 - two.seconds])


def test_only_speeds_have_windows():
    found = measured(parse(TWO_TRIALS), CAME)
    assert [(one.name, len(one.windows)) for one in found] == [
        ("prompt", 2),
        ("decode", 2),
        ("peak_memory", 0),
    ]


def test_a_record_may_have_what_the_trials_tell():
    told = [one.document() for one in measured(parse(TWO_TRIALS), CAME)]
    validate(sealed({**make_record(), "metrics": told}), "a record with these metrics")


def test_a_trial_with_time_that_nothing_accounts_for_does_not_tell_when():
    took = parse(TWO_TRIALS).trials[1].seconds
    text = TWO_TRIALS.replace(f"total_time={took:.3f}", f"total_time={took + 0.5:.3f}")
    assert text != TWO_TRIALS
    assert windows(parse(text), CAME) == ((), ())
