"""Measured beside published: ratio, interval, verdict."""

import pytest
import yaml
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.results.store import read_folder
from nixwulf.sweep.plan import make_plan, parse_sweep, save_plan
from nixwulf.sweep.reproduce import outcome
from nixwulf.sweep.reproduce.conditions import sweep_of_run
from nixwulf.sweep.reproduce.outcome import FASTER, INSIDE, MISSING, SLOWER, repeats
from record_factory import failed, metric, ok, write_run

SWEEP = {
    "name": "base",
    "models": {"tiny": {"random": {"layers": 2}}},
    "matrix": {
        "model": ["tiny"],
        "nodes": [2],
        "fabric": ["gbe5"],
        "parallelism": ["pipeline"],
        "parameters": {"n_gen": [32], "threads": [1]},
    },
}
LAB = load_cluster("lab")


def of(plan, decode, **options):
    (case,) = plan.cases
    measured = [metric("decode", decode, conditions={"n_gen": 32, "n_threads": 1})]
    return ok(case.document(), measured, **options)


@pytest.fixture
def base(tmp_path):
    """A run of one case, measured three times at about 10 tok/s."""
    plan = make_plan(parse_sweep(SWEEP, "base.yaml"), LAB)
    samples = ([10.0, 10.2, 9.8], [9.9, 10.1, 10.0], [10.1, 9.9, 10.0])
    records = [of(plan, values, repetition=index) for index, values in enumerate(samples)]
    folder = write_run(tmp_path / "base", records)
    save_plan(plan, folder / "plan.json")
    return folder


@pytest.fixture
def plan(base):
    return make_plan(sweep_of_run(read_folder(base), 0.1), LAB)


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([9.5, 9.6, 9.55], INSIDE),
        ([5.0, 5.1, 4.9], SLOWER),
        ([15.0, 15.1, 14.9], FASTER),
        ([4.0, 8.0, 13.0], INSIDE),  # its interval has 1 in it: nothing is shown
    ],
)
def test_outside_is_what_is_beyond_the_tolerance_and_shown_to_differ(plan, samples, verdict):
    (repeat,) = repeats(plan, [of(plan, samples)])
    assert repeat.verdict == verdict
    assert repeat.expected.value == pytest.approx(10.0)
    assert repeat.measured == pytest.approx(sum(samples) / 3)
    assert repeat.ratio == pytest.approx(repeat.measured / 10)
    assert repeat.interval.low <= repeat.ratio <= repeat.interval.high


def test_a_repetition_of_the_same_case_is_part_of_the_reference(plan):
    (repeat,) = repeats(plan, [])
    assert len(repeat.expected.references) == 3


def test_what_failed_is_not_measured_and_says_why(plan):
    (case,) = plan.cases
    (repeat,) = repeats(plan, [failed(case.document(), reason="It died.")])
    assert (repeat.verdict, repeat.why_not) == (MISSING, "It died.")


def test_fewer_nodes_than_the_record_s_are_named(base):
    document = {**sweep_of_run(read_folder(base)).document}
    document["include"] = [{**document["matrix"], "nodes": [1], "parallelism": ["single"]}]
    document["include"][0].pop("fabric")
    smaller = {**LAB.document, "lab": {"nodes": 2}}
    document["expect"][0]["case"] = {**document["expect"][0]["case"], "nodes": 3}
    document["matrix"] = {**document["matrix"], "nodes": [3]}
    from nixwulf.inventory.cluster import parse_cluster

    plan = make_plan(parse_sweep(document, "m.yaml"), parse_cluster(smaller, "two.toml"))
    (repeat,) = repeats(plan, [])
    assert (repeat.verdict, repeat.why_not) == (MISSING, "the cluster has 2 nodes, not 3")


def test_a_slow_repeat_ends_with_its_causes_and_commands(plan, capsys):
    found = repeats(plan, [of(plan, [5.0, 5.1, 4.9], gbps=0.4)])
    outcome.to_terminal(found, "runs/repeat")
    text = capsys.readouterr().out
    assert "tiny, 2 nodes, pipeline, gbe5, decode" in text
    assert "10.0 tok/s" in text
    assert "0.50 (0." in text
    assert "Likely cause: 'gbe5' carried 0.400 Gbit/s, for the record 9.40." in text
    assert "Next: nixwulf bench links --cluster clusters/lab.toml" in text
    assert "0 of 1 number inside the tolerance." in text


def test_without_a_cause_explain_is_next(plan, capsys):
    outcome.to_terminal(repeats(plan, [of(plan, [5.0, 5.1, 4.9])]), "runs/repeat")
    text = capsys.readouterr().out
    assert "no recorded fact explains it. Next: nixwulf explain runs/repeat" in text


def test_a_run_in_which_nothing_is_ok_has_nothing_to_repeat(tmp_path):
    plan = make_plan(parse_sweep(SWEEP, "base.yaml"), LAB)
    (case,) = plan.cases
    folder = write_run(tmp_path / "bad", [failed(case.document(), reason="It died.")])
    save_plan(plan, folder / "plan.json")
    with pytest.raises(InputError, match="is ok, so there is nothing to repeat; run what is"):
        sweep_of_run(read_folder(folder))


def test_a_sweep_that_expects_a_record_which_is_not_there_is_not_valid(tmp_path):
    file = tmp_path / "mine.yaml"
    expected = {"record": "nosuch", "metric": "decode", "value": 3}
    expected |= {"tolerance": 0.1, "case": {"nodes": 2}, "conditions": {}}
    file.write_text(yaml.safe_dump({**SWEEP, "expect": [expected]}))
    done = CliRunner().invoke(cli, ["validate", str(file)])
    assert (done.exit_code, "'nosuch'" in done.output) == (2, True), done.output
    file.write_text(yaml.safe_dump(SWEEP))
    assert CliRunner().invoke(cli, ["validate", str(file)]).output == "1 sweep: valid.\n"
