"""nixwulf reproduce, without a node."""

import json

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli

SYSTEMS = ["fa-ex9-2", "framework-4", "mac-studio-4", "ms-s1-max-4", "pi-cm5-10"]


def reproduce(*words):
    done = CliRunner().invoke(cli, ["reproduce", *words], env={"COLUMNS": "120"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_with_a_cluster_alone_it_lists_the_records_that_can_be_repeated_there():
    done = reproduce("--cluster", "pi-cm5-10")
    assert done.exit_code == 0
    assert "raspberry-pi-cm5-hpl-10x-tcp-e9c0719e" in done.output
    assert "1 record of these machines left out: memory-bandwidth is no benchmark" in done.output
    assert "nixwulf reproduce RECORD --cluster pi-cm5-10" in done.output


def test_what_can_be_repeated_and_what_a_dry_run_expects_are_json():
    listed = json.loads(reproduce("--cluster", "pi-cm5-10", "--format", "json").output)
    record = next(one for one in listed if one["id"] == "raspberry-pi-cm5-hpl-10x-tcp-e9c0719e")
    done = reproduce(record["id"], "--cluster", "pi-cm5-10", "--dry-run", "--format", "json")
    (repeat,) = json.loads(done.output)
    assert repeat["records"] == [record["id"]]
    assert (repeat["published"], repeat["unit"]) == (
        record["metrics"][0]["value"],
        record["metrics"][0]["unit"],
    )
    assert repeat["case"]["benchmark"] == "hpl"
    assert (repeat["measured"], repeat["verdict"]) == (None, "not measured")


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_dry_run_of_a_system_plans_all_of_its_numbers(name):
    done = reproduce(name, "--cluster", name, "--dry-run")
    assert done.exit_code == 0, done.output
    said = done.output.splitlines()[-1]
    count = int(said.split()[0])
    assert said == f"{count} of {count} numbers can be repeated on {name!r}."


def test_a_dry_run_names_the_command_that_gets_a_model_and_what_nothing_sets():
    done = reproduce("pi-cm5-10", "--cluster", "pi-cm5-10", "--dry-run")
    assert "nixwulf models get bartowski/Llama-3.3-70B-Instruct-GGUF --only" in done.output
    assert "--sha256 32df3bac" in done.output
    assert "nothing here sets: program HPL 2.3" in done.output


def test_a_published_record_may_be_named_by_its_file():
    name = "framework-desktop-hpl-4x-tcp-689aea35"
    by_id = reproduce(name, "--cluster", "framework-4", "--dry-run")
    file = f"results/published/records/{name}.json"
    assert reproduce(file, "--cluster", "framework-4", "--dry-run").output == by_id.output
    assert "1 of 1 number can be repeated on 'framework-4'." in by_id.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "No cluster to repeat anything on; name it with --cluster."),
        (
            ("nothing", "--cluster", "lab"),
            "ms-s1-max-4, pi-cm5-10) nor the id of a published record; known: ",
        ),
        (
            ("framework-desktop-hpl-4x-tcp-689aea36", "--cluster", "framework-4"),
            "did you mean 'framework-desktop-hpl-4x-tcp-689aea35'?",
        ),
        (("mine.yaml", "--cluster", "lab"), "Error: No mine.yaml; "),
        (("framework-desktop-hpl-4x-tcp-689aea35", "--cluster", "lab"), "of other machines"),
        (("sweeps/smoke.yaml", "--cluster", "lab"), "run it by 'nixwulf bench sweeps/smoke.yaml'"),
        (("clusters", "--cluster", "lab"), "holds no record"),
    ],
)
def test_what_cannot_be_repeated_is_refused_in_a_sentence(words, message):
    done = reproduce(*words)
    assert done.exit_code == 2
    assert message in done.output
