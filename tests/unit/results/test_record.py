import json

import pytest

import record_factory as factory
from nixwulf.core.errors import InputError
from nixwulf.core.schema import schema
from nixwulf.inventory.platforms import Platform
from nixwulf.results import record as types
from nixwulf.results.record import digest, load, save, sealed


def make_record():
    return factory.ok(factory.case(), {"decode": [10.0, 11.0], "prompt": [100.0]})


def test_a_saved_record_loads_as_itself(tmp_path):
    record = make_record()
    save(record, tmp_path / "a.json")
    assert load(tmp_path / "a.json") == record


def test_a_record_edited_by_hand_is_refused(tmp_path):
    path = tmp_path / "a.json"
    save(make_record(), path)
    document = json.loads(path.read_text())
    document["metrics"][0]["value"] *= 2
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="the record was edited after the run"):
        load(path)


def test_a_record_of_a_later_major_version_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(sealed({**make_record(), "schema_version": "2.0"})))
    with pytest.raises(InputError, match="schema_version is '2.0', and this nixwulf reads 1.x"):
        load(path)


def test_a_failed_run_carries_no_speed(tmp_path):
    record = make_record()
    failed = sealed(
        {
            **record,
            "outcome": "failed",
            "failure": {"phase": "measure", "reason": "It ended."},
        }
    )
    with pytest.raises(InputError, match="metrics"):
        save(failed, tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()


def test_the_order_of_keys_does_not_change_the_digest():
    record = make_record()
    assert digest(dict(reversed(record.items()))) == record["digest"]


def test_the_keys_that_readers_ask_for_are_those_of_the_schema():
    whole = schema("record")["properties"]
    efficiency = whole["power"]["properties"]["efficiency"]
    parts = {
        types.Record: whole,
        types.RecordedCase: whole["case"]["properties"],
        types.RecordedMetric: whole["metrics"]["items"]["properties"],
        types.RecordedCluster: whole["cluster"]["properties"],
        types.RecordedFabric: whole["fabric"]["properties"],
        types.RecordedModel: whole["model"]["properties"],
        types.RecordedCommand: whole["commands"]["items"]["properties"],
        types.RecordedNode: whole["nodes"]["items"]["properties"],
        types.RecordedPower: whole["power"]["properties"],
        types.RecordedEfficiency: efficiency["items"]["properties"],
        types.PlanDocument: schema("plan")["properties"],
        Platform: schema("platform")["properties"],
    }
    for part, known in parts.items():
        assert part.__annotations__.keys() <= known.keys(), part
