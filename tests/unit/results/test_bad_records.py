"""Records that are not as they should be: one sentence each, with the file and what is wrong."""

import copy
import json
import math

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nixwulf
from nixwulf.cli.records import validate
from nixwulf.core.errors import InputError
from nixwulf.report import summary_of
from nixwulf.report.render import to_csv, to_json, to_markdown
from nixwulf.results import record
from record_factory import case, ok, published

RECORDS = [ok(case(2), {"decode": [9.0, 10.0]}), published(case(2), {"decode": [9.0]})]


def changed(place, value, of=RECORDS[0]):
    """A record with another value in one place, sealed where that can be."""
    document = copy.deepcopy(of)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    try:
        return record.sealed(document)
    except ValueError:  # no digest of what is no number
        return document


def refusal(tmp_path, content):
    """The sentence about a file, from the table and from validate, which exits with 2."""
    path = tmp_path / "a.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as refused:
        nixwulf.load(path)
    done = CliRunner().invoke(validate, [str(path)])
    assert (done.exit_code, done.output) == (2, f"{refused.value.message}\n")
    assert refused.value.message.startswith(f"{path}: ")
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 500
    return refused.value.message.removeprefix(f"{path}: ")


VALUE = ("metrics", 0, "value")


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (VALUE, -3.5, "metrics.0.value"),
        (VALUE, 0, "metrics.0.value"),
        (VALUE, 5e-324, "metrics.0.value"),  # what is divided by it is infinite
        (VALUE, "fast", "metrics.0.value is 'fast', expected number."),
        (VALUE, ["x" * 9000], "metrics.0.value is ['xxx"),
        # A mean of two such numbers is infinite, and that is no JSON.
        (VALUE, 1e308, "metrics.0.value: 1e+308 is greater than the maximum of 1e+100"),
        (("metrics", 0, "samples"), [9.0, -1], "metrics.0.samples.1"),
        (("metrics", 0, "unit"), "tok/sec", "; did you mean 'tok/s'?"),
        (("metrics", 0, "unit"), "furlong", "metrics.0.unit is 'furlong', expected one of 'tok/s'"),
        (("case", "nodes"), 10**30, "case.nodes"),
        (("case", "nodes"), 1e30, "case.nodes"),
        (("repetition",), 2**63, "repetition"),
        (("id",), "../../etc/passwd", "id is '../../etc/passwd', expected a name of letters"),
        (("id",), "..", "id is '..', expected a name of letters"),
        (("id",), "a\n", r"id is 'a\n', expected a name"),
        (("raw",), ["raw/../../etc/passwd"], "raw.0 is 'raw/../../etc/passwd', expected"),
        (("raw",), ["/etc/passwd"], "raw.0 is '/etc/passwd', expected"),
        (("kind",), "dream", "kind is 'dream', expected one of 'run'"),
        (("schema_version",), "2.0", "schema_version is '2.0', and this nixwulf reads 1.x"),
        (("schema_version",), "1.x", "schema_version is '1.x', expected one of"),
        (("schema_version",), 1.2, "schema_version is 1.2, expected one of"),
        (("surprise",), 1, "unknown key 'surprise' in the top level"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_was_expected(
    tmp_path, place, value, sentence
):
    assert sentence in refusal(tmp_path, json.dumps(changed(place, value)))


def test_a_later_version_may_have_no_other_kind_of_record(tmp_path):
    document = changed(("kind",), "dream", {**RECORDS[1], "schema_version": LATER})
    assert "kind is 'dream', expected one of 'run'" in refusal(tmp_path, json.dumps(document))


def test_what_no_other_json_holds_is_not_called_edited():
    with pytest.raises(InputError, match="more than 64 bits"):
        record.text_of(changed(("nodes", 0, "facts", "cpus"), 10**39), "a.json")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 5000])
@pytest.mark.parametrize("place", [VALUE, ("case", "parameters", "n_gen")])
def test_what_is_no_number_of_64_bits_is_not_json(tmp_path, number, place):
    text = json.dumps(changed(place, "HERE")).replace('"HERE"', number)
    assert refusal(tmp_path, text).startswith("line 1: not JSON: ")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_the_driver_itself_cannot_save_one(tmp_path, number):
    for place in (VALUE, ("nodes", 0, "facts", "list")):
        with pytest.raises(InputError, match=r"a\.json: "):
            record.save(changed(place, number), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "line 1: not JSON"),
        (json.dumps(RECORDS[0]).encode()[:-400], "line 1: not JSON"),
        (json.dumps(RECORDS[0], indent=1).encode()[:-400], "not JSON: "),
        (b'{"id": "caf\xe9"}', "not UTF-8 text (byte 11)."),
        (b'{"id": "\\ud800"}', "line 1: not JSON"),
        (b"[]", "the top level is [], expected object."),
        (b"3", "the top level is 3, expected object."),
        (b"[" * 100_000, "line 1: not JSON"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, "nested deeper than 64 levels"),
    ],
    ids=["empty", "cut", "cut-lines", "latin1", "surrogate", "list", "number", "brackets", "deep"],
)
def test_a_file_that_is_no_record_is_one_sentence(tmp_path, content, sentence):
    assert sentence in refusal(tmp_path, content)


LATER = "1.99"


def later(of, **additions):
    return record.sealed({**of, "schema_version": LATER, **additions})


def test_a_record_of_a_later_minor_version_is_read_with_its_new_keys_and_values(tmp_path):
    metric = {**RECORDS[0]["metrics"][0], "unit": "furlong/s", "note": "new", "state": "tepid"}
    document = later(RECORDS[0], weather={"sun": True}, metrics=[metric])
    (tmp_path / "a.json").write_text(json.dumps(document))
    table = nixwulf.load(tmp_path / "a.json")
    assert table[["unit", "state", "value"]].to_numpy().tolist() == [["furlong/s", "tepid", 9.5]]


def test_even_then_known_keys_have_to_be_what_they_are_and_it_must_not_be_edited(tmp_path):
    text = json.dumps(later(RECORDS[0], repetition="first"))
    assert refusal(tmp_path, text) == "repetition is 'first', expected integer."
    text = json.dumps(later(RECORDS[0], outcome={"ok": True}))
    assert "outcome is {'ok': True}, expected string" in refusal(tmp_path, text)
    text = json.dumps({**later(RECORDS[0]), "new": 1})
    assert "the record was edited" in refusal(tmp_path, text)


def test_a_version_is_later_by_number_not_by_text(tmp_path):
    minor = int(record.SCHEMA_VERSION.partition(".")[2])
    for version, message in ((f"1.{minor + 8}", ""), (f"1.0{minor + 1}", ""), ("1.1", "unknown")):
        document = record.sealed({**RECORDS[0], "schema_version": version, "weather": "sun"})
        path = tmp_path / "a.json"
        path.write_text(json.dumps(document))
        if message:
            assert message in refusal(tmp_path, json.dumps(document))
        else:
            nixwulf.load(path)


def _places(value, prefix=()):
    yield prefix
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from _places(inner, (*prefix, key))


PLACES = [(of, place) for of in RECORDS for place in _places(of) if place]
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from(["../x", "<script>", "", "0", "1.99", "-1", "run", "published", "\x00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from(PLACES), ANYTHING, st.sampled_from(["1.2", LATER]))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_is_tabulated_or_refused_in_one_sentence(
    tmp_path, of_place, value, version
):
    of, place = of_place
    document = changed(place, value, {**of, "schema_version": version})
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    try:
        table = nixwulf.load(path)
    except InputError as error:
        table = [error.message.removeprefix(f"{path}: ")]
    assert len(table) == 1


LIKE = {
    str: ["", "$x^{$", "<b>", "\n\n", "a" * 500, "%s{}{{1}}", "../..", "furlong/s", "\x1b[31m"],
    int: [0, 1.5, 2**63 - 1, 2**64 - 1, 1e18, 1e308, 5e-324],
    float: [0, 2**64 - 1, 1e308, 5e-324],
    list: [[]],
    dict: [{}],
    bool: [True, False],
}


def like(of_place):
    """A place of a record, and another value of the kind that it has, or none to take it away."""
    of, place = of_place
    inner = of
    for key in place:
        inner = inner[key]
    return st.tuples(st.just(of), st.just(place), st.sampled_from([*LIKE[type(inner)], None]))


@pytest.mark.slow
@given(st.sampled_from(PLACES).flatmap(like), st.sampled_from(["1.2", LATER]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_can_be_reported_however_odd(tmp_path, changes, version):
    of, place, value = changes
    document = changed(place, value, {**of, "schema_version": version})
    if value is None:
        inner = document
        for key in place[:-1]:
            inner = inner[key]
        del inner[place[-1]]
        document = record.sealed(document)
    (tmp_path / "a.json").write_text(json.dumps(document))
    try:
        summary = summary_of(tmp_path)
    except InputError as error:
        forms = [error.message]
    else:
        forms = [to_markdown(summary), to_csv(summary.folder.records)]
        forms.append(to_json(summary.folder.records))
    assert all(forms)
