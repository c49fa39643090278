"""What is in results/ can be trusted: valid, once, of real hardware, and with nothing private."""

from collections import Counter
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.core.files import write_json
from nixwulf.plugins import benchmarks, engines
from nixwulf.results import record
from nixwulf.results.publish.patterns import closed_words, known_words
from nixwulf.results.publish.scrub import Scrubber
from record_factory import case, ok

RESULTS = Path("results")
CLOSED = closed_words((*engines.all_engines(), *benchmarks.all_benchmarks()))


def problems(folder):
    """A sentence for everything in a folder of results that must not be there."""
    found = []
    seen = Counter()
    for path in sorted(folder.glob("**/records/*.json")):
        try:
            one = record.load(path)
        except InputError as error:
            found.append(error.format_message())
            continue
        seen[one["id"], one.get("started")] += 1
        if path.stem != one["id"]:
            found.append(f"{path}: its id is {one['id']!r}; name the file by it.")
        if not (path.parent.parent / "README.md").exists() and one["kind"] == "run":
            found.append(f"{path}: no README.md beside records/; 'nixwulf publish' writes it.")
        if one["cluster"]["lab"]:
            found.append(f"{path}: a run of the lab tells others nothing.")
        if one["kind"] != "published":
            scrubber = Scrubber(known_words([one], {}, CLOSED), closed=CLOSED)
            scrubber.record(one)
            found += [f"{path}: has the {f.kind} {f.was!r}" for f in scrubber.found]
    return found + [f"{name!r} is there {n} times." for (name, _), n in seen.items() if n > 1]


def test_results_have_no_problem():
    assert problems(RESULTS) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"warnings": ["10.1.2.3 was slow."]}, "has the address '10.1.2.3'"),
        ({"raw": ["raw/x/y"]}, "has the raw output 'raw/x/y'"),
        ({"cluster": {"name": "lab", "platforms": ["lab"], "lab": True}}, "a run of the lab"),
        ({"id": "other"}, "name the file by it"),
        ({"kind": "guessed"}, "expected one of 'run'"),
    ],
)
def test_a_problem_in_results_is_found(tmp_path, change, problem):
    one = {**ok(case(1), {"decode": [20.0]}), "raw": []}
    one["cluster"] = {"name": "desk", "platforms": ["dgx-spark"], "lab": False}
    path = tmp_path / "mine" / "records" / f"{one['id']}.json"
    path.parent.mkdir(parents=True)
    (tmp_path / "mine" / "README.md").touch()
    write_json(path, record.sealed({**one, **change}))
    found = problems(tmp_path)
    assert (problem in found[0]) if problem else (found == [])
